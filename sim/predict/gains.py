"""What each optimisation gains: alone around the scenario as it stands, and on the way from nothing to the best set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from scenarios.passes import Pass
from scenarios.passes.base import set_switch
from scenarios.passes.switches import changed, on_value, passes_for, with_needs, without
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.predict.best_set import NO_EFFECT, best_of
from sim.predict.steps import Case
from sim.predict.variants import Variants
from sim.predict.waterfall import waterfall_of

Verdict = Literal[
    "gain", "loss", "not distinguishable", "no effect", "not applicable", "does not fit", "does not fit without"
]
#: Verdicts without a ratio: one of the two states cannot run.
NO_RATIO: tuple[Verdict, ...] = ("not applicable", "does not fit", "does not fit without")

#: Told the share of the work that is done, 0 to 1.
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Gain:
    """One optimisation.

    state: whether the scenario has it on. value: the switch value meant. alone_ratio: step without it / step with it,
    all else as in the scenario (above 1 it helps); low and high: the same under the ends of the profile's uncertainty.
    alone_us: what it takes off that step. in_best: whether the best set has it on. waterfall_us: what it takes off the
    step when the optimisations of the best set are switched on one after the other, 0 for all others; the numbers sum
    to baseline minus target. marked: what its verdict alone is, where that is not what its place in the waterfall says.
    Where one of the two states cannot run, or does not fit the memory, there is no ratio: it and its ends are 1.
    """

    switch: str
    title: str
    state: Literal["on", "off"]
    value: str
    alone_ratio: float
    low: float
    high: float
    waterfall_us: float
    verdict: Verdict
    reason: str
    alone_us: float = 0.0
    in_best: bool = False
    marked: str = ""


@dataclass(frozen=True, slots=True)
class Gains:
    """All optimisations of a scenario. baseline: nothing on; scenario: as it stands; target: the best set, which is
    what gains. Step times in us; *_fits: whether that state fits the device's memory, so that its time can ever be
    seen. order: the switches of the best set as they are switched on. best_settings: `--set` pairs that lead from the
    scenario to the best set."""

    baseline_us: float
    scenario_us: float
    target_us: float
    gains: tuple[Gain, ...]
    baseline_fits: bool = True
    scenario_fits: bool = True
    target_fits: bool = True
    order: tuple[str, ...] = ()
    best_settings: tuple[str, ...] = ()


def gains_of(case: Case, progress: Progress = lambda share: None, order: str = "graph") -> Gains:
    """Every optimisation alone and in the waterfall, on the scenario's reported step.

    progress: told the share that is done, 0 to 1, after each what-if; what it raises stops the search. order: of the
    waterfall (`sim.predict.waterfall`). Raises ScenarioError for an order that names no switch.
    """
    steps, scenario = Variants(case), case.scenario
    scenario_ns = steps.step_ns(scenario)
    passes = passes_for(case.model)
    alone: list[Gain] = []
    for item in passes:
        progress(len(alone) / (2 * len(passes)))
        alone.append(_alone(item, scenario, steps))
    progress(0.5)
    ratios = {gain.switch: gain.alone_ratio for gain in alone if gain.verdict not in NO_RATIO}
    best = best_of(steps, scenario, ratios, lambda: progress(0.6))
    progress(0.9)
    fall = waterfall_of(steps, scenario, best, ratios, order)
    progress(0.95)
    placed = tuple(_placed(gain, fall.falls_ns.get(gain.switch), fall.start_ns) for gain in alone)
    return Gains(
        baseline_us=fall.start_ns / 1000,
        scenario_us=scenario_ns / 1000,
        target_us=fall.best_ns / 1000,
        gains=placed,
        baseline_fits=not steps.too_large(fall.start),
        scenario_fits=not steps.too_large(scenario),
        target_fits=not steps.too_large(fall.best),
        order=fall.order,
        best_settings=changed(scenario, fall.best),
    )


def _placed(gain: Gain, fall_ns: int | None, start_ns: int) -> Gain:
    """`gain` with its place in the waterfall, marked where its verdict alone says otherwise."""
    if fall_ns is None:
        return gain
    place: Verdict = "no effect"
    if abs(fall_ns) >= NO_EFFECT * start_ns:
        place = "gain" if fall_ns > 0 else "loss"
    differs = gain.verdict != place and gain.verdict not in NO_RATIO
    return replace(gain, waterfall_us=fall_ns / 1000, in_best=True, marked=gain.verdict if differs else "")


def _alone(item: Pass, scenario: Scenario, steps: Variants) -> Gain:
    state: Literal["on", "off"] = "on" if item.is_on(scenario) else "off"
    value = on_value(item, scenario)
    needed = item.missing(scenario)
    base = with_needs(item, scenario)
    with_it = set_switch(base, item.switch, value)
    without_it = without(item, base, steps.model) if state == "on" else base
    no_ratio = Gain(
        switch=item.switch,
        title=item.title,
        state=state,
        value=item.shown(value),
        alone_ratio=1.0,
        low=1.0,
        high=1.0,
        waterfall_us=0.0,
        verdict="not applicable",
        reason="",
    )
    reason = steps.invalid(with_it, item.switch) or steps.invalid(without_it, item.switch)
    if reason:
        return replace(no_ratio, reason=reason)
    notes = [f"given {', '.join(switch for switch, _ in needed)}"] if needed else []
    notes += ["without it does not fit memory"] if steps.too_large(without_it) else []
    notes += ["does not fit memory"] if steps.too_large(with_it) else []
    if steps.too_large(with_it) or steps.too_large(without_it):
        cannot: Verdict = "does not fit" if steps.too_large(with_it) else "does not fit without"
        return replace(no_ratio, verdict=cannot, reason="; ".join(notes))
    ratio, low, high = steps.ratio(without_it, with_it)
    saved_us = (steps.step_ns(without_it) - steps.step_ns(with_it)) / 1000
    said = verdict(ratio, low, high)
    return replace(
        no_ratio, alone_ratio=ratio, low=low, high=high, verdict=said, reason="; ".join(notes), alone_us=saved_us
    )


#: How far the interval of a ratio of 1 may reach where nothing is said to happen: half of what is printed.
SURELY_NONE = 0.005


def verdict(ratio: float, low: float, high: float) -> Verdict:
    """What a ratio and its interval let one say."""
    if abs(ratio - 1) < NO_EFFECT and max(1 - low, high - 1) < SURELY_NONE:
        return "no effect"
    if low > 1:
        return "gain"
    return "loss" if high < 1 else "not distinguishable"
