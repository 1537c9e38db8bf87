"""The loop against queueing theory, against itself one step at a time, and against what must be conserved."""

from __future__ import annotations

import heapq
from dataclasses import replace
from math import factorial

import numpy as np
import pytest

from scenarios.serving.counting import CountingScheduler
from scenarios.serving.drafts import Drafts
from scenarios.serving.kv_cache import ContiguousCache, PagedCache
from scenarios.serving.requests import Load, Request
from scenarios.serving.scheduler import Limits, Scheduler
from scenarios.speculation_settings import SpeculativeConfig
from sim.engines.costs import EngineCosts
from sim.serving import loop
from sim.serving.loop import steps_until
from sim.serving.outcome import ServingOutcome
from sim.serving.prices import TICKS_PER_NS, FixedPrices, Piece
from sim.serving.serve import serve

FREE = EngineCosts()


class Growing:
    """Decode steps of 1000 ns and 3 for every token in the cache; steps with prefills of 50 ns a token more."""

    def decode(self, requests: int, context_tokens: int) -> Piece:
        start = context_tokens // 256 * 256
        return Piece(1000 * TICKS_PER_NS, 3 * TICKS_PER_NS, start, start + 256)

    def mixed(self, requests: int, context_tokens: int, tokens: int, pairs: int) -> int:
        return (1000 + 3 * context_tokens + 50 * tokens + pairs) * TICKS_PER_NS


def some_load(number: int, seed: int, gap_ns: int, concurrency: int | None = None) -> Load:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(gap_ns, number)).astype(int)
    lengths = rng.integers(1, 60, (2, number))
    rows = zip(times.tolist(), *lengths.tolist(), strict=True)
    return Load(tuple(Request(n, *row) for n, row in enumerate(rows)), concurrency)


def exponential(number: int, mean: float, seed: int) -> np.ndarray:
    """Draws whose sorted values are the quantiles of the distribution: only their order is random."""
    quantiles = -mean * np.log1p(-(np.arange(number) + 0.5) / number)
    return np.random.default_rng(seed).permutation(quantiles)


@pytest.mark.slow
def test_one_slot_and_equal_prefills_are_a_queue_m_d_1() -> None:
    """Pollaczek and Khinchine: mean wait = load x service / (2 (1 - load))."""
    service, load, number = 1_000_000, 0.3, 60_000
    times = np.cumsum(exponential(number, service / load, 1))
    requests = tuple(Request(n, int(at), 10, 1) for n, at in enumerate(times))
    outcome = serve(Load(requests), Limits(1, 100), PagedCache(1, 16), FixedPrices(1, service), FREE)
    expected = service * (1 + load / (2 * (1 - load)))
    assert (outcome.first_ns - outcome.arrived_ns).mean() == pytest.approx(expected, rel=1e-3)


def queue_of(slots: int, load: float, number: int, service_ns: int) -> tuple[np.ndarray, np.ndarray, ServingOutcome]:
    """(arrivals, service times, outcome) of exponential gaps and lengths; a decode step takes 1000 ns."""
    outputs = np.maximum(2, np.rint(exponential(number, service_ns / 1000, 2))).astype(int)
    times = np.cumsum(exponential(number, service_ns / (slots * load), 3)).astype(int)
    rows = zip(times.tolist(), outputs.tolist(), strict=True)
    requests = tuple(Request(n, at, 1, output) for n, (at, output) in enumerate(rows))
    outcome = serve(Load(requests), Limits(slots, 100), ContiguousCache(slots, 1 << 30), FixedPrices(1000, 1), FREE)
    return times, 1000 * (outputs - 1), outcome


