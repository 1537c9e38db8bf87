"""`whatif compare` on a terminal: the answer in a sentence, then settings, metrics and causes side by side."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Any

from rich.console import Console
from rich.text import Text

from sim.report.compare_loads import loads_parts
from sim.report.compare_timelines import notes_part, op_types_part, timeline_parts
from sim.report.formats import bar_pair, counted, plain, size
from sim.report.overlap import overlap_lines
from sim.report.tables import Column, fitted

TOP_CAUSES = 14

#: How a metric is shown, by the end of its name.
_UNITS = (("_ms", "ms", 2), ("_throughput", "tokens/s", 0), ("_per_card", "tokens/s", 0))


def print_compare(console: Console, result: dict[str, Any]) -> None:
    """Draw a `compare` document."""
    shown, width = plain(result), console.width
    console.print(Text(f"\n{shown['sentence']}\n", style="bold"))
    for row in shown.get("fallbacks", []):
        console.print(Text(f"{row['side']}: likely {row['name']} ({row['evidence']})", style="yellow"))
    for part in _parts(shown, width):
        console.print(part)
    for side in "ab":
        for line in overlap_lines(shown["overlaps"][side]):
            console.print(Text(f"{shown[side]['name']}: {line}"))
    for note in notes_part(shown.get("notes", [])):
        console.print(note)


def _parts(shown: dict[str, Any], width: int) -> list[Any]:
    """Two documents, two timelines, or one of each."""
    documents = bool(shown["metrics"])
    parts = [_settings(shown, width), _metrics(shown, width), _causes(shown, width)] if documents else []
    if "timelines" in shown:
        parts += timeline_parts(shown, width)[1 if documents else 0 :]
    if "op_types" in shown:
        parts += [_causes(shown, width), op_types_part(shown, width)]
    if "serving" in shown:
        parts += loads_parts(shown["serving"], width)
    return parts


def _settings(result: dict[str, Any], width: int) -> Any:
    rows = result["settings"]
    columns = [
        Column("setting", [row["setting"] for row in rows]),
        *_sides(result, [[_as_yaml(row[side]) for row in rows] for side in "ab"], wraps=True),
    ]
    return fitted("What differs" if rows else "The settings are the same", columns if rows else [], width)


def _metrics(result: dict[str, Any], width: int) -> Any:
    rows = result["metrics"]
    columns = [
        Column("", list(rows)),
        *_sides(result, [[_metric(key, row[side]) for key, row in rows.items()] for side in "ab"]),
        Column("B / A", [f"{row['ratio']:.3f}" if row["ratio"] else "" for row in rows.values()], right=True),
    ]
    return fitted("Metrics", columns, width)


def _causes(result: dict[str, Any], width: int) -> Any:
    moved = [row for row in result["causes"] if row["b_us"] != row["a_us"]]
    rows, rest = moved[:TOP_CAUSES], moved[TOP_CAUSES:]
    widest = max((abs(row["b_us"] - row["a_us"]) for row in rows), default=0.0) or 1.0
    columns = [
        Column("us a step", [row["cause"] for row in rows]),
        *_sides(result, [[f"{row[f'{side}_us']:,.1f}" for row in rows] for side in "ab"]),
        Column("B - A", [f"{row['b_us'] - row['a_us']:+,.1f}" for row in rows], right=True),
        Column("", [bar_pair((row["b_us"] - row["a_us"]) / widest, width) for row in rows], rank=1),
    ]
    notes = []
    if rest:
        notes = [f"and {counted(len(rest), 'more kind')}: {fsum(r['b_us'] - r['a_us'] for r in rest):+,.1f} us"]
    return fitted("Where the difference lies", columns if rows else [], width, notes)


def _sides(result: dict[str, Any], cells: Sequence[Sequence[str]], wraps: bool = False) -> list[Column]:
    """The columns of A and B, under their names."""
    return [Column(result[side]["name"], cells[i], right=True, wraps=wraps) for i, side in enumerate("ab")]


def _metric(key: str, value: float) -> str:
    if key.endswith("_bytes"):
        return size(value)
    unit, digits = next(((unit, digits) for end, unit, digits in _UNITS if key.endswith(end)), ("", 3))
    return f"{value:,.{digits}f} {unit}".rstrip()


def _as_yaml(value: Any) -> str:
    """As the user would write it in a scenario."""
    if value is None:
        return "default"
    return str(value).lower() if isinstance(value, bool) else str(value)
