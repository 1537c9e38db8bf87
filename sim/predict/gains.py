"""What each optimisation gains: alone, around the scenario as it stands, and in a waterfall that sums to the total."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scenarios.batches import reported_batch
from scenarios.passes import Pass
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off, on_value, passes_for, with_needs, without
from scenarios.schema import Scenario
from sim.predict.memory import memory_of
from sim.predict.predict import Case, forbidden, sensitivity_of, step_ns
from sim.predict.uncertainty import Sensitivity, ratio_interval

Verdict = Literal[
    "gain", "loss", "not distinguishable", "no effect", "not applicable", "does not fit", "does not fit without"
]
#: Verdicts without a ratio: one of the two states cannot run.
NO_RATIO: tuple[Verdict, ...] = ("not applicable", "does not fit", "does not fit without")

#: Told the share of the work that is done, 0 to 1.
Progress = Callable[[float], None]

#: A change smaller than this share of the step is no effect.
NO_EFFECT = 1e-4


@dataclass(frozen=True, slots=True)
class Gain:
    """One optimisation.

    state: whether the scenario has it on. value: the switch value meant. alone_ratio: step without it / step with it,
    all else as in the scenario (above 1 it helps); low and high: the same under the ends of the profile's uncertainty.
    waterfall_us: what it takes off the step when the optimisations are switched on one after the other, those of the
    scenario first; the numbers sum to baseline minus target. Where one of the two states cannot run, or does
    not fit the memory, there is no ratio: it and its ends are 1.
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


@dataclass(frozen=True, slots=True)
class Gains:
    """All optimisations of a scenario. baseline: nothing on; scenario: as it stands; target: everything applicable on.
    Step times in us; *_fits: whether that state fits the device's memory, so that its time can ever be seen."""

    baseline_us: float
    scenario_us: float
    target_us: float
    gains: tuple[Gain, ...]
    baseline_fits: bool = True
    scenario_fits: bool = True
    target_fits: bool = True


def gains_of(case: Case, progress: Progress = lambda share: None) -> Gains:
    """Every optimisation alone and in the waterfall, on the scenario's reported step.

    progress: told the share that is done, 0 to 1, after each what-if; what it raises stops the search.
    """
    steps = _Steps(case)
    scenario_ns = steps.value(case.scenario)
    chain = bare = all_off(case.scenario, case.model)
    baseline_ns = before = steps.value(chain)
    waterfall: dict[str, float] = {}
    passes = passes_for(case.model)
    on = [p for p in passes if p.is_on(case.scenario)]
    off = [p for p in passes if not p.is_on(case.scenario)]
    for done, item in enumerate(on + off):
        progress(done / (2 * len(passes)))
        tried = set_switch(chain, item.switch, on_value(item, case.scenario))
        if steps.invalid(tried):
            waterfall[item.switch] = 0.0
            continue
        chain = tried
        after = steps.value(chain)
        waterfall[item.switch] = (before - after) / 1000
        before = after
    gains: list[Gain] = []
    for item in passes:
        progress((len(passes) + len(gains)) / (2 * len(passes)))
        gains.append(_gain(item, case.scenario, steps, waterfall[item.switch]))
    fits = [not steps.too_large(state) for state in (bare, case.scenario, chain)]
    return Gains(baseline_ns / 1000, scenario_ns / 1000, before / 1000, tuple(gains), *fits)


class _Steps:
    """Step times of many variants of one case, each played once."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.model = case.model
        self._known: dict[Scenario, int] = {}
        self._exposed: dict[Scenario, Sensitivity] = {}

    def value(self, scenario: Scenario) -> int:
        """Length of the reported step, ns."""
        if scenario in self._exposed:
            return self._exposed[scenario].step_ns
        if scenario not in self._known:
            self._known[scenario] = step_ns(self._case.with_scenario(scenario), reported_batch(scenario))
        return self._known[scenario]

    def exposed(self, scenario: Scenario) -> Sensitivity:
        """The step with what it depends on."""
        if scenario not in self._exposed:
            self._exposed[scenario] = sensitivity_of(self._case.with_scenario(scenario), reported_batch(scenario))
        return self._exposed[scenario]

    def ratio(self, without: Scenario, with_it: Scenario) -> tuple[float, float, float]:
        """(value, low, high) of without / with; what both share cancels."""
        return ratio_interval(self.exposed(without), self.exposed(with_it), self._case.hardware)

    def too_large(self, scenario: Scenario) -> bool:
        """Whether the variant does not fit the device's memory."""
        return bool(memory_of(scenario, self.model, self._case.hardware).too_much)

    def invalid(self, scenario: Scenario, of: str = "") -> str:
        """Why the variant cannot run, or an empty string; another switch than `of` that objects is named."""
        problems = forbidden(self._case.with_scenario(scenario))
        if not problems:
            return ""
        where, what = problems[0]
        switch = where.removeprefix("optimizations.")
        return what if switch == of else f"{switch} {what}"


def _gain(item: Pass, scenario: Scenario, steps: _Steps, waterfall_us: float) -> Gain:
    state: Literal["on", "off"] = "on" if item.is_on(scenario) else "off"
    value = on_value(item, scenario)
    needed = item.missing(scenario)
    base = with_needs(item, scenario)
    with_it = set_switch(base, item.switch, value)
    without_it = without(item, base, steps.model) if state == "on" else base
    reason = steps.invalid(with_it, item.switch) or steps.invalid(without_it, item.switch)
    shown = item.shown(value)
    if reason:
        return Gain(
            item.switch,
            item.title,
            state=state,
            value=shown,
            alone_ratio=1.0,
            low=1.0,
            high=1.0,
            waterfall_us=waterfall_us,
            verdict="not applicable",
            reason=reason,
        )
    notes = [f"given {', '.join(switch for switch, _ in needed)}"] if needed else []
    notes += ["without it does not fit memory"] if steps.too_large(without_it) else []
    notes += ["does not fit memory"] if steps.too_large(with_it) else []
    if steps.too_large(with_it) or steps.too_large(without_it):
        cannot: Verdict = "does not fit" if steps.too_large(with_it) else "does not fit without"
        return Gain(
            item.switch,
            item.title,
            state=state,
            value=shown,
            alone_ratio=1.0,
            low=1.0,
            high=1.0,
            waterfall_us=waterfall_us,
            verdict=cannot,
            reason="; ".join(notes),
        )
    ratio, low, high = steps.ratio(without_it, with_it)
    said = verdict(ratio, low, high)
    return Gain(
        item.switch,
        item.title,
        state=state,
        value=shown,
        alone_ratio=ratio,
        low=low,
        high=high,
        waterfall_us=waterfall_us,
        verdict=said,
        reason="; ".join(notes),
    )


def verdict(ratio: float, low: float, high: float) -> Verdict:
    """What a ratio and its interval let one say."""
    if max(abs(r - 1) for r in (ratio, low, high)) < NO_EFFECT:
        return "no effect"
    if low > 1:
        return "gain"
    return "loss" if high < 1 else "not distinguishable"
