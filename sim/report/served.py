"""Requests that a device has served, next to their prediction, for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sim.report.formats import paragraph
from sim.report.serving import SPREADS
from sim.report.tables import Column, fitted

#: Rates that are compared, and what they are called.
RATES = (
    ("request_throughput", "requests/s"),
    ("output_throughput", "output tokens/s"),
    ("total_token_throughput", "tokens/s in all"),
)
FIGURES = ("mean", "p50", "p90", "p99")
CLOCKS = {
    "wall": "by the wall clock",
    "steady": "without other programs and waiting, at the speed of the calibration (where the profile says none: "
    "of this run's start)",
}


def served_part(measured: dict[str, Any], predicted: dict[str, Any], width: int) -> list[RenderableType]:
    """The part of a report about requests served; nothing where none were."""
    serving = measured.get("serving")
    if not serving:
        return []
    return [_head(serving), _table(serving, predicted, measured["serving_errors"], width)]


def _head(serving: dict[str, Any]) -> RenderableType:
    gap = serving["gap"]
    lines = (
        f"{CLOCKS[serving['clock']]}; its thread had a CPU for {serving['on_cpu_share']:.0%} of the time",
        f"{serving['completed']:,} requests completed in {serving['duration_s']:,.1f} s, "
        f"{serving['preemptions']:,} preemptions, {serving['steps']:,} steps, "
        f"{serving['mean_running']:.1f} requests in a mean step",
        f"KV cache {serving['kv']['usage_peak']:.0%} full at most, {serving['kv']['hit_rate']:.0%} of prompt tokens "
        "found in it",
        f"a token took {gap['device_ms']:.1f} ms of the decode step, {gap['prefill_ms']:.1f} of prefills in the same "
        f"step, {gap['engine_ms']:.1f} of the engine's host",
    )
    title = Text("Serving, measured", style="bold")
    return Group(title, *(paragraph(line) for line in lines), Text())


def _table(serving: dict[str, Any], predicted: dict[str, Any], errors: dict[str, Any], width: int) -> RenderableType:
    labels, rows = [], []
    for key, label in RATES:
        labels.append((label, ""))
        rows.append((predicted[key], serving[key], errors[key]))
    for key, label in SPREADS:
        for figure in FIGURES:
            labels.append((f"{label}, ms" if figure == FIGURES[0] else "", figure))
            rows.append((predicted[key][figure], serving[key][figure], errors[key][figure]))
    columns = [
        Column("", [label for label, _ in labels]),
        Column("of", [figure for _, figure in labels]),
        Column("predicted", [f"{value:,.1f}" for value, _, _ in rows], right=True),
        Column("measured", [f"{value:,.1f}" for _, value, _ in rows], right=True),
        Column("error", ["" if error is None else f"{error:+.0%}" for _, _, error in rows], right=True),
    ]
    return fitted("Requests, predicted and measured", columns, width)
