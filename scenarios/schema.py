"""The scenario file: what to run, on what, with which optimisations. Its switches are those of the passes.

`scenarios.settings` declares what is no optimisation. Here each pass adds the field of its switch, or says what a field
that stands there already is. The JSON Schema that editors complete from is generated from these classes (`whatif
schema`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from pydantic import Field, create_model

from scenarios import settings
from scenarios.passes import PASSES
from scenarios.settings import Engine, Graph
from scenarios.traffic_settings import Part

__all__ = ["Engine", "Fusion", "Graph", "KvCache", "Optimizations", "Overlap", "Scenario"]

P = TypeVar("P", bound=Part)


def _switches(base: type[Part], group: str) -> dict[str, Any]:
    """The fields of `base` that stand for the switches `group.*` (or those outside all groups), by name."""
    declared = get_type_hints(base, include_extras=True)
    fields: dict[str, Any] = {}
    for item in PASSES:
        head, _, name = item.switch.rpartition(".")
        if head != group:
            continue
        kind, default = item.type, item.default
        if name in declared:
            kind, default = declared[name], base.model_fields[name].default
        fields[name] = (Annotated[kind, Field(description=item.help[0])], default)
    return fields


def _extended(name: str, base: type[P], **fields: Any) -> type[P]:
    return create_model(name, __base__=base, __module__=__name__, __doc__=base.__doc__, **fields)


if TYPE_CHECKING:  # a checker sees the fields that are declared by name
    from scenarios.settings import Fusion, KvCache, Optimizations, Overlap
    from scenarios.settings import Settings as Scenario
else:
    Fusion = _extended("Fusion", settings.Fusion, **_switches(settings.Fusion, "fusion"))
    KvCache = _extended("KvCache", settings.KvCache, **_switches(settings.KvCache, "kv"))
    Overlap = _extended("Overlap", settings.Overlap, **_switches(settings.Overlap, "overlap"))
    Optimizations = _extended(
        "Optimizations",
        settings.Optimizations,
        **_switches(settings.Optimizations, ""),
        fusion=(Fusion, Fusion()),
        kv=(KvCache, KvCache()),
        overlap=(Overlap, Overlap()),
    )
    Scenario = _extended("Scenario", settings.Settings, optimizations=(Optimizations, Optimizations()))
