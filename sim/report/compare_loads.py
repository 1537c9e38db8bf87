"""The requests of `whatif compare` on a terminal: of each load what they met, and which part of a request changed."""

from __future__ import annotations

from typing import Any

from sim.report.formats import bar_pair
from sim.report.tables import Column, fitted

#: Metrics of a load and their titles.
_METRICS = (("ttft_ms", "TTFT ms"), ("tpot_ms", "TPOT ms"), ("e2el_ms", "E2EL ms"), ("output_throughput", "tokens/s"))


def loads_parts(serving: dict[str, Any], width: int) -> list[Any]:
    """What is printed of a `compare` document's part `serving`."""
    if not serving["loads"]:
        return _likely(serving, width)
    return [_metrics(serving, width), _causes(serving, width), *_likely(serving, width)]


def _metrics(serving: dict[str, Any], width: int) -> Any:
    rows = serving["loads"]
    columns = [Column("load", [row["load"] for row in rows])]
    for key, title in _METRICS:
        pairs = [row["metrics"].get(key) for row in rows]
        if any(pairs):
            columns += [
                Column(f"A {title}", [_number(pair and pair["a"]) for pair in pairs], right=True),
                Column(f"B {title}", [_number(pair and pair["b"]) for pair in pairs], right=True),
                Column("B / A", [f"{p['ratio']:.3f}" if p and p["ratio"] else "-" for p in pairs], right=True, rank=1),
            ]
    e2el = [row["metrics"]["e2el_ms"] for row in rows]
    columns.append(Column("E2EL B / A, 90 %", [_ends(pair) for pair in e2el], right=True))
    return fitted("What requests met", columns, width, _line_notes(serving["line"]))


def _ends(pair: dict[str, Any]) -> str:
    return "-" if pair.get("low") is None else f"{pair['low']:.2f}-{pair['high']:.2f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _line_notes(line: dict[str, Any] | None) -> list[str]:
    if line is None:
        return []
    step, request = line["per_step_ms"], line["per_request_ms"]
    return [
        f"TPOT by least squares over these loads: A {step['a']:.2f} + {request['a']:.3f} x requests in flight ms, "
        f"B {step['b']:.2f} + {request['b']:.3f} x requests in flight ms"
    ]


def _causes(serving: dict[str, Any], width: int) -> Any:
    rows = [(load["load"], row) for load in serving["loads"] for row in load["causes"]]
    widest = max((abs(row["change_ms"]) for _, row in rows), default=0.0) or 1.0
    columns = [
        Column("load", [load for load, _ in rows]),
        Column("part of a request", [row["cause"] for _, row in rows]),
        Column("B - A ms", [f"{row['change_ms']:+,.1f}" for _, row in rows], right=True),
        Column("", [bar_pair(row["change_ms"] / widest, width) for _, row in rows], rank=1),
    ]
    if not rows:
        return fitted("Requests take the same time", [], width)
    return fitted("Where a request's time changed", columns, width, ["parts of a load sum to the change of its E2EL"])


def _likely(serving: dict[str, Any], width: int) -> list[Any]:
    rows = serving["likely"]
    if not rows:
        return []
    columns = [
        Column("slower", [row["side"] for row in rows]),
        Column("evidence", [row["evidence"] for row in rows]),
        Column("likely", [row["name"] for row in rows], wraps=True),
    ]
    return [fitted("Likely, largest part of a token first", columns, width)]
