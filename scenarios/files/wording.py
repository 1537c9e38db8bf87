"""The words for each kind of error: what is due, what stands there, what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from scenarios.errors import did_you_mean, nearest, printable, quoted, shown
from scenarios.files.document import Path, dotted, parse_path
from scenarios.files.model_walk import Slot, known_keys, known_words, places, slots_at, unit
from scenarios.files.yaml_scalars import resolve_scalar
from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What pydantic found (type, context, message), the value at `path`, and what the model allows there."""

    type: str
    context: Mapping[str, Any]
    message: str
    path: Path
    value: object
    slots: list[Slot]


#: Error types that say "another type is due", and the type in plain words.
DUE = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
}


def describe(finding: Finding) -> str:
    """The finding in words: what is due and what stands there."""
    return _WRITERS.get(finding.type, _other)(finding)


def unknown_key(model: type[BaseModel], path: Path, extra_keys: Sequence[str]) -> str:
    key = str(path[-1])
    what = f"unknown key {quoted(key)}"
    keys = known_keys(slots_at(model, path[:-1])) + (list(extra_keys) if len(path) == 1 else [])
    written_flat = (*path[:-1], *parse_path(key))
    if "." in key and slots_at(model, written_flat):
        return f"{what}. Nest it: put {quoted(str(written_flat[-1]))} under '{dotted(written_flat[:-1])}'"
    homes = places(model)
    if key in keys:  # of another member of a union
        return f"{what}: another kind of entry takes it, not this one"
    if key in homes:
        return f"{what}. It belongs {_under(homes[key])}"
    meant = nearest(key, [*keys, *homes])
    if meant is None:
        return f"{what}. Known keys: {', '.join(keys)}" if keys else what
    return f"{what}. Did you mean '{meant}'?" + ("" if meant in keys else f" It belongs {_under(homes[meant])}")


def _under(homes: list[Path]) -> str:
    return " or ".join(f"under '{dotted(home)}'" if home else "at the top level" for home in homes)


_QUANTITY = re.compile(r"[-+]?\.?\d[\d_,.]*(?:[eE][-+]?\d+)?\s*(?P<unit>[A-Za-zµμ%/].*)?")


def _number(finding: Finding) -> str:
    """A number is due, and something else stands there."""
    due, got, of = DUE[finding.type], shown(finding.value), unit(finding.slots)
    of = f" of {of}" if of else ""
    if isinstance(finding.value, float) and finding.value.is_integer() and abs(finding.value) < 2**63:
        return f"must be {due}{of}, got {got}. Write {int(finding.value)}"
    text = finding.value.strip() if isinstance(finding.value, str) else ""
    quantity = _QUANTITY.fullmatch(text)
    if quantity and quantity["unit"]:
        without = quoted(quantity["unit"])
        return f"must be a plain number{of}, got {got}. Write the number alone, without {without}"
    plain = text.replace("_", "").replace(",", "")
    if quantity and isinstance(_resolved(plain), int | float):
        advice = "Remove the quotes" if plain == text else f"Write {printable(plain)}"
        return f"must be {due}{of}, got the text {got}. {advice}"
    return f"must be {due}{of}, got {got}"


def _resolved(text: str) -> object:
    """The value of `text` as plain YAML; None for a number that fits nowhere, such as 1e999."""
    try:
        return resolve_scalar(text)
    except ValueError:
        return None


_TRUE, _FALSE = ("yes", "y", "on", "true", "t", "1"), ("no", "n", "off", "false", "f", "0")


def _bool(finding: Finding) -> str:
    word = str(finding.value).lower() if isinstance(finding.value, str | int | float) else ""
    meant = "true" if word in _TRUE else "false" if word in _FALSE else ""
    return f"must be true or false, got {shown(finding.value)}" + (f". Did you mean {meant}?" if meant else "")


def _text(finding: Finding) -> str:
    advice = ". Put it in quotes" if isinstance(finding.value, bool | int | float) else ""
    return f"must be text, got {shown(finding.value)}{advice}"


def _mapping(finding: Finding) -> str:
    keys = known_keys(finding.slots)
    what = f"must be a mapping{' with keys such as ' + ', '.join(keys[:4]) if keys else ''}, got {shown(finding.value)}"
    return f"{what}. Remove the key to take the defaults" if finding.value is None else what


def _list(finding: Finding) -> str:
    return f"must be a list such as [1, 2], got {shown(finding.value)}"


def _word(finding: Finding) -> str:
    words, value = [str(word) for word in known_words(finding.slots)], finding.value
    if not words:  # an Enum, or the tags of a discriminated union
        words = re.findall(r"'([^']*)'", str(finding.context.get("expected_tags") or finding.context.get("expected")))
        value = finding.context.get("tag", value)
    if value is None or isinstance(value, dict | list):
        return f"must be one of {', '.join(words)}, got {shown(value)}"
    text = value if isinstance(value, str) else shown(value)
    return f"{quoted(text)} is not one of {', '.join(words)}{did_you_mean(text, words)}"


def _bound(words: str, key: str) -> Callable[[Finding], str]:
    return lambda finding: f"must be {words} {_plain(finding.context[key])}, got {shown(finding.value)}"


def _plain(number: object) -> str:
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)


def _length(finding: Finding) -> str:
    is_min = "min_length" in finding.context
    limit = finding.context["min_length" if is_min else "max_length"]
    if is_min and limit == 1:
        return "must not be empty"
    size = len(finding.value) if isinstance(finding.value, str | list | dict) else 0
    things = "characters" if isinstance(finding.value, str) else "entries"
    return f"must have at {'least' if is_min else 'most'} {limit} {things}, got {size}"


def _missing(finding: Finding) -> str:
    return f"required key {quoted(str(finding.path[-1]))} is missing"


def _no_tag(finding: Finding) -> str:
    return f"required key {finding.context['discriminator']} is missing: it says which kind this is"


def _union(finding: Finding) -> str:
    words = f"one of {', '.join(map(str, known_words(finding.slots)))}" if known_words(finding.slots) else ""
    due = " or ".join(part for part in (finding.context["due"], words) if part)
    return f"must be {due}, got {shown(finding.value)}"


def _own(finding: Finding) -> str:
    """A validator of the model itself speaks."""
    return printable(str(finding.context.get("error", finding.message)), 400)


def _other(finding: Finding) -> str:
    return f"{printable(finding.message[:1].lower() + finding.message[1:], 400)}, got {shown(finding.value)}"


_WRITERS: dict[str, Callable[[Finding], str]] = {
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "float_type", "float_parsing"), _number),
    **dict.fromkeys(("bool_type", "bool_parsing"), _bool),
    "string_type": _text,
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), _mapping),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), _list),
    **dict.fromkeys(("literal_error", "enum", "union_tag_invalid"), _word),
    "greater_than_equal": _bound("at least", "ge"),
    "greater_than": _bound("greater than", "gt"),
    "less_than_equal": _bound("at most", "le"),
    "less_than": _bound("less than", "lt"),
    "multiple_of": _bound("a multiple of", "multiple_of"),
    **dict.fromkeys(("string_too_short", "string_too_long", "too_short", "too_long"), _length),
    "missing": _missing,
    "union_tag_not_found": _no_tag,
    "union": _union,
    **dict.fromkeys(("value_error", "assertion_error"), _own),
}