@pytest.mark.parametrize(
    ("number", "tolerance"),
    [
        pytest.param(60_000, 3e-3, marks=pytest.mark.slow),
        # The mean of so few draws is itself known to a thousandth or so; of these it is known to a third of that.
        pytest.param(500_000, 1e-3, marks=pytest.mark.study),
    ],
)
def test_several_slots_and_exponential_lengths_are_a_queue_m_m_c(number: int, tolerance: float) -> None:
    """Erlang C: mean wait = P(all busy) x service / (slots (1 - load))."""
    slots, load, service = 4, 0.3, 50_000_000
    _, _, outcome = queue_of(slots, load, number, service)
    offered = slots * load
    full = offered**slots / factorial(slots) / (1 - load)
    all_busy = full / (sum(offered**k / factorial(k) for k in range(slots)) + full)
    expected = service * (1 + all_busy / (slots * (1 - load)))
    assert (outcome.last_ns - outcome.arrived_ns).mean() == pytest.approx(expected, rel=tolerance)


def test_each_request_of_a_busy_queue_ends_when_the_first_free_slot_has_served_it() -> None:
    """Kiefer and Wolfowitz: a request takes the slot that is free first. A step is a 20,000th of the mean service."""
    times, services, outcome = queue_of(4, 0.85, 3000, 20_000_000)
    free = [0] * 4
    ends = []
    for at, service in zip(times.tolist(), services.tolist(), strict=True):
        ends.append(max(at, heapq.heappop(free)) + service)
        heapq.heappush(free, ends[-1])
    assert outcome.last_ns == pytest.approx(np.array(ends), abs=1000 * 1000)
    assert (outcome.last_ns - outcome.arrived_ns).mean() == pytest.approx(np.mean(ends - times), rel=1e-3)


def served(load: Load, blocks: int = 40, **limits: bool) -> ServingOutcome:
    engine = EngineCosts(per_step_ns=700, per_request_ns=30, per_chunk_ns=11, hidden_share=0.5, admission_ns=90)
    return serve(load, Limits(8, 64, **limits), PagedCache(blocks, 16), Growing(), engine, 100, 1000)


def test_littles_law_holds_between_the_steps_and_the_requests() -> None:
    """Requests that decode, summed over the steps' time, are what the requests spent between their first and last
    token."""
    outcome = served(some_load(400, 1, 9000))
    in_steps = float((outcome.steps.total_ns * outcome.steps.decoding).sum())
    assert outcome.preemptions == 0
    assert in_steps == pytest.approx(float((outcome.last_ns - outcome.first_ns).sum()), rel=1e-6)
    span = outcome.last_ns.max() - outcome.arrived_ns.min()
    rate = len(outcome.ids) / span
    assert outcome.mean_in_system == pytest.approx(rate * (outcome.last_ns - outcome.arrived_ns).mean(), rel=1e-6)


@pytest.mark.parametrize("limits", [{}, {"swap": True}, {"by_priority": True}])
def test_requests_and_tokens_are_conserved_whatever_is_preempted(limits: dict[str, bool]) -> None:
    load = some_load(300, 2, 4000)
    outcome = served(load, blocks=9, **limits)
    assert outcome.preemptions > 0
    assert outcome.ids.tolist() == [r.id for r in load.requests if r.input_tokens + r.output_tokens <= 100]
    assert outcome.rejected == len(load.requests) - len(outcome.ids)
    # Each output token but the first of a prefill is one decode of one step; a recomputed prompt yields one more.
    decoded = int((outcome.steps.steps * outcome.steps.decoding).sum())
    left = int(outcome.output_tokens.sum()) - len(outcome.ids) - decoded
    assert left == 0 if limits.get("swap") else 0 <= left <= outcome.preemptions


def test_nothing_happens_before_its_cause_and_the_clock_never_runs_back() -> None:
    outcome = served(some_load(300, 3, 4000), blocks=9)
    assert (outcome.started_ns >= outcome.arrived_ns + 90).all()
    assert (outcome.first_ns > outcome.started_ns).all()
    assert ((outcome.last_ns > outcome.first_ns) == (outcome.output_tokens > 1)).all()
    starts, ends = outcome.steps.start_ns, outcome.steps.start_ns + outcome.steps.total_ns
    assert (starts[1:] >= ends[:-1] - 1e-3).all()


