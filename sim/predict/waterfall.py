"""The way from a step with nothing on to the best one, optimisation by optimisation; what loses is not on that way.

The best set starts from the scenario: what is on and loses is dropped, what is off and gains is added, the largest
gain first, each only if the step is then shorter and fits; then, as long as that pays, what the scenario itself refuses
next to a switch that has been dropped. What is there for room (a paged cache) stays as it is. No
single change that the scenario's own gains suggest makes it better; two that lose alone and gain together are not
looked for (`sim.predict.attribution` measures those that are in it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.passes import Pass
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off, on_value, passes_for, with_needs, without
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.predict.variants import Variants

#: A change smaller than this share of the step is no effect.
NO_EFFECT = 1e-4
#: Orders by name: the graph and then as passes are applied; as passes are applied; the largest gain alone first.
ORDERS = ("graph", "passes", "gain")


@dataclass(frozen=True, slots=True)
class Waterfall:
    """order: the switches in the order in which they are switched on. falls_ns: what each takes off. start, best: the
    scenarios at both ends; *_ns: their steps."""

    order: tuple[str, ...]
    falls_ns: dict[str, int]
    start: Scenario
    best: Scenario
    start_ns: int
    best_ns: int


def best_of(steps: Variants, scenario: Scenario, ratios: dict[str, float]) -> Scenario:
    """The best set around `scenario`. ratios: step without / step with of each switch alone, where it has one."""
    current, passes = scenario, {item.switch: item for item in passes_for(steps.model)}
    for switch, ratio in sorted(ratios.items(), key=lambda one: -abs(one[1] - 1)):
        item = passes[switch]
        if abs(ratio - 1) < NO_EFFECT or item.for_capacity:
            continue
        if item.is_on(current) and ratio < 1:
            current = _shorter(steps, current, without(item, current, steps.model))
        elif not item.is_on(current) and ratio > 1:
            current = _with(steps, scenario, current, item)
    return _with_what_was_refused(steps, scenario, current, ratios)


def _with_what_was_refused(
    steps: Variants, scenario: Scenario, current: Scenario, ratios: dict[str, float]
) -> Scenario:
    """`current` with what has no ratio alone, or gained alone and not yet, as long as that pays: what the scenario
    refused next to a switch (fused MLP weights want FP16) can be on once that is off."""
    waiting = [item for item in passes_for(steps.model) if ratios.get(item.switch, 2.0) > 1 + NO_EFFECT]
    changed = current != scenario
    while changed:
        changed = False
        for item in waiting:
            if item.is_on(current) or item.for_capacity:
                continue
            before, current = current, _with(steps, scenario, current, item)
            changed = changed or current != before
    return current


def _with(steps: Variants, scenario: Scenario, current: Scenario, item: Pass) -> Scenario:
    """`current` with `item`, and what it needs, on, where the step is then shorter."""
    tried: Any = set_switch(with_needs(item, current), item.switch, on_value(item, scenario))
    return _shorter(steps, current, tried)


def _shorter(steps: Variants, current: Scenario, tried: Any) -> Scenario:
    """The one with the shorter step, `tried` only if it can run and fits."""
    better = not steps.problem(tried) and not steps.too_large(tried) and steps.step_ns(tried) < steps.step_ns(current)
    return tried if better else current


def waterfall_of(
    steps: Variants, scenario: Scenario, best: Scenario, ratios: dict[str, float], order: str
) -> Waterfall:
    """Switch on what is on in `best`, one after the other; what needs another waits for it.

    order: one of ORDERS, or switches by name, comma-separated; the others follow as "graph" has them. Raises
    ScenarioError for a switch that there is not.
    """
    start: Any = all_off(scenario, steps.model)
    waiting = [item for item in _ordered(steps, scenario, ratios, order) if item.is_on(best)]
    chain, before = start, steps.step_ns(start)
    order_taken: list[str] = []
    falls: dict[str, int] = {}
    while waiting:
        for item in waiting:
            tried: Any = set_switch(chain, item.switch, item.value(best))
            if steps.problem(tried) is None:
                break
        else:  # nothing more can be switched on by itself
            break
        waiting.remove(item)
        after = steps.step_ns(tried)
        order_taken.append(item.switch)
        falls[item.switch] = before - after
        chain, before = tried, after
    return Waterfall(tuple(order_taken), falls, start, chain, steps.step_ns(start), before)


def without_losers(steps: Variants, fall: Waterfall) -> Scenario:
    """The best set without those of its switches that lengthen the step in their place, where it is shorter then."""
    best, passes = fall.best, {item.switch: item for item in passes_for(steps.model)}
    for switch, fall_ns in fall.falls_ns.items():
        item = passes[switch]
        if fall_ns >= 0 or item.for_capacity or not item.is_on(best):
            continue
        best = _shorter(steps, best, without(item, best, steps.model))
    return best


def _ordered(steps: Variants, scenario: Scenario, ratios: dict[str, float], order: str) -> Sequence[Pass]:
    passes = passes_for(steps.model)
    if order == "gain":
        return sorted(passes, key=lambda item: -ratios.get(item.switch, 1.0))
    as_applied = sorted(passes, key=lambda item: not item.is_on(scenario))  # those of the scenario first
    if order == "passes":
        return as_applied
    graph_first = sorted(as_applied, key=lambda item: item.switch != "graph")
    if order == "graph":
        return graph_first
    names = [name.strip() for name in order.split(",")]
    known = [item.switch for item in passes]
    for name in names:
        if name not in known:
            raise ScenarioError([f"--order: no switch {quoted(name)} here{did_you_mean(name, [*ORDERS, *known])}"])
    return sorted(graph_first, key=lambda item: names.index(item.switch) if item.switch in names else len(names))
