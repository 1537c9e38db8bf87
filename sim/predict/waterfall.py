"""The way from a step with nothing on to the best one, optimisation by optimisation; what loses is not on that way
(`sim.predict.best_set`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.passes import Pass
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off, passes_for, with_settings_of
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.predict.variants import Variants

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
            tried: Any = set_switch(with_settings_of(item, chain), item.switch, item.value(best))
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
