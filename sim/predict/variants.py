"""Steps of many variants of one case, each played once: what gains, waterfalls and attributions ask again and again."""

from __future__ import annotations

from scenarios.batches import reported_batch
from scenarios.schema import Scenario
from sim.predict.memory import memory_of
from sim.predict.predict import forbidden
from sim.predict.steps import Case, sensitivity_of, step_ns
from sim.predict.uncertainty import Sensitivity, ratio_interval


class Variants:
    """Step times of variants of `case`, which share its model and hardware."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model = case.model
        self._known: dict[Scenario, int] = {}
        self._exposed: dict[Scenario, Sensitivity] = {}

    def step_ns(self, scenario: Scenario) -> int:
        """Length of the reported step, ns."""
        if scenario in self._exposed:
            return self._exposed[scenario].step_ns
        if scenario not in self._known:
            self._known[scenario] = step_ns(self.case.with_scenario(scenario), reported_batch(scenario))
        return self._known[scenario]

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
