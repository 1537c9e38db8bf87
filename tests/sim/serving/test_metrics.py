"""Percentiles, goodput and what limits: against plain numpy, and on loads whose limit is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scenarios.serving.kv_cache import PagedCache
from scenarios.serving.requests import Load, Request
from scenarios.serving.scheduler import Limits
from scenarios.traffic_settings import Slo
from sim.engines.costs import EngineCosts
from sim.serving.metrics import ServingMetrics, meets, metrics_of, weighted_percentiles
from sim.serving.prices import FixedPrices
from sim.serving.serve import serve

MS = 1_000_000


def run(
    load: Load, slots: int = 8, blocks: int = 100, decode: int = MS, mixed: int = MS, **engine: float
) -> ServingMetrics:
    costs = EngineCosts(**engine)  # type: ignore[arg-type]
    outcome = serve(load, Limits(slots, 64), PagedCache(blocks, 16), FixedPrices(decode, mixed), costs)
    return metrics_of(outcome, costs, Slo(ttft_ms=5))


def test_weighted_percentiles_are_numpys() -> None:
    rng = np.random.default_rng(3)
    values, weights = rng.random(40), rng.integers(1, 9, 40)
    percents = (0.0, 12.5, 50.0, 90.0, 99.0, 100.0)
    expected = np.percentile(np.repeat(values, weights), percents)
    assert weighted_percentiles(values, weights, percents) == pytest.approx(expected.tolist())


def test_latencies_of_one_request_follow_from_its_steps() -> None:
    metrics = run(Load((Request(0, 0, 8, 11),)), decode=2 * MS, mixed=5 * MS)
    assert (metrics.ttft_ms.mean, metrics.tpot_ms.mean, metrics.e2el_ms.mean) == pytest.approx((5, 2, 25))
    assert (metrics.itl_ms.p50, metrics.queue_ms.mean) == pytest.approx((2, 0))
    assert metrics.output_throughput == pytest.approx(11 / 0.025)


def test_goodput_counts_requests_that_meet_all_of_the_slo() -> None:
    ttft, e2el, outputs = np.array([1.0, 9.0, 1.0]), np.array([11.0, 19.0, 41.0]), np.array([11, 11, 11])
    assert meets(None, ttft, e2el, outputs).tolist() == [True, True, True]
    assert meets(Slo(ttft_ms=5), ttft, e2el, outputs).tolist() == [True, False, True]
    assert meets(Slo(ttft_ms=5, tpot_ms=2), ttft, e2el, outputs).tolist() == [True, False, False]
    assert meets(Slo(e2el_ms=11), ttft, e2el, outputs).tolist() == [True, False, False]


def test_requests_of_the_warm_up_do_not_count() -> None:
    requests = tuple(Request(n, n * 100 * MS, 8, 11) for n in range(10))
    metrics = run(Load(requests, warmup=4))
    assert metrics.request_throughput * metrics.duration_s == pytest.approx(6)


@pytest.mark.parametrize("concurrency", [None, 40])
def test_a_warm_up_that_others_wait_for_takes_nothing_from_the_throughput(concurrency: int | None) -> None:
    # All are there at once, four run at a time: 4 tokens a millisecond, but for steps with prompts and the ends.
    load = Load(tuple(Request(n, 0, 8, 33) for n in range(400)), concurrency)
    rates = [run(replace(load, warmup=warmup), slots=4).output_throughput for warmup in (0, 100, 200, 300)]
    assert rates == pytest.approx([rates[0]] * 4, rel=0.02)
    assert rates[0] == pytest.approx(4000, rel=0.03)


@pytest.mark.parametrize(
    ("gap_ms", "slots", "blocks", "mixed_ms", "per_step_ms", "saturated", "limit"),
    [
        (1, 2, 1000, 1, 0, True, "slots"),
        (1, 200, 8, 1, 0, True, "kv"),
        (1, 200, 1000, 30, 0, True, "prefill"),
        (40, 200, 1000, 1, 0, False, "device"),
        (40, 200, 1000, 1, 2, False, "engine"),
    ],
)
def test_the_limit_has_a_name(
    gap_ms: int, slots: int, blocks: int, mixed_ms: int, per_step_ms: int, saturated: bool, limit: str
) -> None:
    requests = tuple(Request(n, n * gap_ms * MS, 30, 33) for n in range(200))
    metrics = run(Load(requests), slots, blocks, mixed=mixed_ms * MS, per_step_ns=per_step_ms * MS)
    assert (metrics.saturated, metrics.limit) == (saturated, limit)


def test_the_parts_of_a_gap_are_the_whole_gap() -> None:
    requests = tuple(Request(n, n * 7 * MS, 30, 33) for n in range(100))
    metrics = run(Load(requests), mixed=3 * MS, per_step_ns=MS // 2, hidden_share=0.25)
    parts = metrics.gap_device_ms + metrics.gap_prefill_ms + metrics.gap_engine_ms
    assert parts == pytest.approx(metrics.itl_ms.mean)
    assert 0 < metrics.faster_device_gain < 0.5


def test_a_faster_device_gains_nothing_where_the_engine_is_the_longer() -> None:
    requests = tuple(Request(n, n * 50 * MS, 8, 33) for n in range(30))
    metrics = run(Load(requests), decode=MS // 2, per_step_ns=2 * MS, hidden_share=1.0)
    assert (metrics.limit, metrics.faster_device_gain) == ("engine", pytest.approx(0))


@pytest.mark.parametrize("blocks", [400, 14])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("swap", "warmup"), [(False, 0), (True, 0), (False, 25)])
def test_gaps_are_those_of_the_requests_that_count(blocks: int, first: bool, swap: bool, warmup: int) -> None:
    # Whatever is preempted, N tokens have N - 1 gaps, and these last from the first token to the last.
    rng = np.random.default_rng(1)
    rows = zip(np.cumsum(rng.integers(0, 6 * MS, 90)).tolist(), rng.integers(1, 60, (90, 2)).tolist(), strict=True)
    load = Load(tuple(Request(n, at, *lengths) for n, (at, lengths) in enumerate(rows)), warmup=warmup)
    costs = EngineCosts(per_step_ns=MS // 2, hidden_share=0.25)
    outcome = serve(
        load,
        Limits(8, 64, swap=swap, prefill_first=first),
        PagedCache(blocks, 16),
        FixedPrices(MS, 3 * MS),
        costs,
        kv_bytes_per_token=1000,
    )
    metrics, kept = metrics_of(outcome, costs), outcome.counted
    gaps = int((outcome.output_tokens[kept] - 1).sum())
    counts = outcome.steps.gaps_ns()[1]
    assert counts.min() >= 0
    assert int(counts.sum()) + len(outcome.pauses_ns) == gaps
    assert metrics.itl_ms.mean == pytest.approx((outcome.last_ns - outcome.first_ns)[kept].sum() / 1e6 / gaps, rel=1e-6)
    parts = metrics.gap_device_ms + metrics.gap_prefill_ms + metrics.gap_engine_ms + metrics.gap_preempted_ms
    assert parts == pytest.approx(metrics.itl_ms.mean)
    assert (outcome.preemptions > 0) == (metrics.gap_preempted_ms > 0) == (blocks == 14)


def test_a_request_that_loses_its_blocks_has_one_long_gap() -> None:
    # Two blocks: request 1 loses its own when request 0's is full, and is computed again when that one has ended.
    load = Load((Request(0, 0, 16, 3), Request(1, 0, 16, 3)))
    outcome = serve(load, Limits(4, 100), PagedCache(2, 16), FixedPrices(MS, 5 * MS), EngineCosts())
    metrics = metrics_of(outcome, EngineCosts())
    # Tokens of request 0 at 5, 6 and 7 ms; of request 1 at 5, 12 (a prefill of 17 tokens) and 13 ms.
    assert outcome.last_ns.tolist() == [7 * MS, 13 * MS]
    assert outcome.pauses_ns.tolist() == [7 * MS]
    assert (metrics.itl_ms.mean, metrics.itl_ms.p50) == pytest.approx((2.5, 1.0))
    assert metrics.itl_ms.p99 == pytest.approx(np.percentile([1, 1, 1, 7], 99))
    assert metrics.gap_preempted_ms == pytest.approx(7 / 4)
