"""A served load in the form of `vllm bench serve --save-result --save-detailed`: what load tests are read from.

The counted requests alone, as vLLM leaves its warm-up out. Means are of requests (TTFT, TPOT, E2EL) or of gaps (ITL),
in ms; lists in seconds. `request_rate` of a trace is its mean rate. Read back by `scenarios.exchange.load_tests`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scenarios.exchange.served import ServedRequest, ServedRun
from scenarios.settings import Settings

#: Percentiles of vLLM bench.
PERCENTILES = (50, 90, 99)


def bench_result(run: ServedRun, scenario: Settings) -> dict[str, Any]:
    """The document. Raises ValueError where no counted request has been completed."""
    requests = [request for request in run.requests if request.counted]
    if not requests:
        raise ValueError("no request past the warm-up was completed")
    duration_s = (max(r.last_ns for r in requests) - min(r.arrived_ns for r in requests)) / 1e9
    inputs, outputs = [r.input_tokens for r in requests], [len(r.output) for r in requests]
    gaps = [np.diff(r.token_ns) for r in requests]
    ttft, e2el = (_ms([getattr(r, name) - r.arrived_ns for r in requests]) for name in ("first_ns", "last_ns"))
    several = np.array(outputs) > 1
    tpot = (e2el - ttft)[several] / (np.array(outputs)[several] - 1)
    return {
        "endpoint_type": "whatif",
        "backend": str(run.about["backend"]),
        "label": f"{run.about['device']}, torch {run.about['torch']}, {run.about['clock']} clock",
        "model_id": scenario.model,
        "tokenizer_id": scenario.model,
        "num_prompts": len(requests),
        **_sent(scenario, requests),
        "duration": duration_s,
        "completed": len(requests),
        "failed": run.rejected,
        "total_input_tokens": sum(inputs),
        "total_output_tokens": sum(outputs),
        "request_throughput": len(requests) / duration_s,
        "output_throughput": sum(outputs) / duration_s,
        "total_token_throughput": (sum(inputs) + sum(outputs)) / duration_s,
        "input_lens": inputs,
        "output_lens": outputs,
        "ttfts": [float(ms) / 1000 for ms in ttft],
        "itls": [(ns / 1e9).tolist() for ns in gaps],
        **_latency("ttft", ttft),
        **_latency("tpot", tpot),
        **_latency("itl", _ms(np.concatenate(gaps))),
        **_latency("e2el", e2el),
    }


def _sent(scenario: Settings, requests: Sequence[ServedRequest]) -> dict[str, Any]:
    """How the requests were sent: a rate, or as many as may be in flight."""
    traffic = scenario.workload.traffic
    rate, burstiness = (traffic.rate, traffic.burstiness) if traffic else (None, 1.0)
    if traffic and traffic.arrival == "trace":
        span_s = (max(r.arrived_ns for r in requests) - min(r.arrived_ns for r in requests)) / 1e9
        rate = (len(requests) - 1) / span_s if span_s else None
    return {
        "request_rate": rate or "inf",
        "burstiness": burstiness,
        "max_concurrency": traffic.concurrency if traffic else None,
    }


def _ms(ns: Any) -> Any:
    return np.asarray(ns, np.float64) / 1e6


def _latency(name: str, values: Any) -> dict[str, float]:
    """Mean, median, standard deviation and percentiles, ms; 0 of nothing, as vLLM bench has it."""
    if not len(values):
        return {f"{kind}_{name}_ms": 0.0 for kind in ("mean", "median", "std", *(f"p{p}" for p in PERCENTILES))}
    return {
        f"mean_{name}_ms": float(values.mean()),
        f"median_{name}_ms": float(np.median(values)),
        f"std_{name}_ms": float(values.std()),
        **{f"p{p}_{name}_ms": float(np.percentile(values, p)) for p in PERCENTILES},
    }
