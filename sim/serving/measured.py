"""A load that a device has served, in the words of the prediction: the same keys, and how far the two are apart."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from scenarios.exchange.served import ServedRun
from scenarios.traffic_settings import Slo
from sim.engines.costs import EngineCosts
from sim.serving.metrics import Spread, metrics_of, spread
from sim.serving.outcome import REASONS, Floats, Ints, ServingOutcome, Steps
from sim.serving.result import RATES, SPREADS, counts_and_rates, evidence, gap_parts, kv_use

#: Half the width of a normal distribution's central 90 %.
CENTRAL_90 = 1.645
#: The figures of each latency.
FIGURES = ("mean", "p50", "p90", "p99")


def measured_outcome(run: ServedRun) -> ServingOutcome:
    """The run as if it had been simulated. What the decodes of a step with prefills take alone is not measured: it is
    taken from steps of as many decodes without one."""
    requests, steps = run.requests, run.steps
    decoding, device = _ints(s.decoding for s in steps), _floats(s.device_ns for s in steps)
    chunks, stalled = _ints(s.chunks for s in steps), _ints(s.stalled for s in steps)
    return ServingOutcome(
        ids=_ints(r.id for r in requests),
        arrived_ns=_ints(r.arrived_ns for r in requests),
        started_ns=_ints(r.started_ns for r in requests),
        first_ns=_ints(r.first_ns for r in requests),
        last_ns=_ints(r.last_ns for r in requests),
        input_tokens=_ints(r.input_tokens for r in requests),
        output_tokens=_ints(len(r.output) for r in requests),
        counted=np.array([r.counted for r in requests], np.bool_),
        rejected=run.rejected,
        preemptions=run.preemptions,
        usage_peak=run.usage_peak,
        hit_tokens=run.hit_tokens,
        asked_tokens=run.asked_tokens,
        steps=Steps(
            start_ns=_floats(s.start_ns for s in steps),
            decoding=decoding,
            steps=np.ones(len(steps), np.int64),
            first_ns=_floats(s.end_ns - s.start_ns for s in steps),
            more_ns=np.zeros(len(steps)),
            chunks=chunks,
            alone_ns=np.where(chunks > 0, np.minimum(device, _alone(decoding, device, chunks)), device),
            device_ns=device,
            blocked=_ints(REASONS.index(s.blocked) for s in steps),
            stalled=stalled,
            gaps=np.where(decoding > 0, decoding, stalled),
            instance=np.zeros(len(steps), np.int64),
        ),
    )


def _alone(decoding: Ints, device: Floats, chunks: Ints) -> Floats:
    """Median device time of decode steps by their requests, between those that there were; 0 for none that decode."""
    plain = chunks == 0
    known = np.unique(decoding[plain])
    if not len(known):
        return np.zeros(len(device))
    medians = [float(np.median(device[plain & (decoding == count)])) for count in known]
    return np.where(decoding > 0, np.interp(decoding, known, medians), 0.0)


def measured_block(run: ServedRun, slo: Slo | None) -> dict[str, Any]:
    """The `serving` block of a device's run, keys and units as the prediction's. low and high: central 90 % of a mean,
    requests (of ITL, gaps) taken as independent."""
    outcome = measured_outcome(run)
    host_ns = _host_ns(outcome)
    metrics = metrics_of(outcome, EngineCosts(per_step_ns=round(host_ns)), slo)
    gaps = _floats(gap for r in run.requests if r.counted for gap in np.diff(r.token_ns)) / 1e6
    metrics = replace(metrics, itl_ms=spread(gaps))
    several = outcome.output_tokens[outcome.counted] > 1
    counts = dict.fromkeys(SPREADS, int(outcome.counted.sum())) | {"tpot_ms": int(several.sum()), "itl_ms": len(gaps)}
    deviations = _deviations(outcome, gaps)
    return {
        **counts_and_rates(outcome, metrics),
        **{name: _with_ends(getattr(metrics, name), deviations[name], counts[name]) for name in SPREADS},
        "kv": kv_use(outcome),
        "steps": outcome.step_count,
        "mean_running": metrics.mean_running,
        "engine": {"profile": "measured", "source": "measured", "host_us": host_ns / 1000, "hidden_us": 0.0},
        "gap": gap_parts(metrics),
        "evidence": evidence(metrics),
        **{key: run.about[key] for key in ("clock", "scaled_by", "on_cpu_share", "kv_cache_bytes")},
    }


def serving_errors(predicted: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """predicted / measured - 1 of the rates and of each latency's figures; None where nothing was measured."""

    def error(a: float, b: float) -> float | None:
        return a / b - 1 if b else None

    return {
        **{name: error(predicted[name], measured[name]) for name in RATES},
        **{
            name: {figure: error(predicted[name][figure], measured[name][figure]) for figure in FIGURES}
            for name in SPREADS
        },
    }


def _host_ns(outcome: ServingOutcome) -> float:
    """What a mean step takes next to the device: all of it is the host's."""
    steps = outcome.steps
    return float((steps.first_ns - steps.device_ns).mean()) if len(steps.first_ns) else 0.0


def _deviations(outcome: ServingOutcome, gaps: Floats) -> dict[str, float]:
    """Standard deviations of the counted requests' latencies, and of the gaps, ms."""
    kept = outcome.counted
    arrived, first, last = outcome.arrived_ns[kept], outcome.first_ns[kept], outcome.last_ns[kept]
    outputs = outcome.output_tokens[kept]
    values = {
        "ttft_ms": first - arrived,
        "tpot_ms": (last - first)[outputs > 1] / (outputs[outputs > 1] - 1),
        "e2el_ms": last - arrived,
        "queue_ms": outcome.started_ns[kept] - arrived,
        "itl_ms": gaps * 1e6,
    }
    return {name: float(ns.std()) / 1e6 if len(ns) else 0.0 for name, ns in values.items()}


def _with_ends(figures: Spread, deviation_ms: float, count: int) -> dict[str, float]:
    half = CENTRAL_90 * deviation_ms / np.sqrt(count) if count else 0.0
    return {**asdict(figures), "low": max(0.0, figures.mean - half), "high": figures.mean + half}


def _ints(values: Any) -> Ints:
    return np.array(list(values), np.int64)


def _floats(values: Any) -> Floats:
    return np.array(list(values), np.float64)
