"""The algebra of switches: which of them apply, all off, one with what it needs, one without and all that needs it.

A switch is named by its path below `optimizations`, such as `fusion.rope`.
"""

from __future__ import annotations

from scenarios.models.model import Model
from scenarios.ops.program import DType
from scenarios.passes import PASSES
from scenarios.passes.base import Pass, set_switch
from scenarios.settings import Settings


def pass_of(switch: str) -> Pass | None:
    """The optimisation behind `switch`, or None where there is none of that name."""
    return next((item for item in PASSES if item.switch == switch), None)


def passes_for(model: Model) -> list[Pass]:
    """The optimisations that have something to say about `model`, in the order in which they are applied."""
    return [item for item in PASSES if item.idle(model) is None]


def activation_dtype(scenario: Settings, model: Model) -> DType:
    """16-bit type of the activations: the weights' own, or the cache's, or the model's."""
    weights, kv = scenario.optimizations.weights, scenario.optimizations.kv.dtype
    if weights == "bf16" or weights == "fp16":
        return weights
    if kv == "bf16" or kv == "fp16":
        return kv
    return model.dtype


def off_value(item: Pass, scenario: Settings, model: Model) -> object:
    """The value that a what-if switches off to. Weights that are no longer quantised take the type of the
    activations."""
    act = activation_dtype(scenario, model)
    return act if item.switch == "weights" else item.off[0]


def on_value(item: Pass, scenario: Settings) -> object:
    """The value a what-if switches on: the scenario's own, or the pass's."""
    value = item.value(scenario)
    return item.on if value in item.off else value


def all_off(scenario: Settings, model: Model) -> Settings:
    """`scenario` with every optimisation off (dependants first, so that each state on the way is valid)."""
    for item in reversed(passes_for(model)):
        if item.is_on(scenario):
            scenario = set_switch(scenario, item.switch, off_value(item, scenario, model))
    return scenario


def needs_of(item: Pass) -> dict[str, object]:
    """The switches that `item` cannot do without, and those that they need in turn, each with its value."""
    needed: dict[str, object] = {}
    for switch, values in item.needs:
        other = pass_of(switch)
        assert other is not None, switch
        needed |= {**needs_of(other), switch: values[0]}
    return needed


def with_needs(item: Pass, scenario: Settings) -> Settings:
    """`scenario` with the switches on that `item` cannot be without."""
    for switch, value in item.missing(scenario):
        scenario = set_switch(scenario, switch, value)
    return scenario


def with_settings_of(item: Pass, scenario: Settings) -> Settings:
    """`scenario` with those needs of `item` met that switch nothing on: weights of the 16-bit type that it takes."""
    for switch, value in item.missing(scenario):
        other = pass_of(switch)
        if other is not None and value in other.off:
            scenario = set_switch(scenario, switch, value)
    return scenario


def without(item: Pass, scenario: Settings, model: Model) -> Settings:
    """`scenario` with `item` off, and with it all that needs it."""
    scenario = set_switch(scenario, item.switch, off_value(item, scenario, model))
    for other in reversed(passes_for(model)):
        if other.is_on(scenario) and other.missing(scenario):
            scenario = without(other, scenario, model)
    return scenario


def changed(before: Settings, after: Settings) -> tuple[str, ...]:
    """The `--set` pairs that turn the optimisations of `before` into those of `after`."""
    items = (item for item in PASSES if item.value(after) != item.value(before))
    return tuple(f"optimizations.{item.switch}={item.shown(item.value(after))}" for item in items)
