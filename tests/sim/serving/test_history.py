"""The history of a served load: counted by hand for two requests, and in agreement with what the run says of itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scenarios.loader import load_scenario
from scenarios.serving.traffic import load_of
from sim.engines.profile import engine_of
from sim.predict.scenario_result import case_of
from sim.serving.history import history_of
from sim.serving.outcome import ServingOutcome
from sim.serving.simulate import prices_of, serving_capacity, simulate

S = 1_000_000_000


@pytest.fixture(scope="module")
def outcome() -> ServingOutcome:
    loaded = load_scenario("serve_qwen3_14b_910b3", ["workload.traffic.requests=60", "workload.traffic.rate=4"])
    case = case_of(loaded)
    costs = engine_of(loaded).costs(1)
    return simulate(case, costs, load_of(case.scenario.workload, 0, None), prices_of(case, costs))


def test_two_requests_are_counted_by_hand(outcome: ServingOutcome) -> None:
    """The first runs from 0 to 8 s; the second comes at 2, is let in at 4 and done at 8. At 6 s both generate."""
    two = replace(
        outcome,
        ids=np.array([0, 1]),
        arrived_ns=np.array([0, 2 * S]),
        started_ns=np.array([0, 4 * S]),
        first_ns=np.array([4 * S, 6 * S]),
        last_ns=np.array([8 * S, 8 * S]),
        input_tokens=np.array([100, 200]),
        output_tokens=np.array([40, 10]),
    )
    history = history_of(two, 1000, points=5)
    assert history.at_s.tolist() == [0, 2, 4, 6, 8]
    assert history.running.tolist() == [1, 1, 2, 2, 0]
    assert history.waiting.tolist() == [0, 1, 0, 0, 0]
    assert history.kv_share.tolist() == pytest.approx([0.1, 0.1, 0.3, 0.32, 0.0])


def test_requests_are_conserved_and_the_mean_is_littles(outcome: ServingOutcome) -> None:
    history = history_of(outcome, 10**9, points=4001)
    assert (history.running >= 0).all()
    assert (history.waiting >= 0).all()
    assert history.running[-1] == history.waiting[-1] == 0
    assert float(np.mean(history.running + history.waiting)) == pytest.approx(outcome.mean_in_system, rel=0.02)


def test_the_cache_is_no_fuller_than_the_allocator_says(outcome: ServingOutcome) -> None:
    case = case_of(load_scenario("serve_qwen3_14b_910b3"))
    share = history_of(outcome, serving_capacity(case).kv_tokens).kv_share
    assert 0 < share.max() <= outcome.usage_peak
