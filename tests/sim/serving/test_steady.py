"""The steady state in closed form: Little's law, prefills that take turns with decodes, slots that run out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.serving.kv_cache import PagedCache
from scenarios.serving.requests import Load, Request
from scenarios.serving.scheduler import Limits
from sim.engines.costs import EngineCosts
from sim.serving.prices import FixedPrices
from sim.serving.serve import serve
from sim.serving.steady import Demand, Device, steady

MS = 1e6
SECOND = 1e9
#: Decode steps of 20 ms whatever they run, and 80 ms with a prompt in them, 60 more for each further one.
FLAT = Device(decode=lambda running: 20 * MS, mixed=lambda running, prompts: (20 + 60 * prompts) * MS)
#: Every request adds 0.2 ms.
SLOPED = Device(
    decode=lambda running: (20 + 0.2 * running) * MS, mixed=lambda running, prompts: (20 + 0.2 * running + 60) * MS
)
OPEN = Demand("open", 1 / SECOND, 0, 512, 101, slots=256, budget_tokens=8192)
BARE = EngineCosts()


def test_one_prefill_a_second_takes_its_time_from_the_decodes() -> None:
    state = steady(OPEN, FLAT, BARE)
    # A second holds one step of 80 ms and 920 / 20 = 46 of 20 ms.
    assert state.tpot_ns == pytest.approx(SECOND / 47)
    assert state.running == pytest.approx(100 / 47)
    assert not state.saturated


def test_littles_law_holds() -> None:
    for rate in (0.5, 2, 4):
        state = steady(replace(OPEN, rate=rate / SECOND), SLOPED, EngineCosts(per_step_ns=5_000_000, hidden_share=0.5))
        assert state.running == pytest.approx(state.rate * 100 * state.tpot_ns, rel=1e-4)


def test_a_host_that_is_slower_than_the_device_sets_the_pace_of_any_device() -> None:
    engine = EngineCosts(per_step_ns=40_000_000, hidden_share=1.0)
    fast = Device(decode=lambda running: 13 * MS, mixed=lambda running, prompts: 40 * MS)
    slow = Device(decode=lambda running: 26 * MS, mixed=lambda running, prompts: 40 * MS)
    assert steady(OPEN, fast, engine).tpot_ns == steady(OPEN, slow, engine).tpot_ns == pytest.approx(40 * MS)


def test_ttft_is_admission_waiting_and_the_prefill() -> None:
    engine = EngineCosts(per_step_ns=1, admission_ns=30_000_000, hidden_share=1.0)
    state = steady(replace(OPEN, rate=1e-3 / SECOND), FLAT, engine)
    # Half a step under way, the one that is already planned, then 80 ms.
    assert state.ttft_ns == pytest.approx((30 + 10 + 20 + 80) * MS, rel=1e-3)
    alone = steady(replace(OPEN, rate=1e-3 / SECOND), FLAT, replace(engine, hidden_share=0.0))
    assert alone.ttft_ns == pytest.approx((30 + 10 + 80) * MS, rel=1e-3)


def test_requests_at_equal_distances_meet_decode_steps_alone() -> None:
    """A prefill of 80 ms has ended when the next request comes, 250 ms later: it waits for half of 20 ms, not for half
    of a mean step that is longer."""
    busy = replace(OPEN, rate=4 / SECOND)
    assert steady(replace(busy, regular=True), FLAT, BARE).ttft_ns == pytest.approx((10 + 80) * MS, rel=1e-3)
    assert steady(busy, FLAT, BARE).ttft_ns > 95 * MS


def test_a_long_prompt_takes_a_step_for_each_chunk() -> None:
    state = steady(replace(OPEN, rate=1e-3 / SECOND, input_tokens=20_000), FLAT, BARE)
    assert state.ttft_ns == pytest.approx((10 + 3 * 80) * MS, rel=1e-3)


def test_slots_run_out() -> None:
    state = steady(replace(OPEN, rate=20 / SECOND, slots=4), FLAT, BARE)
    assert state.saturated
    assert state.running == 4
    # 4 requests need 100 decode steps each; a prefill stretches one of them by 60 ms.
    assert state.rate == pytest.approx(4 / (100 * 20 * MS + 4 * 60 * MS))


def test_closed_clients_are_all_in_flight() -> None:
    demand = replace(OPEN, arrival="closed", clients=8)
    state = steady(demand, SLOPED, BARE)
    assert state.rate * state.e2el_ns == pytest.approx(8, rel=1e-3)


def test_a_burst_prefills_first() -> None:
    demand = replace(OPEN, arrival="burst", clients=32, input_tokens=4096)
    state = steady(demand, FLAT, BARE)
    # Two prompts fill a step of 8,192 tokens: 16 steps of 140 ms.
    assert state.ttft_ns == pytest.approx((140 + 15 * 140 / 2) * MS)
    assert state.tpot_ns == pytest.approx((20 + 15 * 140 / 2 / 100) * MS)


def test_a_client_that_keeps_one_request_waits_for_no_other() -> None:
    engine = EngineCosts(admission_ns=30_000_000)
    state = steady(replace(OPEN, arrival="closed", clients=1), FLAT, engine)
    assert state.ttft_ns == pytest.approx((30 + 80) * MS)


def test_the_loop_admits_a_follower_as_late_as_the_first() -> None:
    requests = tuple(Request(n, 0, 128, 11) for n in range(3))
    prices, cache = FixedPrices(decode_ns=10_000_000, mixed_ns=50_000_000), PagedCache(1000, 128)
    outcome = serve(Load(requests, 1), Limits(16, 8192), cache, prices, EngineCosts(admission_ns=30_000_000))
    assert (outcome.first_ns - outcome.arrived_ns).tolist() == [80_000_000] * 3
    assert outcome.arrived_ns.tolist() == [0, 180_000_000, 360_000_000]


@pytest.mark.parametrize("rate", [1.0, 4.0, 9.0])
def test_decodes_stand_still_while_prompts_go_first(rate: float) -> None:
    """A second holds `rate` steps of 60 ms in which nothing decodes: TPOT = 20 / (1 - 0.06 x rate) ms, served too."""
    alone = Device(decode=lambda running: 20 * MS, mixed=lambda running, prompts: 60 * MS)
    demand = replace(OPEN, rate=rate / SECOND, prefill_first=True)
    tpot_ms = 20 / (1 - 0.06 * rate)
    assert steady(demand, alone, BARE).tpot_ns == pytest.approx(tpot_ms * MS)
    requests = tuple(Request(n, round(n * SECOND / rate), 512, 101) for n in range(400))
    limits = Limits(256, 8192, prefill_first=True)
    served = serve(Load(requests), limits, PagedCache(100_000, 128), FixedPrices(20_000_000, 60_000_000), BARE)
    settled = slice(100, 300)
    tpot = (served.last_ns - served.first_ns)[settled] / 100
    assert tpot.mean() == pytest.approx(tpot_ms * MS, rel=0.02)
    values, weights = served.steps.gaps_ns()
    assert (values * weights).sum() == pytest.approx((served.last_ns - served.first_ns).sum())
    assert weights.sum() == 100 * 400
