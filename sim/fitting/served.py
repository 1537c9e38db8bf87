"""Deployments of a file of served benchmarks, each calibrated on one of its rows and asked for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.accuracy.rows.serving import ServingRow
from sim.accuracy.serving import Answer, Deployed, by_deployment, first_unsaturated, priced, split
from sim.accuracy.serving_score import serving_result, tpot_errors
from sim.fitting.engine import FittedEngine, Measured, fit_engine

#: A host is called healthy up to this factor on what the shipped profile of its engine says it takes for a step.
HEALTHY = 1.5


def served_results(rows: Sequence[ServingRow], refused: Sequence[dict[str, str]], calibrate: bool) -> dict[str, Any]:
    """`serving`: every row with the shipped profile of its engine, `refused` among those without a price. With
    `calibrate` also `serving_calibrated`: engines fitted on the first unsaturated row of each deployment, scored on its
    others, the `hosts` that were so fitted, and the errors of `healthy` ones before it."""
    good, without = split(rows)
    unpriced = [*refused, *without]
    shipped = [priced(deployed, deployed.engine) for deployed in good]
    result = {"serving": serving_result(shipped, unpriced)}
    if calibrate:
        fitted = _calibrated(good, unpriced)
        healthy = {host["deployment"] for host in fitted["hosts"] if host["healthy"]}
        fitted["healthy"] = tpot_errors([a for a in shipped if a.deployed.row.deployment in healthy])
        result["serving_calibrated"] = fitted
    return result


def _calibrated(good: Sequence[Deployed], unpriced: Sequence[dict[str, str]]) -> dict[str, Any]:
    without: list[dict[str, str]] = [*unpriced]
    answers: list[Answer] = []
    hosts: list[dict[str, Any]] = []
    for name, deployment in by_deployment(good).items():
        first = first_unsaturated(deployment)
        if first is None:
            reason = f"no row of {name} below saturation states TPOT, so none to calibrate on"
            without += [{"id": deployed.row.id, "reason": reason} for deployed in deployment]
            continue
        fitted = calibrated(first)
        hosts.append(_host(name, first, fitted))
        answers += [priced(deployed, fitted.profile) for deployed in deployment]
    result = serving_result(answers, without, [host["fitted_on"] for host in hosts])
    return {**result, "hosts": hosts}


def _host(name: str, first: Deployed, fitted: FittedEngine) -> dict[str, Any]:
    """What a deployment's host takes for a step over what its engine's profile says; of one that hides behind the
    device, no more than `high` is known."""
    low, high = fitted.intervals["step"]
    factor = fitted.factors.step
    return {
        "deployment": name,
        "fitted_on": first.row.id,
        "profile": first.engine.name,
        "host_factor": factor,
        "low": low,
        "high": high,
        "healthy": factor <= HEALTHY,
    }


def calibrated(deployed: Deployed) -> FittedEngine:
    """The engine of a deployment from one of its rows."""
    row = deployed.row
    ttft_ms = None if deployed.front else row.ttft_ms  # the closed form has no prefill instance
    # Rows with a share in the prefix cache are answered in closed form, and so fitted.
    load = None if row.prefix_cache_hit or deployed.front else deployed.load
    measured = Measured(deployed.bench, row.tpot_ms, ttft_ms, row.output_throughput, load)
    return fit_engine([measured], deployed.engine, f"calibrated on {row.id}"[:100], f"fitted to row {row.id}")
