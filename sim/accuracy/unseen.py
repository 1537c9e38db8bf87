"""Errors of kernels that no fit had seen, as `python -m sim.fitting.widths --write` found them.

Each reference row was predicted by numbers fitted without its shape, its model, its stack or its kind; the file keeps
the sums of that, since the fits take minutes and the extra `fit`.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path

from scenarios.records import dataclass

UNSEEN_FILE = Path(__file__).parent / "unseen.csv"


@dataclass(frozen=True, slots=True)
class UnseenClass:
    """Rows of one class. way: what was held out (`seen`: nothing). stack: A3 (vLLM-Ascend, CANN 8.5) or 910B2
    (TorchAir, CANN 9.0). median, p90: of absolute relative errors. coverage: share inside of 90 % intervals whose
    widths only rows of other shapes had decided."""

    way: str
    stack: str
    family: str
    rows: int
    median: float
    p90: float
    coverage: float


def read_unseen() -> list[UnseenClass]:
    """The classes of the shipped file."""
    with UNSEEN_FILE.open(newline="") as file:
        return [
            UnseenClass(
                row["way"],
                row["stack"],
                row["family"],
                rows=int(row["rows"]),
                median=float(row["median"]),
                p90=float(row["p90"]),
                coverage=float(row["coverage"]),
            )
            for row in csv.DictReader(file)
        ]


def write_unseen(lines: Sequence[UnseenClass], path: Path = UNSEEN_FILE) -> None:
    """Write the classes, shares to three digits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(UnseenClass))
        writer.writerows([f"{v:.3f}" if isinstance(v, float) else v for v in astuple(line)] for line in lines)
