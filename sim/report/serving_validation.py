"""Served benchmarks of `whatif validate` on a terminal: every row, and the errors of what is scored."""

from __future__ import annotations

from typing import Any

from sim.fitting.served import HEALTHY
from sim.report.tables import Column, fitted

#: Parts of the result that this table draws -> its title.
SERVED = {
    "serving": "Served benchmarks: predicted with shipped engine profiles",
    "serving_calibrated": "Served benchmarks: engines fitted on the first unsaturated row of each deployment",
}


def percent(value: float | None, signed: bool = False) -> str:
    """A share as text; "-" where there is none."""
    if value is None:
        return "-"
    return f"{value:+.1%}" if signed else f"{value:.1%}"


def serving_table(part: dict[str, Any], title: str, width: int) -> Any:
    """The rows of one part, and notes of their errors."""
    rows = part["rows"]
    columns = [
        Column("row", [r["id"] + _mark(r) for r in rows]),
        Column("deployment", [r["deployment"] for r in rows], rank=2),
        Column("TPOT ms", [_number(r["tpot_ms"]) for r in rows], right=True),
        Column("predicted", [_number(r["predicted_tpot_ms"]) for r in rows], right=True),
        Column("interval", [f"{r['low_tpot_ms']:.0f}-{r['high_tpot_ms']:.0f}" for r in rows], rank=1),
        Column("error", [percent(r["tpot_error"], signed=True) for r in rows], right=True),
        Column("TTFT", [percent(r["ttft_error"], signed=True) for r in rows], right=True, rank=1),
        Column("tokens/s", [percent(r["throughput_error"], signed=True) for r in rows], right=True),
    ]
    notes = [_note(part, metric) for metric in ("tpot", "ttft", "throughput")]
    return fitted(title, columns, width, [*notes, *_host_notes(part)])


def _host_notes(part: dict[str, Any]) -> list[str]:
    """Of fitted engines: what each host takes over its profile, and how far off healthy ones were before the fit."""
    hosts = part.get("hosts")
    if not hosts:
        return []
    factors = ", ".join(f"{host['deployment']} {host['host_factor']:.1f}" for host in hosts)
    healthy, errors = sum(host["healthy"] for host in hosts), part["healthy"]
    text = (
        f"healthy hosts, up to {HEALTHY}: {healthy} of {len(hosts)}; before the fit their TPOT: {errors['rows']} rows"
    )
    return [
        f"host of a step over its profile's: {factors}",
        f"{text}, median error {percent(errors['median'])}, {percent(errors['coverage'])} inside",
    ]


def _mark(row: dict[str, Any]) -> str:
    if row["fitted"]:
        return " (fitted)"
    marks = [" (saturated)" if row["saturated"] else "", "" if row["scored"] else " (not scored)"]
    return "".join(marks)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _note(part: dict[str, Any], metric: str) -> str:
    errors = part[metric]
    name = {"tpot": "TPOT", "ttft": "TTFT", "throughput": "throughput"}[metric]
    text = f"{name}: {errors['rows']} rows, median error {percent(errors['median'])}, P90 {percent(errors['p90'])}"
    if metric == "throughput":
        past = errors["saturated"]
        return f"{text}; past saturation {past['rows']} rows, median {percent(past['median'])}"
    return f"{text}; {percent(errors['coverage'])} inside their interval"
