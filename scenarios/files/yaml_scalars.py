"""What a plain word of YAML means: the YAML 1.2 core schema, less the numbers that are not finite."""

from __future__ import annotations

import re

from scenarios.errors import printable
from scenarios.files.document import Scalar

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_STARTS = frozenset("+-.0123456789")
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def resolve_scalar(text: str) -> Scalar:
    """The value of a plain (unquoted) scalar by the YAML 1.2 core schema.

    Raises ValueError, with words for the user, where it is a number that is not finite or does not fit 64 bits.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if _INT.fullmatch(text):
        return _fitting(text, 10)
    if _BASED.fullmatch(text):
        return _fitting(text, 0)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"{printable(text)} is too large for a number")
        return number
    return text


def _fitting(text: str, base: int) -> int:
    # The length goes first: int() of a million digits takes seconds, and beyond 4,300 it raises.
    number = int(text, base) if len(text) <= 64 else None
    if number is None or not -(2**63) <= number < 2**63:
        raise ValueError(f"{printable(text)} does not fit 64 bits; put it in quotes if it is text")
    return number
