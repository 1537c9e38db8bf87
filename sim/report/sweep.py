"""A sweep on a terminal: how many points, why some were skipped, and the best ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from sim.report.formats import paragraph
from sim.report.tables import Column, fitted
from sim.sweep.sweep import Swept

if TYPE_CHECKING:
    from rich.console import Console

#: Longest lists.
TOP_REASONS, TOP_POINTS = 8, 10


def print_sweep(console: Console, swept: Swept, path: Path) -> None:
    """What was swept, where the table is, and the points with the most tokens a second per card."""
    counts = ", ".join(f"{count:,} {status}" for status, count in sorted(swept.statuses.items())) or "none"
    kept = f"; {swept.kept:,} of them from before" if swept.kept else ""
    lines: list[Any] = [
        Text.assemble(("\n" + swept.space.path.name, "bold"), f"  {len(swept.space):,} points: {counts}{kept}")
    ]
    for (status, reason), count in list(swept.reasons.items())[:TOP_REASONS]:
        lines.append(paragraph(f"{count:,} {status}: {reason}", "dim"))
    if len(swept.reasons) > TOP_REASONS:
        lines.append(Text(f"{len(swept.reasons) - TOP_REASONS:,} more reasons in the table", style="dim"))
    console.print(Group(*lines))
    best = _best(swept)
    if best:
        console.print(fitted("Most output tokens/s per card", _columns(swept, best), console.width))
    console.print(Text(f"written to {path}", style="dim"))


def _best(swept: Swept) -> list[dict[str, Any]]:
    rows = [dict(zip(swept.columns, row, strict=True)) for row in swept.rows]
    done = [
        _shown(row) for row in rows if row["status"] == "done" and row.get("output_throughput_per_card") is not None
    ]
    return sorted(done, key=lambda row: (-row["output_throughput_per_card"], row["place"]))[:TOP_POINTS]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """`row` with what its served requests saw, where they come in time, instead of what one step says."""
    if row.get("serving_output_throughput_per_card") is None:
        return row
    return {
        **row,
        "output_throughput_per_card": row["serving_output_throughput_per_card"],
        "ttft_ms": row["serving_ttft_ms_mean"],
        "tpot_ms": row["serving_tpot_ms_mean"],
        "bottleneck": row["serving_limit"],
    }


def _columns(swept: Swept, rows: list[dict[str, Any]]) -> list[Column]:
    columns = [
        Column(key.rpartition(".")[2], ["" if row[key] is None else str(row[key]) for row in rows], right=True)
        for key in swept.space.keys
    ]
    columns += [
        Column("tokens/s/card", [f"{row['output_throughput_per_card']:,.0f}" for row in rows], right=True),
        Column("TPOT ms", [f"{row['tpot_ms']:,.2f}" if row.get("tpot_ms") else "" for row in rows], right=True),
        Column("TTFT ms", [f"{row['ttft_ms']:,.1f}" if row.get("ttft_ms") else "" for row in rows], right=True),
        Column("GiB", [f"{row['memory_bytes'] / 2**30:,.1f}" for row in rows], right=True),
        Column("bottleneck", [row["bottleneck"] for row in rows]),
    ]
    return columns
