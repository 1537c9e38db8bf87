"""A bench that measures nothing: switches have the gains that the test gives, the machine drifts, noise is seeded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from random import Random
from typing import Any

from scenarios.errors import ScenarioError
from scenarios.exchange.bench import Errors, Pair, Part, Repeat, Side, WarmUp
from scenarios.exchange.measured import Measured, Predicted
from scenarios.loader import Loaded
from scenarios.passes import PASSES
from scenarios.schema import Scenario
from scenarios.timeline import Timeline
from sim.experiment.factors import HEADLINE

#: As exact as the plain program in 16 bits; and what ruins it.
GOOD = Errors(0.04, 0.008, 3e-5, 8.0, 8.0, None, 36)
BAD = Errors(2.0, 0.4, 0.05, 8.1, 8.0, (0, 1), 36)


@dataclass
class FakeBench:
    """gains: of each switch when it is on. noise: standard deviation of ln of a time. drift: of ln of the machine's
    speed from one measurement to the next, a random walk. turns: of a pair. cost_s: what a pair takes. fails, refuses:
    reasons by switch. bad: switches that ruin the numbers."""

    gains: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.01
    drift: float = 0.0
    turns: int = 24
    cost_s: float = 1.0
    fails: Mapping[str, str] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    bad: Sequence[str] = ()
    unchecked: str = ""
    trained: bool = False
    seed: int = 0
    device: str = "cpu"
    now_s: float = 0.0
    asked: list[tuple[Scenario, Scenario]] = field(default_factory=list)
    compiled: Sequence[str] = ()
    seconds: list[float | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random, self._speed = Random(self.seed), 0.0

    def machine(self) -> dict[str, str | int]:
        return {"backend": "cpu", "device": "a machine of the test", "date": "2026-01-01T00:00:00+00:00"}

    def weights(self, loaded: Loaded) -> str:
        return "trained (of the test)" if self.trained else "seeded random"

    def refused(self, scenario: Scenario) -> str:
        return next((why for switch, why in self.refuses.items() if _on(scenario, switch)), "")

    def warm_up(self, scenario: Scenario) -> WarmUp:
        told = [(self._reference(), self._time(scenario) * (3.0 if n == 0 else 1.0)) for n in range(24)]
        return WarmUp(HEADLINE[scenario.workload.phase], tuple(told), self._side(scenario))

    def profile(self, loaded: Loaded, predicted: Predicted) -> Measured:
        ops = [
            {"index": index, "ops": 1, "measured_us": ns / 1000, "predicted_us": ns / 1000}
            for index, ns in sorted(predicted.ops_ns.items())
        ]
        busy = sum(row["measured_us"] for row in ops)
        step: dict[str, Any] = dict.fromkeys(
            ("communication_us", "communication_not_overlapped_us", "overlapped_us"), 0.0
        )
        step |= {"total_us": busy * 1.1, "computing_us": busy, "free_us": busy * 0.1}
        kernels = [
            {"kind": "matmul", "form": "torch", "count": 1, "total_us": busy, "predicted_us": busy},
        ]
        document = {"step": step, "ops": ops, "kernels": kernels, "errors": {"step": 0.0}, "scaled_by": 1.0}
        return Measured(document, Timeline((), 0, 1, "MEASURED", 0, "CPU"))

    def compiles(self, scenario: Scenario) -> bool:
        return any(_on(scenario, switch) for switch in self.compiled)

    def pair(self, a: Scenario, b: Scenario, seconds: float | None = None) -> Pair:
        self.asked.append((a, b))
        self.seconds.append(seconds)
        self.now_s += self.cost_s
        for switch, why in self.fails.items():
            if _on(a, switch) or _on(b, switch):
                raise ScenarioError([why])
        parts: tuple[Part, ...] = ("tpot", "ttft", "step") if a.workload.phase == "mixed" else ("tpot", "ttft")
        turns = {part: tuple(self._turn(a, b, n) for n in range(self.turns)) for part in parts}
        return Pair(self._side(a), self._side(b), turns, 8, 140)

    def elapsed_s(self) -> float:
        return self.now_s

    def _turn(self, a: Scenario, b: Scenario, number: int) -> Repeat:
        a_first, times = number % 2 == 0, {}
        for scenario in (a, b) if a_first else (b, a):
            times.setdefault(id(scenario), []).append((self._reference(), self._time(scenario)))
        first = times[id(a)][0]
        second = times[id(b)][-1]
        if not a_first and a is b:
            first, second = second, first
        return Repeat(first[1], second[1], first[0], second[0], first[1], second[1], a_first)

    def _time(self, scenario: Scenario) -> float:
        self._speed += self._random.gauss(0, self.drift)
        ns = 1e7 * exp(self._speed + self._random.gauss(0, self.noise))
        for switch, gain in self.gains.items():
            if _on(scenario, switch):
                ns /= gain
        return ns

    def _reference(self) -> float:
        return 1e6 * exp(self._speed + self._random.gauss(0, 0.02))

    def _side(self, scenario: Scenario) -> Side:
        ruined = any(_on(scenario, switch) for switch in self.bad)
        errors = None if self.unchecked else BAD if ruined else GOOD
        first: dict[Part, float] = {"ttft": 50.0, "tpot": 80.0}
        return Side(
            5.0, first, {"ttft": 30.0, "tpot": 40.0}, 10 << 20, 1 << 20, 2 << 20, errors, unchecked=self.unchecked
        )


def _on(scenario: Scenario, switch: str) -> bool:
    return next(p for p in PASSES if p.switch == switch).is_on(scenario)


def heard() -> tuple[list[str], Callable[[str], None]]:
    """What is said, and what says it."""
    lines: list[str] = []
    return lines, lines.append
