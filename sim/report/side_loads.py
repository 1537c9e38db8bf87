"""The loads of a side that is compared: of a load test's file, or of a `run` document that served requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from scenarios.exchange.load_tests import LoadTest
from sim.compare.load_share import Load


def loads_of_tests(tests: Sequence[LoadTest]) -> tuple[tuple[Load, ...], tuple[str, ...]]:
    """The load tests that have both TTFT and TPOT, and a note of those that do not."""
    whole = [load for load in map(_load, tests) if load is not None]
    left = len(tests) - len(whole)
    notes = (f"{left} of {len(tests)} load tests lack TTFT or TPOT and are left out",) if left else ()
    return tuple(whole), notes


def _load(test: LoadTest) -> Load | None:
    if not test.ttft_ms or not test.tpot_ms:
        return None
    e2el_s = (test.ttft_ms + (test.output_tokens - 1) * test.tpot_ms) / 1000
    in_flight = float(test.concurrency or 0)
    if not in_flight:  # Little's law; a burst is all at once
        answered = (test.output_throughput or 0.0) / test.output_tokens
        in_flight = float(test.requests) if test.arrival == "burst" else (answered or test.rate or 0.0) * e2el_s
    return Load(
        label=_label(test.rate, in_flight),
        arrival=_kind(test.arrival),
        rate=test.rate,
        in_flight=in_flight,
        input_tokens=float(test.input_tokens),
        output_tokens=float(test.output_tokens),
        ttft_ms=test.ttft_ms,
        tpot_ms=test.tpot_ms,
        output_throughput=test.output_throughput,
    )


def _label(rate: float | None, in_flight: float) -> str:
    return f"{rate:.4g} requests/s" if rate else f"{in_flight:.4g} request{'' if in_flight == 1 else 's'} in flight"


def _kind(arrival: str) -> str:
    """At a rate, closed or a burst: how evenly requests come does not make two load tests incomparable."""
    return arrival if arrival in ("closed", "burst") else "rate"


def loads_of_result(result: dict[str, Any]) -> tuple[Load, ...]:
    """The served load of a `run` document, with the parts of its times; none where it served no request."""
    serving = result.get("serving")
    if not serving or not serving["completed"] or not serving.get("gap"):
        return ()
    traffic, gap = result["scenario"]["workload"]["traffic"], serving["gap"]
    seconds_each = 1 / serving["request_throughput"]  # of those past the warm-up, which alone count in tokens/s
    output = serving["output_throughput"] * seconds_each
    clients = traffic.get("concurrency")
    rate = None if clients else traffic.get("rate") or serving["request_throughput"]
    return (
        Load(
            label=_label(rate, float(clients or 0)),
            arrival=_kind(traffic["arrival"]),
            rate=rate,
            in_flight=float(clients or serving["mean_running"]),
            input_tokens=serving["total_token_throughput"] * seconds_each - output,
            output_tokens=output,
            ttft_ms=serving["ttft_ms"]["mean"],
            tpot_ms=serving["tpot_ms"]["mean"],
            output_throughput=serving["output_throughput"],
            parts_ms=(
                ("queue", serving["queue_ms"]["mean"]),
                ("device", gap["device_ms"]),
                ("prefill", gap["prefill_ms"]),
                ("engine", gap["engine_ms"]),
                *([("preempted", gap["preempted_ms"])] if gap.get("preempted_ms") else []),
            ),
            ends=tuple(_ends(serving)),
        ),
    )


def _ends(serving: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """(metric, low / mean, high / mean) of the metrics whose means are above 0 and have an interval."""
    for metric in ("ttft_ms", "tpot_ms", "e2el_ms"):
        of = serving.get(metric) or {}
        if of.get("low") and of.get("high") and of["mean"] > 0:
            yield metric, min(of["low"] / of["mean"], 1.0), max(of["high"] / of["mean"], 1.0)