@pytest.mark.parametrize(("blocks", "concurrency"), [(40, None), (9, None), (40, 5)])
def test_many_steps_at_once_are_the_same_to_the_nanosecond(
    monkeypatch: pytest.MonkeyPatch, blocks: int, concurrency: int | None
) -> None:
    load = some_load(200, 4, 5000, concurrency)
    at_once = served(load, blocks)
    monkeypatch.setattr(CountingScheduler, "counts", lambda self, requests: None)
    monkeypatch.setattr(Scheduler, "steady", lambda self: 1)
    one_by_one = served(load, blocks)
    assert len(at_once.steps.steps) < len(one_by_one.steps.steps)
    for name in ("ids", "arrived_ns", "started_ns", "first_ns", "last_ns"):
        assert getattr(at_once, name).tolist() == getattr(one_by_one, name).tolist()
    assert at_once.steps.each_ns()[0].sum() == pytest.approx(one_by_one.steps.each_ns()[0].sum(), rel=1e-12)


def test_the_same_load_gives_the_same_outcome() -> None:
    a, b = (served(some_load(100, 5, 5000)) for _ in range(2))
    assert a.last_ns.tolist() == b.last_ns.tolist()


def test_a_client_keeps_its_concurrency_and_no_more() -> None:
    load = Load(tuple(Request(n, 0, 4, 10) for n in range(50)), concurrency=3)
    outcome = served(load)
    points = sorted([(at, 1) for at in outcome.arrived_ns.tolist()] + [(at, -1) for at in outcome.last_ns.tolist()])
    assert max(np.cumsum([change for _, change in points])) == 3
    assert (outcome.arrived_ns[3:] > 0).all()


def test_a_turn_comes_after_the_one_before_and_the_time_to_think() -> None:
    turns = (Request(0, 0, 4, 5, 0), Request(1, 0, 13, 5, 0, after=0, think_ns=1_000_000))
    outcome = served(Load(turns))
    assert outcome.arrived_ns.tolist() == [0, outcome.last_ns[0] + 1_000_000]


@pytest.mark.parametrize(
    ("hidden_share", "per_step", "expected"),
    [(0.0, 300, 1300), (1.0, 300, 1000), (1.0, 1500, 1500), (0.5, 300, 1150), (0.5, 3000, 3000)],
)
def test_the_engine_adds_what_the_device_does_not_hide(hidden_share: float, per_step: int, expected: int) -> None:
    engine = EngineCosts(per_step_ns=per_step, hidden_share=hidden_share)
    load = Load((Request(0, 0, 8, 11),))
    outcome = serve(load, Limits(1, 100), PagedCache(4, 16), FixedPrices(1000, 1000), engine)
    assert (outcome.last_ns - outcome.first_ns).tolist() == [10 * expected]


@pytest.mark.parametrize(("hidden_share", "started"), [(0.0, 11_000), (0.4, 11_000), (0.5, 12_000), (1.0, 12_000)])
def test_an_engine_that_plans_ahead_lets_a_newcomer_wait_one_step_more(hidden_share: float, started: int) -> None:
    """Steps of 1000 ns; the second request comes in the middle of the eleventh, when the twelfth is decided on. Who
    finds an idle engine does not wait."""
    load = Load((Request(0, 0, 8, 50), Request(1, 10_500, 8, 5), Request(2, 90_500, 8, 5)))
    outcome = serve(
        load, Limits(4, 100), PagedCache(20, 16), FixedPrices(1000, 1000), EngineCosts(hidden_share=hidden_share)
    )
    assert outcome.started_ns.tolist() == [0, started, 90_500]
    assert outcome.first_ns.tolist() == [1000, started + 1000, 91_500]


