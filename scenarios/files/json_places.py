"""Where a value stands in the text of a JSON document: parsed values do not say, and a message must.

The text is walked again, values on other ways skipped by the parser; only for a message, so its cost does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from scenarios.files.document import Mark
from scenarios.files.textfile import line_column

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


def json_place(source: str, text: str, keys: Sequence[str | int], start: int = 0) -> Mark:
    """The place of what stands under `keys`, from the document that starts at `start` on: of its value, or of the
    nearest value above it that is there."""
    at = _skip(text, start)
    for key in keys:
        inner = _member(text, at, key)
        if inner is None:
            break
        at = inner
    return Mark(source, *line_column(text[:at]))


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _member(text: str, at: int, key: str | int) -> int | None:
    """Where the value of a key, or an item of a list, starts; None where there is none, or the text is cut short."""
    is_object = isinstance(key, str)
    if text[at : at + 1] != ("{" if is_object else "["):
        return None
    offset: int | None = None  # of a key that is there twice, the last one counts
    number = 0
    try:
        at = _skip(text, at + 1)
        while text[at] not in "}]":
            name: str | int = number
            if is_object:
                name, at = _DECODER.raw_decode(text, at)
                at = _skip(text, _skip(text, at) + 1)  # over the colon
            if name == key:
                offset = at
            at = _skip(text, _DECODER.raw_decode(text, at)[1])
            number += 1
            at = _skip(text, at + 1) if text[at] == "," else at
    except (ValueError, IndexError, RecursionError):
        return offset
    return offset
