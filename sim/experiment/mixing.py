"""Several factors at once: all of them on, or all of them off, around a scenario."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.passes import PASSES
from scenarios.passes.base import Pass, set_switch, switch_value
from scenarios.passes.switches import with_needs, without
from scenarios.schema import Scenario
from sim.experiment.factors import Factor
from sim.predict.steps import Case


def all_in(case: Case, factors: Sequence[Factor]) -> Scenario:
    """The scenario with all `factors` on, and with what they need."""
    scenario = case.scenario
    for factor, item in _in_order(factors):
        value = switch_value(factor.with_it, factor.switch)
        scenario = set_switch(with_needs(item, scenario), item.switch, value)
    return scenario


def all_out(case: Case, factors: Sequence[Factor]) -> Scenario:
    """The scenario with all `factors` off, and with what needs them."""
    scenario = case.scenario
    for _, item in reversed(_in_order(factors)):
        scenario = without(item, scenario, case.model)
    return scenario


def _in_order(factors: Sequence[Factor]) -> list[tuple[Factor, Pass]]:
    """In the order in which the passes are applied."""
    named = {factor.switch: factor for factor in factors}
    return [(named[item.switch], item) for item in PASSES if item.switch in named]
