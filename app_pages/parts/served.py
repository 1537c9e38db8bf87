"""What the serving page asks of the model, remembered: a load at one rate, and the same deployment at all rates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app_pages.parts import answers
from app_pages.parts.answers import Remembered
from app_pages.parts.state import Question
from scenarios.serving.traffic import load_of
from scenarios.settings import Workload
from sim.engines.profile import engine_of
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case
from sim.serving.history import History, history_of
from sim.serving.metrics import ServingMetrics, metrics_of
from sim.serving.prices import StepPrices
from sim.serving.rate import HighestRate, highest_rate, requests_at
from sim.serving.result import ServingResult, serve_scenario
from sim.serving.simulate import prices_of, serving_capacity, simulate

SCENARIO = "serve_qwen3_14b_910b3"
RATE = "workload.traffic.rate"
#: Rates of the curve, requests/s. It ends where a load is saturated.
RATES = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
#: One run has no fewer requests: enough for a P99.
MIN_REQUESTS = 200
WARMUP = 20


@dataclass(frozen=True, slots=True)
class Served:
    """One load: its result with the ends of its interval, and how it went over time."""

    result: ServingResult
    history: History


@dataclass(frozen=True, slots=True)
class Cliff:
    """The same deployment at RATES up to the first that is saturated, and the highest rate that meets the limits."""

    points: tuple[tuple[float, ServingMetrics], ...]
    highest: HighestRate | None


_SERVED: Remembered[Served] = Remembered(24)
_CLIFFS: Remembered[Cliff] = Remembered(24)
_PRICES: Remembered[StepPrices] = Remembered(8)


def question_of(settings: dict[str, object]) -> Question:
    """The shipped serving scenario with `settings`."""
    return Question(SCENARIO, tuple(sorted((field, str(value)) for field, value in settings.items())))


def served(question: Question) -> Served:
    """The load of a question. Raises ScenarioError."""
    loaded = answers.loaded(question)
    return _SERVED.get(answers.key_of(loaded), lambda: _served(question))


def _served(question: Question) -> Served:
    loaded = answers.loaded(question)
    scenario = loaded.scenario.model_copy(update={"slo": None})  # without limits nothing is searched
    case = case_of(loaded)
    result = serve_scenario(loaded, case.with_scenario(scenario))
    return Served(result, history_of(result.outcome, serving_capacity(case).kv_tokens))


def cliff(question: Question) -> Cliff:
    """Latencies over RATES. Raises ScenarioError. The rate that the question itself has does not matter."""
    of_rate = (RATE, "workload.traffic.requests")
    plain = Question(question.scenario, tuple(pair for pair in question.sets if pair[0] not in of_rate))
    loaded = answers.loaded(plain)
    return _CLIFFS.get(answers.key_of(loaded), lambda: _cliff(plain))


def _cliff(question: Question) -> Cliff:
    loaded = answers.loaded(question)
    case = case_of(loaded)
    costs = engine_of(loaded).costs(case.model.cards)
    prices = prices_of(case, costs)
    seed, slo, workload = case.scenario.protocol.seed, case.scenario.slo, case.scenario.workload

    def run(workload: Workload) -> ServingMetrics:
        return metrics_of(simulate(case, costs, load_of(workload, seed, Path()), prices), costs, slo)

    points: list[tuple[float, ServingMetrics]] = []
    for rate in RATES:
        points.append((rate, run(_at(workload, rate))))
        if points[-1][1].saturated:
            break
    highest = highest_rate(_at(workload, 1.0), slo, run) if slo is not None else None
    return Cliff(tuple(points), highest)


def _at(workload: Workload, rate: float) -> Workload:
    assert workload.traffic is not None
    changed = {"rate": rate, "requests": requests_at(rate, MIN_REQUESTS), "warmup_requests": WARMUP}
    return workload.model_copy(update={"traffic": workload.traffic.model_copy(update=changed)})


def within(case: Case, result: ServingResult) -> ServingMetrics:
    """The metrics with the scenario's limits, which `served` left out of the search."""
    return metrics_of(result.outcome, result.costs, case.scenario.slo)
