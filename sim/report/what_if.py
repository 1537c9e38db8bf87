"""The what-ifs on a measured step on a terminal, in the form of the other tables of gains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sim.report.formats import bar_pair, ms, paragraph
from sim.report.tables import Column, fitted

VERDICT_STYLE = {"gain": "green", "loss": "red"}


def what_if_parts(result: dict[str, Any], width: int) -> Iterator[RenderableType]:
    """The table, what each row assumed, and how the unchanged step replays."""
    what_if = result["what_if"]
    rows, replay = what_if["rows"], what_if["replay"]
    if replay is None:
        yield Text("What if: " + "; ".join(what_if["notes"]), style="dim")
        return
    changes = [row["waterfall_us"] or 0.0 for row in rows]
    widest = max(map(abs, changes), default=0.0) or 1.0
    columns = [
        Column("what if", [row["what_if"] for row in rows]),
        Column("places", [f"{row['made']:,}" for row in rows], right=True, rank=2),
        Column("alone", [f"{row['alone_ratio']:.3f}x" if row["made"] else "-" for row in rows], right=True),
        Column("interval", [_interval(row) for row in rows], rank=3),
        Column("verdict", [Text(row["verdict"], style=VERDICT_STYLE.get(row["verdict"], "dim")) for row in rows]),
        Column("step ms", [ms(row["predicted_us"]) for row in rows], right=True),
        Column("change ms", [_change(row) for row in rows], right=True),
        Column("", [bar_pair(-us / widest, width) for us in changes], rank=1),
    ]
    left = (replay["measured_us"] - sum(changes)) / 1000
    title = f"What if: {what_if['kind']} {ms(replay['measured_us'])} ms, with all that are applied {left:,.3f} ms"
    error = f"replayed unchanged: {ms(replay['replayed_us'])} ms ({replay['error']:+.2%} of what was {what_if['kind']})"
    notes = [f"{error}, {replay['tasks']:,} tasks", *what_if["notes"]]
    notes.append(
        "alone: step as it is / replayed with it; the interval has the ends of what it assumes. change: of the "
        "step, when they are applied from top to bottom; a bound, which nothing does just so, is not."
    )
    yield fitted(title if rows else "What if: nothing known applies here", columns if rows else [], width, notes)
    lines = [paragraph(f"{row['what_if']}: {'; '.join(row['assumed'])}", "dim") for row in rows if row["assumed"]]
    if lines:
        yield Group(Text("Assumed", style="bold"), *lines, Text())


def _change(row: dict[str, Any]) -> str:
    return "bound" if row["waterfall_us"] is None else ms(-row["waterfall_us"], signed=True)


def _interval(row: dict[str, Any]) -> str:
    return f"{row['low']:.3f}-{row['high']:.3f}" if row["made"] else ""
