"""Adopted rows as a person reads them: how many of which kind, from where, what gave none, and what to do with them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from scenarios.errors import printable
from sim.accuracy.adopted import Adopted
from sim.accuracy.validate import Measurements

#: Most lines of what gave no row.
MAX_LEFT_OUT = 20


def print_adopted(console: Console, adoption: Adopted, files: Measurements) -> None:
    """The rows by kind with their files, and what gave none."""
    console.print(Text(f"\nAdopted {adoption.count} rows", style="bold"))
    for kind, path in asdict(files).items():
        if path is not None:
            console.print(Text(f"  {len(adoption.rows[kind]):>5} {kind:<8} {printable(str(path), 200)}"))
    for line in _left_out(adoption):
        console.print(Text(f"  {line}", style="dim"))
    console.print(Text("\nTheir errors, rows to which nothing was fitted:", style="bold"))


def bundle_text(adoption: Adopted, out: Path) -> str:
    """What a bundle holds and what becomes of it."""
    counts = ", ".join(f"{len(rows)} of {kind}" for kind, rows in adoption.rows.items() if rows) or "none"
    name = printable(str(out), 200)
    lines = ["", f"{name}: rows {counts}", *(f"  {line}" for line in _left_out(adoption))]
    lines += [f"Its errors: whatif validate --adopt {name} --out rows", "How to send it: docs/contribute.md"]
    return "\n".join(lines) + "\n"


def _left_out(adoption: Adopted) -> list[str]:
    lines = [f"no row: {line}" for line in adoption.left_out[:MAX_LEFT_OUT]]
    more = len(adoption.left_out) - MAX_LEFT_OUT
    return [*lines, f"... and {more} more"] if more > 0 else lines
