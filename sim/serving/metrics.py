"""What `vllm bench serve` would print of a load, and what limits it.

TTFT counts from arrival, queueing included. TPOT = (E2EL - TTFT) / (output tokens - 1), of requests with two or more.
ITL is per gap between two tokens of a request, or with speculation between two steps, each of which a client receives
in one piece; where the request loses its blocks in between, the gap goes on until its next token. Percentiles are
numpy's linear ones, over the requests past the warm-up and their gaps.
"""

from __future__ import annotations

import numpy as np

from scenarios.records import dataclass
from scenarios.traffic_settings import Slo
from sim.engines.costs import EngineCosts
from sim.serving.outcome import REASONS, Floats, Ints, ServingOutcome

#: Share of a run in which requests must wait for slots, blocks or tokens to call it saturated.
SATURATED_SHARE = 0.5
#: Share of the mean gap between tokens above which prefills or the engine are called the limit.
LIMIT_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class ServingMetrics:
    """duration_s: from the first arrival to the last token; with a warm-up from when the first request past it was let
    in (what it waited for was the warm-up's) to the last token of one past it. Throughputs are per second of it.

    request_goodput: requests a second that meet the SLO. saturated: requests wait for room most of the time, or their
    queue grows. limit: slots, kv, prefill (tokens of a step), engine or device.
    gap_*_ms: of the mean gap between two tokens, what the decode step takes on the device, what prefills in the same
    steps add, what the engine's host adds, and gaps in which a request lost its blocks. They sum to the mean ITL, or
    with speculation to it over the tokens of a step. faster_device_gain: by how much the mean gap would shrink if
    decode steps took half the time on the device.
    """

    completed: int
    duration_s: float
    request_throughput: float
    output_throughput: float
    total_token_throughput: float
    request_goodput: float
    saturated: bool
    limit: str
    ttft_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    e2el_ms: Spread
    queue_ms: Spread
    gap_device_ms: float
    gap_prefill_ms: float
    gap_engine_ms: float
    gap_preempted_ms: float
    faster_device_gain: float
    mean_running: float
    hidden_us: float


def metrics_of(outcome: ServingOutcome, engine: EngineCosts, slo: Slo | None = None) -> ServingMetrics:
    """Metrics of a served load."""
    kept = outcome.counted
    arrived, first, last = outcome.arrived_ns[kept], outcome.first_ns[kept], outcome.last_ns[kept]
    outputs = outcome.output_tokens[kept]
    ttft, e2el = (first - arrived) / 1e6, (last - arrived) / 1e6
    several = outputs > 1
    tpot = (e2el - ttft)[several] / (outputs[several] - 1)
    since = arrived if kept.all() else outcome.started_ns[kept]
    duration_s = float(last.max() - since.min()) / 1e9 if len(last) else 0.0
    per_second = 1 / duration_s if duration_s else 0.0
    device, prefill, added, preempted, gain = _gap(outcome, engine)
    shares = _blocked_shares(outcome)
    saturated = bool(shares.max(initial=0.0) > SATURATED_SHARE) or _grows(outcome)
    steps = outcome.steps
    busy = float(steps.total_ns.sum())
    return ServingMetrics(
        completed=len(outcome.ids),
        duration_s=duration_s,
        request_throughput=len(last) * per_second,
        output_throughput=float(outputs.sum()) * per_second,
        total_token_throughput=float(outputs.sum() + outcome.input_tokens[kept].sum()) * per_second,
        request_goodput=float(meets(slo, ttft, e2el, outputs).sum()) * per_second,
        saturated=saturated,
        limit=_limit(saturated, shares, device, prefill, added),
        ttft_ms=spread(ttft),
        tpot_ms=spread(tpot),
        itl_ms=_itl(outcome),
        e2el_ms=spread(e2el),
        queue_ms=spread(np.maximum(0, outcome.started_ns[kept] - arrived) / 1e6),
        gap_device_ms=device,
        gap_prefill_ms=prefill,
        gap_engine_ms=added,
        gap_preempted_ms=preempted,
        faster_device_gain=gain,
        mean_running=float((steps.total_ns * (steps.decoding + steps.stalled + steps.chunks)).sum()) / busy
        if busy
        else 0.0,
        hidden_us=_hidden_us(outcome, engine),
    )


def spread(values: Floats) -> Spread:
    """Mean and percentiles; all 0 of nothing."""
    if not len(values):
        return Spread(0.0, 0.0, 0.0, 0.0)
    return Spread(float(values.mean()), *(float(p) for p in np.percentile(values, (50, 90, 99))))


def meets(slo: Slo | None, ttft_ms: Floats, e2el_ms: Floats, outputs: Ints) -> np.ndarray:
    """Which requests meet all of the SLO; without one, all do."""
    good = np.ones(len(outputs), np.bool_)
    if slo is None:
        return good
    if slo.ttft_ms is not None:
        good &= ttft_ms <= slo.ttft_ms
    if slo.tpot_ms is not None:
        good &= e2el_ms - ttft_ms <= slo.tpot_ms * np.maximum(0, outputs - 1)
    if slo.e2el_ms is not None:
        good &= e2el_ms <= slo.e2el_ms
    return good


