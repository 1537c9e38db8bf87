"""Errors of served benchmarks as numbers: TPOT, TTFT and throughput of the rows that state them.

TPOT and TTFT are scored below saturation: past it, both are of the benchmark's length. Throughput is scored there too.
An error is predicted / measured - 1; a TTFT within TTFT_SLACK_MS counts as inside of its bound whatever its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scenarios.records import dataclass
from sim.accuracy.serving import Answer

#: Millisecond errors of TTFT that no user minds.
TTFT_SLACK_MS = 50.0


@dataclass(frozen=True, slots=True)
class _Metric:
    """One metric of a row: measured, predicted, and the interval."""

    measured: float | None
    value: float
    low: float
    high: float

    @property
    def error(self) -> float | None:
        return None if self.measured is None else self.value / self.measured - 1

    @property
    def inside(self) -> bool | None:
        return None if self.measured is None else self.low <= self.measured <= self.high


def _metrics(answer: Answer) -> dict[str, _Metric]:
    row, value, low, high = answer.deployed.row, answer.value, answer.low, answer.high
    return {
        "tpot": _Metric(row.tpot_ms, value.tpot_ms, low.tpot_ms, high.tpot_ms),
        "ttft": _Metric(row.ttft_ms, value.ttft_ms, low.ttft_ms, high.ttft_ms),
        "throughput": _Metric(
            row.output_throughput,
            value.output_throughput,
            min(high.output_throughput, value.output_throughput),
            max(low.output_throughput, value.output_throughput),
        ),
    }


def serving_result(
    answers: Sequence[Answer], unpriced: Sequence[dict[str, str]], fitted_on: Sequence[str] = ()
) -> dict[str, Any]:
    """The `serving` part of a `validate` result. fitted_on: ids of rows that engines were fitted on; not scored."""
    scored = [a for a in answers if a.deployed.row.scored and a.deployed.row.id not in fitted_on]
    below = _below_saturation(scored)
    past = [a for a in scored if a.deployed.row.saturated]
    return {
        "rows": [_listed(answer, fitted_on) for answer in answers],
        "tpot": _errors("tpot", below),
        "ttft": {**_errors("ttft", below), "within": _within(below), "slack_ms": TTFT_SLACK_MS},
        "throughput": {
            **_errors("throughput", scored),
            "unsaturated": _errors("throughput", below),
            "saturated": _errors("throughput", past),
        },
        "unpriced": list(unpriced),
    }


def tpot_errors(answers: Sequence[Answer]) -> dict[str, Any]:
    """Errors of TPOT over the scored of `answers` below saturation, as in `serving_result`."""
    return _errors("tpot", _below_saturation([answer for answer in answers if answer.deployed.row.scored]))


def _below_saturation(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if not answer.deployed.row.saturated]


def _listed(answer: Answer, fitted_on: Sequence[str]) -> dict[str, Any]:
    row, metrics = answer.deployed.row, _metrics(answer)
    tpot, ttft, throughput = metrics["tpot"], metrics["ttft"], metrics["throughput"]
    return {
        "id": row.id,
        "deployment": row.deployment,
        "engine": answer.engine,
        "tpot_ms": tpot.measured,
        "predicted_tpot_ms": tpot.value,
        "low_tpot_ms": tpot.low,
        "high_tpot_ms": tpot.high,
        "tpot_error": tpot.error,
        "spread_tpot": row.spread,
        "ttft_ms": ttft.measured,
        "predicted_ttft_ms": ttft.value,
        "low_ttft_ms": ttft.low,
        "high_ttft_ms": ttft.high,
        "ttft_error": ttft.error,
        "output_throughput": throughput.measured,
        "predicted_output_throughput": throughput.value,
        "throughput_error": throughput.error,
        "inside": tpot.inside,
        "device_ms": answer.value.device_ms,
        "step_ms": answer.value.decode_ms,
        "running": answer.value.running,
        "saturated": row.saturated,
        "predicted_saturated": answer.value.saturated,
        "scored": row.scored and row.id not in fitted_on,
        "fitted": row.id in fitted_on,
    }


def _errors(metric: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """Rows, median and 90th percentile of absolute errors, bias (median signed error), share inside their interval."""
    stated = [m for m in (_metrics(answer)[metric] for answer in answers) if m.error is not None]
    errors = np.array([m.error for m in stated], np.float64)
    if not stated:
        return {"rows": 0, "median": None, "p90": None, "bias": None, "coverage": None}
    return {
        "rows": len(stated),
        "median": float(np.median(np.abs(errors))),
        "p90": float(np.percentile(np.abs(errors), 90)),
        "bias": float(np.median(errors)),
        "coverage": float(np.mean([bool(m.inside) for m in stated])),
    }


def _within(answers: Sequence[Answer]) -> float | None:
    """Share of TTFTs within 15 % or TTFT_SLACK_MS of the measured."""
    misses = [
        (abs(m.value - m.measured), m.measured)
        for m in (_metrics(a)["ttft"] for a in answers)
        if m.measured is not None
    ]
    if not misses:
        return None
    return float(np.mean([off <= max(0.15 * given, TTFT_SLACK_MS) for off, given in misses]))
