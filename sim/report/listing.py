"""`whatif list`: what ships."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group, RenderableType

from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.loader import load_scenario, shipped_names
from scenarios.models.families import FAMILIES
from scenarios.models.hf_config import load_model, model_names
from scenarios.passes import PASSES
from sim.hardware.profile import hardware_names, load_hardware
from sim.report.tables import Column, fitted


def print_listing(console: Console, what: str) -> None:
    """Print one list, or all where `what` is empty. Raises ScenarioError for a list that does not exist."""
    if what and what not in LISTS:
        hint = did_you_mean(what, list(LISTS))
        raise ScenarioError([f"list: {quoted(what)} is not one of {', '.join(LISTS)}{hint}"])
    for name in (what,) if what else tuple(LISTS):
        console.print(LISTS[name](console.width))


def _scenarios(width: int) -> RenderableType:
    names = shipped_names()
    scenarios = [load_scenario(name).scenario for name in names]
    columns = [
        Column("name", names),
        Column("model", [s.model for s in scenarios], rank=2),
        Column("hardware", [s.hardware for s in scenarios], rank=1),
        Column("what it shows", [s.description.strip() for s in scenarios], wraps=True),
    ]
    return fitted("Scenarios", columns, width)


def _models(width: int) -> RenderableType:
    models = [load_model(name) for name in model_names()]
    columns = [
        Column("name", model_names()),
        Column("layers", [str(m.layers) for m in models], right=True),
        Column("hidden", [str(m.hidden) for m in models], right=True),
        Column("heads", [str(m.heads) for m in models], right=True),
        Column("KV heads", [str(m.kv_heads) for m in models], right=True),
        Column("vocabulary", [str(m.vocab) for m in models], right=True, rank=1),
        Column("BF16 GiB", [f"{2 * (m.linear_weights + m.other_weights) / (1 << 30):.1f}" for m in models], right=True),
    ]
    families = [
        Column("  model_type", [f"  {name}" for name in FAMILIES]),
        Column("models of it", [family.like for family in FAMILIES.values()], wraps=True),
    ]
    from_config = fitted("Families: any config.json of these runs (docs/models.md)", families, width)
    return Group(fitted("Models", columns, width), from_config)


def _hardware(width: int) -> RenderableType:
    profiles = [load_hardware(name) for name in hardware_names()]
    columns = [
        Column("name", hardware_names()),
        Column("cube cores", [str(hw.chip.cube_cores) for hw in profiles], right=True, rank=1),
        Column("TFLOPS", [f"{hw.chip.cube_flops_per_ns / 1000:.0f}" for hw in profiles], right=True),
        Column("HBM GiB", [f"{hw.chip.hbm_capacity_bytes / (1 << 30):.0f}" for hw in profiles], right=True),
        Column("TB/s", [f"{hw.memory.hbm_gbps / 1000:.2f}" for hw in profiles], right=True),
        Column("what it is", [hw.profile.description for hw in profiles], wraps=True),
    ]
    return fitted("Hardware (BF16 peak; HBM bandwidth that streaming kernels sustain)", columns, width)


def _passes(width: int) -> RenderableType:
    columns = [
        Column("switch", [f"{p.switch}={p.shown(p.on)}" for p in PASSES]),
        Column("rewrites", [p.rewrites for p in PASSES], rank=1, wraps=True),
        Column("saves", [p.saves for p in PASSES], wraps=True),
        Column("costs", [p.costs for p in PASSES], rank=2, wraps=True),
    ]
    return fitted("Optimisations, in the order they are applied", columns, width)


LISTS: dict[str, Callable[[int], RenderableType]] = {
    "scenarios": _scenarios,
    "models": _models,
    "hardware": _hardware,
    "passes": _passes,
}