def weighted_percentiles(values: Floats, weights: Ints, percents: tuple[float, ...]) -> list[float]:
    """numpy's linear percentiles of `values`, each standing there `weights` times."""
    order = np.argsort(values, kind="stable")
    ordered, last = values[order], np.cumsum(weights[order])
    results = []
    for percent in percents:
        rank = (int(last[-1]) - 1) * percent / 100
        below = ordered[np.searchsorted(last, int(rank), side="right")]
        above = ordered[np.searchsorted(last, min(int(rank) + 1, int(last[-1]) - 1), side="right")]
        results.append(float(below + (above - below) * (rank - int(rank))))
    return results


def _itl(outcome: ServingOutcome) -> Spread:
    """Every step is a gap of each request that decodes in it, but for its first token."""
    lengths, gaps = outcome.steps.gaps_ns()
    kept = gaps > 0
    values: Floats = np.concatenate((lengths[kept], outcome.pauses_ns.astype(np.float64))) / 1e6
    weights = np.concatenate((gaps[kept], np.ones(len(outcome.pauses_ns), np.int64)))
    if not len(values):
        return Spread(0.0, 0.0, 0.0, 0.0)
    mean = float((values * weights).sum() / weights.sum())
    return Spread(mean, *weighted_percentiles(values, weights, (50, 90, 99)))


def _gap(outcome: ServingOutcome, engine: EngineCosts) -> tuple[float, float, float, float, float]:
    """(device, prefill, engine, preempted) ms of the mean gap between tokens, and how much of it a device twice as fast
    saves."""
    steps = outcome.steps
    grown = steps.more_ns * (steps.steps - 1) / 2  # of the mean step of a run over its first
    weights = (steps.steps * np.where(steps.decoding > 0, steps.gaps, 0)).astype(np.float64)
    total = float(weights.sum()) + len(outcome.pauses_ns)
    if not total:
        return 0.0, 0.0, 0.0, 0.0, 0.0
    mean = steps.first_ns + grown
    alone, device = steps.alone_ns + grown, steps.device_ns + grown
    host = np.array([engine.host_ns(1, 0) - engine.per_request_ns, engine.per_request_ns, engine.per_chunk_ns])
    host_ns = host[0] + host[1] * (steps.decoding + steps.chunks) + host[2] * steps.chunks
    hidden = engine.hidden_share * host_ns
    issue = np.where(steps.chunks > 0, engine.issue_mixed_ns, engine.issue_decode_ns)
    faster = np.minimum(mean, np.maximum(device - alone / 2, hidden + issue) + host_ns - hidden)

    def per_gap(ns: Floats) -> float:
        return float((weights * ns).sum()) / total / 1e6 / outcome.tokens_per_step

    preempted = float(outcome.pauses_ns.sum()) / total / 1e6 / outcome.tokens_per_step
    # Steps of prompts in which those that decode stand still are part of their gaps.
    stalled = steps.steps * np.where(steps.decoding > 0, 0, steps.gaps)
    stalls = [float((stalled * ns).sum()) / total / 1e6 / outcome.tokens_per_step for ns in (device, mean - device)]
    rest = preempted + sum(stalls)
    gap = per_gap(mean) + rest
    gain = 1 - (per_gap(faster) + rest) / gap if gap else 0.0
    return per_gap(alone), per_gap(device - alone) + stalls[0], per_gap(mean - device) + stalls[1], preempted, gain


def _hidden_us(outcome: ServingOutcome, engine: EngineCosts) -> float:
    """Host time of the engine that the device's steps hide, of a mean step."""
    steps = outcome.steps
    count = outcome.step_count
    if not count:
        return 0.0
    requests = steps.decoding + steps.chunks
    host = engine.per_step_ns + engine.per_request_ns * requests + engine.per_chunk_ns * steps.chunks
    device = steps.device_ns + steps.more_ns * (steps.steps - 1) / 2
    hidden = np.minimum(engine.hidden_share * host, device)
    return float((steps.steps * hidden).sum()) / count / 1000


def _blocked_shares(outcome: ServingOutcome) -> Floats:
    """Share of the busy time in which the first waiting request lacked slots, blocks or tokens (as in REASONS)."""
    steps = outcome.steps
    total = float(steps.total_ns.sum()) or 1.0
    return np.array([float(steps.total_ns[steps.blocked == n].sum()) / total for n in range(1, len(REASONS))])


def _grows(outcome: ServingOutcome) -> bool:
    """Whether requests that come later wait ever longer: the last fifth a second more than the first, and at least as
    long as it is then served."""
    order = np.argsort(outcome.arrived_ns, kind="stable")
    fifth = len(order) // 5
    if not fifth or outcome.arrived_ns[order[0]] == outcome.arrived_ns[order[-1]]:
        return False
    queue = (outcome.started_ns - outcome.arrived_ns)[order] / 1e9
    served = (outcome.last_ns - outcome.started_ns)[order] / 1e9
    early, late = float(queue[:fifth].mean()), float(queue[-fifth:].mean())
    return late > early + 1.0 and late > float(served[-fifth:].mean())


def _limit(saturated: bool, shares: Floats, device: float, prefill: float, added: float) -> str:
    """What a better deployment would have more of."""
    if saturated and shares.max(initial=0.0) > 0:
        return REASONS[1 + int(shares.argmax())]
    gap = device + prefill + added
    if added > LIMIT_SHARE * gap:
        return "engine"
    return "prefill" if prefill > LIMIT_SHARE * gap else "device"
