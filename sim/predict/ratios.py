"""The steps of two cases as a ratio with its interval: the one rule that says whether a difference can be seen."""

from __future__ import annotations

from math import exp, hypot, log

from scenarios.batches import reported_batch
from scenarios.records import dataclass
from sim.predict.gains import Verdict, verdict
from sim.predict.steps import Case, sensitivity_of
from sim.predict.uncertainty import Sensitivity, ratio_interval, step_interval


@dataclass(frozen=True, slots=True)
class StepRatio:
    """Step of the first case / step of the second, with the central 90 % of its uncertainty; above 1 the second is
    faster. verdict: "gain" or "loss" only where the whole interval lies on one side of 1."""

    value: float
    low: float
    high: float
    verdict: Verdict

    @property
    def distinguishable(self) -> bool:
        return self.verdict in ("gain", "loss")


def step_ratio(first: Case, second: Case) -> StepRatio:
    """The ratio of the reported steps. On one hardware profile the errors that both share cancel; those of two profiles
    are independent, and the widths of their logarithms add as squares."""
    a, b = (sensitivity_of(case, reported_batch(case.scenario)) for case in (first, second))
    if first.hardware is second.hardware:
        value, low, high = ratio_interval(a, b, first.hardware)
    else:
        value, low, high = _independent(a, b, first, second)
    return StepRatio(value, low, high, verdict(value, low, high))


def _independent(a: Sensitivity, b: Sensitivity, first: Case, second: Case) -> tuple[float, float, float]:
    (low_a, high_a), (low_b, high_b) = step_interval(a, first.hardware), step_interval(b, second.hardware)
    value = a.step_ns / b.step_ns
    down = hypot(log(a.step_ns / low_a), log(high_b / b.step_ns))
    up = hypot(log(high_a / a.step_ns), log(b.step_ns / low_b))
    return value, value * exp(-down), value * exp(up)
