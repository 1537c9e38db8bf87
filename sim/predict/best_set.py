"""The best set of a scenario: what is on without what loses, and with what gains, until no change makes it better.

Two walks. The first takes the changes that the scenario's own gains suggest, the largest first, each only if the step
is then shorter and fits. But what loses next to the scenario's switches may gain next to others (prefetch behind a
graph; a weight format once the weights are quantised), so the second walk tries every switch against the set that the
first has found, whatever it was alone, again and again until a round changes nothing:

- one that is on is taken off, with all that needs it;
- one that is off is put on, with what it needs, and without what then lacks a need; where that set refuses it, next to
  each one that is on taken off in turn.

No single change of these makes the result better by WORTH_A_ROUND; two that gain only together, and of which neither
needs nor refuses the other, are not looked for. What is there for room (a paged cache) stays as it is. A test plays all
sets within three switches of the best ones of real scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scenarios.passes import Pass
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off, on_value, passes_for, with_needs, without
from scenarios.schema import Scenario
from sim.predict.variants import Variants

#: A change smaller than this share of the step is no effect.
NO_EFFECT = 1e-4
#: The second walk takes a change that shortens the step by this share: less is not worth another round of trials.
WORTH_A_ROUND = 5e-4


def best_of(
    steps: Variants, scenario: Scenario, ratios: dict[str, float], tell: Callable[[], None] = lambda: None
) -> Scenario:
    """The best set around `scenario`. ratios: step without / step with of each switch alone, where it has one. tell:
    called before each change that is tried; what it raises stops the search."""
    current, passes = scenario, {item.switch: item for item in passes_for(steps.model)}
    for switch, ratio in sorted(ratios.items(), key=lambda one: -abs(one[1] - 1)):
        item = passes[switch]
        tell()
        if abs(ratio - 1) < NO_EFFECT or item.for_capacity:
            continue
        if item.is_on(current) and ratio < 1:
            current = _shorter(steps, current, without(item, current, steps.model))
        elif not item.is_on(current) and ratio > 1:
            current = _shorter(steps, current, _with(item, scenario, current))
    return _climbed(steps, scenario, current, tell)


def _climbed(steps: Variants, scenario: Scenario, current: Scenario, tell: Callable[[], None]) -> Scenario:
    """`current` with every switch changed that makes it shorter, until none does."""
    items = [item for item in passes_for(steps.model) if not item.for_capacity]
    unchanged = 0  # switches in a row that changed nothing
    while unchanged < len(items):
        for item in items:
            before = current
            for tried in _changes(steps, scenario, current, item):
                tell()
                current = _shorter(steps, current, tried, WORTH_A_ROUND)
            unchanged = unchanged + 1 if current == before else 0
            if unchanged == len(items):
                break
    return current


def _changes(steps: Variants, scenario: Scenario, current: Scenario, item: Pass) -> Iterator[Any]:
    """`current` with `item` the other way round."""
    if item.is_on(current):
        yield without(item, current, steps.model)
        return
    tried = _consistent(steps, _with(item, scenario, current))
    if steps.problem(tried) is None:
        yield tried
        return
    if steps.problem(_with(item, scenario, all_off(current, steps.model))):
        return  # whatever is off, it cannot be on
    for other in passes_for(steps.model):
        if other.is_on(current) and not other.for_capacity:
            instead = _consistent(steps, _with(item, scenario, without(other, current, steps.model)))
            if item.is_on(instead) and not other.is_on(instead):
                yield instead


def _with(item: Pass, scenario: Scenario, current: Any) -> Any:
    """`current` with `item`, and what it needs, on."""
    return set_switch(with_needs(item, current), item.switch, on_value(item, scenario))


def _consistent(steps: Variants, tried: Any) -> Any:
    """`tried` without what lacks a need in it."""
    for other in reversed(passes_for(steps.model)):
        if other.is_on(tried) and other.missing(tried):
            tried = without(other, tried, steps.model)
    return tried


def _shorter(steps: Variants, current: Scenario, tried: Any, by: float = 0.0) -> Scenario:
    """The one with the shorter step, `tried` only if it can run and fits, and is shorter by the share `by`."""
    if steps.problem(tried) or steps.too_large(tried) or not steps.may_be_shorter(tried, current):
        return current
    return tried if steps.step_ns(tried) < (1 - by) * steps.step_ns(current) else current
