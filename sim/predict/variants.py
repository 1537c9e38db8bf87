"""Steps of many variants of one case, each played once: what gains, waterfalls and attributions ask again and again."""

from __future__ import annotations

from scenarios.batches import reported_batch
from scenarios.schema import Scenario
from sim.predict.memory import memory_of
from sim.predict.predict import forbidden
from sim.predict.steps import Case, sensitivity_of, step_ns, uncontended_ns
from sim.predict.uncertainty import Sensitivity, ratio_interval

#: What a change of switches may give back of what kernels lose by running together, as a share of the step. Of four
#: shipped scenarios of several ranks no single change of the best set gained by giving back.
GIVEN_BACK = 0.005


class Variants:
    """Step times of variants of `case`, which share its model and hardware."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model = case.model
        self._known: dict[Scenario, int] = {}
        self._exposed: dict[Scenario, Sensitivity] = {}
        self._alone: dict[Scenario, int | None] = {}

    def step_ns(self, scenario: Scenario) -> int:
        """Length of the reported step, ns."""
        if scenario in self._exposed:
            return self._exposed[scenario].step_ns
        if scenario not in self._known:
            self._known[scenario] = step_ns(self.case.with_scenario(scenario), reported_batch(scenario))
        return self._known[scenario]

    def may_be_shorter(self, tried: Scenario, current: Scenario) -> bool:
        """Whether the step of `tried` could be shorter than that of `current`, by what costs a tenth as much: what it
        would be if kernels that run together did not slow each other down. Where they run together in both, it is
        shorter without that too, but for GIVEN_BACK."""
        if tried in self._known or tried in self._exposed:
            return True
        alone, alone_now = self._uncontended(tried), self._uncontended(current)
        if alone is None or alone >= self.step_ns(current):
            return alone is None
        return alone_now is None or alone < (1 + GIVEN_BACK) * alone_now

    def _uncontended(self, scenario: Scenario) -> int | None:
        """Length if kernels that run together did not slow each other down, ns; None where none do, or it is as dear as
        the length itself."""
        if scenario not in self._alone:
            self._alone[scenario] = uncontended_ns(self.case.with_scenario(scenario), reported_batch(scenario))
        return self._alone[scenario]

    def sensitivity(self, scenario: Scenario) -> Sensitivity:
        """The step with what it depends on."""
        if scenario not in self._exposed:
            self._exposed[scenario] = sensitivity_of(self.case.with_scenario(scenario), reported_batch(scenario))
        return self._exposed[scenario]

    def ratio(self, without: Scenario, with_it: Scenario) -> tuple[float, float, float]:
        """(value, low, high) of without / with; what both share cancels."""
        return ratio_interval(self.sensitivity(without), self.sensitivity(with_it), self.case.hardware)

    def too_large(self, scenario: Scenario) -> bool:
        """Whether the variant does not fit the device's memory."""
        return bool(memory_of(scenario, self.model, self.case.hardware).too_much)

    def problem(self, scenario: Scenario) -> tuple[str, str] | None:
        """The first thing that forbids the variant: (switch or field, why)."""
        problems = forbidden(self.case.with_scenario(scenario))
        return (problems[0][0].removeprefix("optimizations."), problems[0][1]) if problems else None

    def invalid(self, scenario: Scenario, of: str = "") -> str:
        """Why the variant cannot run, or an empty string; another switch than `of` that objects is named."""
        problem = self.problem(scenario)
        if problem is None:
            return ""
        switch, what = problem
        return what if switch == of else f"{switch} {what}"
