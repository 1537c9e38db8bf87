"""Questions to a pydantic model by document path: which keys and words are known there, and in which unit."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scenarios.files.document import Path
from scenarios.records import dataclass

Model = type[BaseModel]

#: Unit of a quantity by the end of its name; a field's `json_schema_extra={"unit": ...}` goes before.
UNITS = {
    "_tokens": "tokens",
    "_requests": "requests",
    "_bytes": "bytes",
    "_kib": "KiB",
    "_mib": "MiB",
    "_gib": "GiB",
    "_gb": "GB",
    "_ns": "nanoseconds",
    "_us": "microseconds",
    "_ms": "milliseconds",
    "_s": "seconds",
    "_mhz": "MHz",
    "_ghz": "GHz",
    "_gbps": "GB/s",
    "_gflops": "GFLOPS",
    "_tflops": "TFLOPS",
    "_flops": "FLOPs",
    "_cores": "cores",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """What the model allows at one place: a type (never a union, never annotated), and the unit of a number there."""

    type: Any
    unit: str = ""


def slots_at(model: Model, path: Path) -> list[Slot]:
    """The alternatives at `path`; empty where the model knows no such place."""
    slots = [Slot(model)]
    for key in path:
        slots = [inner for slot in slots for inner in _step(slot, key)]
    return slots


def fields_of(model: Model) -> dict[str, FieldInfo]:
    """Fields under the names that a document spells."""
    return {
        info.validation_alias if isinstance(info.validation_alias, str) else info.alias or name: info
        for name, info in model.model_fields.items()
    }


def known_keys(slots: list[Slot]) -> list[str]:
    """Keys that a mapping may have here, in the order of declaration."""
    return list(dict.fromkeys(key for slot in slots if _is_model(slot.type) for key in fields_of(slot.type)))


def known_words(slots: list[Slot]) -> list[Any]:
    """The values of the Literals here, in order."""
    return list(
        dict.fromkeys(word for slot in slots if get_origin(slot.type) is Literal for word in get_args(slot.type))
    )


def unit(slots: list[Slot]) -> str:
    """The unit of a number here, or ""."""
    return next((slot.unit for slot in slots if slot.unit), "")


def places(model: Model) -> dict[str, list[Path]]:
    """Every key of the model and of the models within it -> the paths of the mappings that take it."""
    paths: dict[str, list[Path]] = {}
    _collect(model, (), (), paths)
    return paths


def _collect(model: Model, path: Path, above: tuple[Model, ...], paths: dict[str, list[Path]]) -> None:
    if model in above:
        return
    for key, info in fields_of(model).items():
        paths.setdefault(key, []).append(path)
        for slot in _alternatives(info.annotation, ""):
            if _is_model(slot.type):
                _collect(slot.type, (*path, key), (*above, model), paths)


def _step(slot: Slot, key: str | int) -> Iterator[Slot]:
    if _is_model(slot.type):
        info = fields_of(slot.type).get(str(key)) if isinstance(key, str) else None
        if info is not None:
            yield from _alternatives(info.annotation, _unit_of(info) or _unit_by_name(str(key)))
        return
    origin, args = get_origin(slot.type), get_args(slot.type)
    if not args:
        return
    if isinstance(key, str):
        if isinstance(origin, type) and len(args) == 2 and hasattr(origin, "keys"):
            yield from _alternatives(args[1], slot.unit or _unit_by_name(key))
    elif origin is tuple and args[-1] is not Ellipsis:
        if key < len(args):
            yield from _alternatives(args[key], slot.unit)
    elif isinstance(origin, type) and not hasattr(origin, "keys"):
        yield from _alternatives(args[0], slot.unit)


def _alternatives(annotation: Any, unit: str) -> Iterator[Slot]:
    """The leaves of a union, unwrapped; the innermost unit wins."""
    origin = get_origin(annotation)
    if hasattr(annotation, "__value__"):  # type X = ...
        yield from _alternatives(annotation.__value__, unit)
    elif origin is Annotated:
        inner, *extras = get_args(annotation)
        units = [_unit_of(extra) for extra in extras if isinstance(extra, FieldInfo)]
        yield from _alternatives(inner, next((u for u in units if u), unit))
    elif origin in (Union, UnionType):
        for inner in get_args(annotation):
            yield from _alternatives(inner, unit)
    elif annotation is not NoneType:
        yield Slot(annotation, unit)


def _unit_of(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""


def _unit_by_name(key: str) -> str:
    return next((word for end, word in UNITS.items() if key.lower().endswith(end)), "")


def _is_model(leaf: Any) -> bool:
    return isinstance(leaf, type) and issubclass(leaf, BaseModel)