@pytest.mark.parametrize(("length", "more"), [(7, 0), (7, 3), (1000, -1), (1 << 50, 1 << 21)])
def test_steps_until_is_the_first_that_is_late_enough(length: int, more: int) -> None:
    def lasts(steps: int) -> int:
        return steps * length + more * (steps * (steps - 1) // 2)

    for ticks in (1, length, length + 1, lasts(5), lasts(5) + 1, lasts(17) - 1):
        steps = steps_until(ticks, length, more)
        assert lasts(steps) >= ticks
        assert steps == 1 or lasts(steps - 1) < ticks


def test_a_loop_that_can_do_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.Scheduler, "takes", lambda self, request: True)
    with pytest.raises(RuntimeError, match="1 requests wait for KV blocks"):
        serve(Load((Request(0, 0, 100, 1),)), Limits(1, 200), PagedCache(2, 16), Growing(), replace(FREE))


@pytest.mark.parametrize("chance", [0.0, 0.7, 1.0])
def test_drafts_shorten_answers_and_conserve_their_tokens(chance: float) -> None:
    config = SpeculativeConfig(method="ngram", num_speculative_tokens=3, acceptance=chance)
    requests = tuple(Request(n, 50_000 * n, 40, 401) for n in range(40))
    cache = PagedCache(400, 16)
    outcome = serve(Load(requests), Limits(16, 256), cache, FixedPrices(1000, 5000), FREE, drafts=Drafts(config, 0))
    assert outcome.output_tokens.tolist() == [401] * 40
    assert cache.free_blocks == cache.blocks
    steps = (outcome.last_ns - outcome.first_ns) / 1000
    # Some steps hold a prefill and take five times as long.
    assert steps.mean() / 400 == pytest.approx(1 / config.tokens_per_step, rel=0.2)
    assert outcome.tokens_per_step == config.tokens_per_step


def test_drafts_that_are_never_accepted_serve_as_none_do_where_steps_cost_the_same() -> None:
    load, limits = some_load(200, 3, 20_000), Limits(8, 64)
    config = SpeculativeConfig(method="ngram", num_speculative_tokens=1, acceptance=0.0)
    plain = serve(load, limits, PagedCache(10_000, 16), FixedPrices(1000, 5000), FREE)
    drafted = serve(load, limits, PagedCache(10_000, 16), FixedPrices(1000, 5000), FREE, drafts=Drafts(config, 0))
    assert drafted.output_tokens.tolist() == plain.output_tokens.tolist()
    assert abs(drafted.last_ns - plain.last_ns).max() <= 60_000  # a drafted token takes room in the budget of prefills


def test_drafts_in_a_cache_that_is_too_small_lose_no_block() -> None:
    config = SpeculativeConfig(method="ngram", num_speculative_tokens=3, acceptance=0.6)
    requests = tuple(Request(n, 0, 64, 300) for n in range(12))
    cache = PagedCache(80, 16)
    outcome = serve(Load(requests), Limits(12, 256), cache, FixedPrices(1000, 5000), FREE, drafts=Drafts(config, 1))
    assert outcome.preemptions > 0
    assert len(outcome.ids) == 12
    assert cache.free_blocks == 80


class Uneven:
    """Steps that end between two nanoseconds."""

    def decode(self, requests: int, context_tokens: int) -> Piece:
        return Piece(1000 * TICKS_PER_NS + 7, 0, 0, 1 << 60)

    def mixed(self, requests: int, context_tokens: int, tokens: int, pairs: int) -> int:
        return 1000 * TICKS_PER_NS + 7


def test_what_a_client_sends_when_another_request_ends_is_in_the_next_step() -> None:
    load = Load(tuple(Request(n, 0, 4, 5 + n % 3) for n in range(9)), 3)
    outcome = serve(load, Limits(8, 100), PagedCache(64, 16), Uneven(), FREE)
    assert ((outcome.first_ns - outcome.arrived_ns) <= 1002).all()  # one step, not the rest of one and then another
