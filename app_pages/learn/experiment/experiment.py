"""Lesson: one explainable experiment in seven steps, here predicted: what `whatif experiment` does on a device.

One factor at a time on a frozen baseline, then all together: single gains need not multiply, since two factors can save
the same time. Then other shapes, and what the first run costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot, log, prod

from app_pages.learn.cases import case
from scenarios.batches import reported_batch
from scenarios.passes.base import Pass, set_switch
from scenarios.passes.switches import all_off, on_value, passes_for, with_needs
from scenarios.schema import Scenario
from sim.predict.explain import diagnose
from sim.predict.gains import Verdict, verdict
from sim.predict.predict import ColdStart, check, predict
from sim.predict.ratios import StepRatio, step_ratio
from sim.predict.steps import Case, sensitivity_of


@dataclass(frozen=True, slots=True)
class Factor:
    """One switch on the baseline: step without / step with, and what the profile's uncertainty leaves of it."""

    switch: str
    value: str
    ratio: float
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Shape:
    """All factors together at another batch: step before and after, ms."""

    batch: int
    before_ms: float
    after_ms: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """product: of the single ratios; together: of all at once; each with its interval."""

    baseline_ms: float
    bottleneck: str
    evidence: str
    factors: tuple[Factor, ...]
    product: StepRatio
    together: StepRatio
    bottleneck_after: str
    shapes: tuple[Shape, ...]
    cold: ColdStart


def case_of(model: str, hardware: str, batch: int, input_tokens: int, chosen: tuple[str, ...]) -> Case:
    """The baseline with all of the chosen switches on."""
    base = _baseline(model, hardware, batch, input_tokens)
    items = tuple(item for item in passes_for(base.model) if item.switch in chosen)
    return base.with_scenario(_all(base.scenario, items))


def switches(model: str, hardware: str) -> tuple[str, ...]:
    """Switches that can be tried on a decode step of `model`."""
    base = _baseline(model, hardware, 1, 1024)
    tried = (item for item in passes_for(base.model) if not check(base.with_scenario(_with(base.scenario, item))))
    return tuple(item.switch for item in tried)


def experiment(model: str, hardware: str, batch: int, input_tokens: int, chosen: tuple[str, ...]) -> Experiment:
    """The chosen switches on a plain decode step. Raises ScenarioError where the baseline is refused."""
    base = _baseline(model, hardware, batch, input_tokens)
    prediction = predict(base)
    diagnosis = diagnose(prediction)
    items = tuple(item for item in passes_for(base.model) if item.switch in chosen)
    factors = tuple(_factor(base, item) for item in items)
    after = base.with_scenario(_all(base.scenario, items))
    last, ratio = predict(after), step_ratio(base, after)
    return Experiment(
        baseline_ms=prediction.step.total_ns / 1e6,
        bottleneck=diagnosis.name,
        evidence=diagnosis.evidence,
        factors=factors,
        product=_product(factors),
        together=ratio,
        bottleneck_after=diagnose(last).name,
        shapes=tuple(_shape(model, hardware, b, input_tokens, items) for b in (1, 8, 32)),
        cold=last.cold_start,
    )


def _product(factors: tuple[Factor, ...]) -> StepRatio:
    """The single gains multiplied. Their errors are taken as independent: the widths of their logarithms add as
    squares."""
    value = prod(factor.ratio for factor in factors)
    down = hypot(*(log(factor.ratio / factor.low) for factor in factors))
    up = hypot(*(log(factor.high / factor.ratio) for factor in factors))
    low, high = value * exp(-down), value * exp(up)
    return StepRatio(value, low, high, verdict(value, low, high))


def _baseline(model: str, hardware: str, batch: int, input_tokens: int) -> Case:
    plain = case(
        f"model={model}", f"hardware={hardware}", f"workload.batch={batch}", f"workload.input_tokens={input_tokens}"
    )
    return plain.with_scenario(all_off(plain.scenario, plain.model))


def _with(scenario: Scenario, item: Pass) -> Scenario:
    return set_switch(with_needs(item, scenario), item.switch, on_value(item, scenario))


def _all(scenario: Scenario, chosen: tuple[Pass, ...]) -> Scenario:
    for item in chosen:
        scenario = _with(scenario, item)
    return scenario


def _factor(base: Case, item: Pass) -> Factor:
    """On the baseline with whatever the switch cannot be without."""
    without = base.with_scenario(with_needs(item, base.scenario))
    with_it = base.with_scenario(_with(base.scenario, item))
    ratio = step_ratio(without, with_it)
    value = item.shown(on_value(item, base.scenario))
    return Factor(item.switch, value, ratio.value, ratio.low, ratio.high, ratio.verdict)


def _shape(model: str, hardware: str, batch: int, input_tokens: int, chosen: tuple[Pass, ...]) -> Shape:
    base = _baseline(model, hardware, batch, input_tokens)
    after = base.with_scenario(_all(base.scenario, chosen))
    steps = reported_batch(base.scenario)
    return Shape(batch, sensitivity_of(base, steps).step_ns / 1e6, sensitivity_of(after, steps).step_ns / 1e6)
