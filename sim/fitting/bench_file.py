"""What `whatif calibrate --bench` does: a load test's result narrows the engine profile of its deployment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scenarios.errors import ScenarioError, printable
from scenarios.exchange.load_tests import LoadTest, read_load_tests
from scenarios.files.atomic import write_text
from scenarios.files.document import Mark
from scenarios.files.textfile import decode, line_column
from scenarios.loader import Loaded, load_scenario
from scenarios.models.hf_config import model_names
from scenarios.records import dataclass
from scenarios.serving.requests import Load, Request
from sim.engines.costs import EngineCosts
from sim.engines.profile import EngineProfile, engine_of
from sim.engines.write import engine_text
from sim.fitting.engine import FittedEngine, Measured, fit_engine
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case
from sim.serving.expected import Bench, BenchLoad, Expected

#: An open load is past saturation where less than this share of what came was answered.
ANSWERED = 0.8
#: More load tests of one file are not fitted to; a sweep has ten.
MAX_TESTS = 16
#: Requests of one load test that are served to fit to it.
MAX_REQUESTS = 2000


@dataclass(frozen=True, slots=True)
class Compared:
    """A load test, and what is expected of it before and after. fitted: whether the fit saw it."""

    test: LoadTest
    before: Expected
    after: Expected
    fitted: bool


@dataclass(frozen=True, slots=True)
class CalibratedEngine:
    """The engine that was written, the one that it started from, and the load tests."""

    fitted: FittedEngine
    prior: EngineProfile
    compared: tuple[Compared, ...]
    ranks: int


def calibrate_engine(bench: Path, scenario: str, sets: Sequence[str], out: Path) -> CalibratedEngine:
    """Fit the engine profile of `scenario` to the load tests in `bench` and write it to `out`.

    Raises ScenarioError, one line, for a file that is no load test, a scenario that does not fit it, and where all
    tests are past saturation.
    """
    tests = read_load_tests(bench)[:MAX_TESTS]
    _same_model(bench, tests, load_scenario(scenario, sets))
    prior, benches = _benches(scenario, sets, tests)
    below = [not saturated(test) for test in tests]
    if not any(below):
        what = f"all {len(tests)} load tests are past saturation, where requests wait for each other"
        raise ScenarioError([f"{bench}:1:1: {what}: test the deployment at a lower rate, too"])
    measured = [
        Measured(case, test.tpot_ms, test.ttft_ms, test.output_throughput, _requests(test))
        for case, test, good in zip(benches, tests, below, strict=True)
        if good
    ]
    origin = f"{tests[0].tool}: {printable(bench.name, 100)}, {len(measured)} of {len(tests)} load tests"
    try:
        fitted = fit_engine(measured, prior, printable(out.stem, 100), origin)
    except ScenarioError as error:
        raise ScenarioError([f"{bench}:1:1: {message}" for message in error.messages]) from None
    write_text(out, engine_text(fitted.profile))
    ranks = benches[0].ranks
    compared = tuple(
        Compared(test, _served(case, test, prior.costs(ranks)), _served(case, test, fitted.profile.costs(ranks)), good)
        for case, test, good in zip(benches, tests, below, strict=True)
    )
    return CalibratedEngine(fitted, prior, compared, ranks)


def saturated(test: LoadTest) -> bool:
    """Whether requests came faster than they were answered."""
    if test.rate is None or test.output_throughput is None:
        return False
    window = 1.0
    if test.window_s and test.tpot_ms:  # those under way at its end are not counted
        service_s = ((test.ttft_ms or 0.0) + test.output_tokens * test.tpot_ms) / 1000
        window = max(0.1, 1 - service_s / test.window_s)
    return test.output_throughput < ANSWERED * window * test.rate * test.output_tokens


def _served(case: Bench, test: LoadTest, engine: EngineCosts) -> Expected:
    """What is expected of a load test, served by the simulator as the fit has it: of few requests, or of an engine near
    saturation, the closed form is a quarter off."""
    return case.simulate(engine, _requests(test))


def _same_model(bench: Path, tests: Sequence[LoadTest], loaded: Loaded) -> None:
    """Raises ScenarioError where a test names a shipped model and the scenario another one. Engines call models as they
    like, so any other name is taken."""
    shipped = {name.lower(): name for name in model_names()}
    deployed = shipped.get(loaded.scenario.model.lower())
    for test in tests:
        tested = shipped.get((test.model or "").rstrip("/").rpartition("/")[2].lower())
        if tested and deployed and tested != deployed:
            what = f"is a load test of {tested}, and the scenario deploys {deployed}"
            raise ScenarioError([f"{_place_of(bench, test.model or '')}: {what}"])


def _place_of(bench: Path, name: str) -> Mark:
    """Where a file first has a text in quotes."""
    text = decode(bench.read_bytes(), str(bench))
    return Mark(str(bench), *line_column(text[: max(0, text.find(json.dumps(name)))]))


def _benches(scenario: str, sets: Sequence[str], tests: Sequence[LoadTest]) -> tuple[EngineProfile, list[Bench]]:
    prior: EngineProfile | None = None
    cases: dict[tuple[int, int], Case] = {}
    benches: list[Bench] = []
    for test in tests:
        lengths = test.input_tokens, test.output_tokens
        if lengths not in cases:
            named = [f"workload.input_tokens={lengths[0]}", f"workload.output_tokens={lengths[1]}"]
            loaded = load_scenario(scenario, [*sets, *named])
            prior = prior or engine_of(loaded)
            cases[lengths] = case_of(loaded)
        benches.append(Bench(cases[lengths], _load(test)))
    assert prior is not None  # there is at least one test
    return prior, benches


def _requests(test: LoadTest) -> Load:
    """Requests like those of a load test: as many, at its very rate in the mean of what is drawn, as `vllm bench serve`
    has it, all of its mean lengths."""
    number = max(1, min(test.requests, MAX_REQUESTS))
    gaps = np.zeros(number)
    if test.rate:
        gaps = np.random.default_rng(0).exponential(size=number) if test.arrival == "poisson" else np.ones(number)
        gaps *= 1e9 / test.rate * number / gaps.sum()
    times = (np.cumsum(gaps) - gaps[0]).astype(int).tolist()
    sent = (Request(n, at, test.input_tokens, test.output_tokens) for n, at in enumerate(times))
    return Load(tuple(sent), test.concurrency if test.arrival == "closed" else None)


def _load(test: LoadTest) -> BenchLoad:
    clients = test.concurrency or (test.requests if test.arrival == "burst" else 0)
    return BenchLoad(
        arrival=test.arrival,
        input_tokens=test.input_tokens,
        output_tokens=test.output_tokens,
        rate=test.rate or 0.0,
        clients=clients,
        window_s=test.window_s,
        requests=test.requests if test.arrival == "closed" and test.tool == "vllm bench" else None,
    )
