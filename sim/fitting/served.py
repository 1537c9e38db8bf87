"""Deployments of a file of served benchmarks, each calibrated on one of its rows and asked for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.accuracy.rows.serving import ServingRow
from sim.accuracy.serving import Answer, Deployed, by_deployment, first_unsaturated, priced, split
from sim.accuracy.serving_score import serving_result
from sim.fitting.engine import FittedEngine, Measured, fit_engine


def served_results(rows: Sequence[ServingRow], refused: Sequence[dict[str, str]], calibrate: bool) -> dict[str, Any]:
    """`serving`: every row with the shipped profile of its engine, `refused` among those without a price. With
    `calibrate` also `serving_calibrated`: engines fitted on the first unsaturated row of each deployment, scored on its
    others."""
    good, without = split(rows)
    unpriced = [*refused, *without]
    shipped = serving_result([priced(deployed, deployed.engine) for deployed in good], unpriced)
    return {"serving": shipped, **({"serving_calibrated": _calibrated(good, unpriced)} if calibrate else {})}


def _calibrated(good: Sequence[Deployed], unpriced: Sequence[dict[str, str]]) -> dict[str, Any]:
    without: list[dict[str, str]] = [*unpriced]
    answers: list[Answer] = []
    fitted_on: list[str] = []
    for name, deployment in by_deployment(good).items():
        first = first_unsaturated(deployment)
        if first is None:
            reason = f"no row of {name} below saturation states TPOT, so none to calibrate on"
            without += [{"id": deployed.row.id, "reason": reason} for deployed in deployment]
            continue
        engine = calibrated(first).profile
        fitted_on.append(first.row.id)
        answers += [priced(deployed, engine) for deployed in deployment]
    return serving_result(answers, without, fitted_on)


def calibrated(deployed: Deployed) -> FittedEngine:
    """The engine of a deployment from one of its rows."""
    row = deployed.row
    ttft_ms = None if deployed.front else row.ttft_ms  # the closed form has no prefill instance
    # Rows with a share in the prefix cache are answered in closed form, and so fitted.
    load = None if row.prefix_cache_hit or deployed.front else deployed.load
    measured = Measured(deployed.bench, row.tpot_ms, ttft_ms, row.output_throughput, load)
    return fit_engine([measured], deployed.engine, f"calibrated on {row.id}"[:100], f"fitted to row {row.id}")
