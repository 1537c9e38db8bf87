"""The tables of sums that torch_npu writes: op_statistic.csv, held against the kernels, and api_statistic.csv."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scenarios.errors import printable
from scenarios.profile.read.csv_tables import known, table_rows, us_cell, whole_cell
from scenarios.profile.read.files import LIMITS, fail
from scenarios.profile.table import Events, HostApi, Kind

#: A sum that is off by more than this is reported.
SHARE = 0.001
#: Rows of a table of sums.
MAX_ROWS = 100_000


def read_api_statistic(path: Path) -> tuple[HostApi, ...]:
    """The host's calls, the longest first. Raises CaptureError with file and line."""
    calls = []
    for line, row in table_rows(path, ("Level", "API Name", "Time(us)", "Count")):
        if line > MAX_ROWS:
            fail(path, f"has more than {MAX_ROWS:,} rows")
        name = printable(known(row["API Name"]), 80)
        level = printable(known(row["Level"]), 20)
        calls.append(HostApi(level, name, whole_cell(row["Count"]), us_cell(path, line, row, "Time(us)")))
    return tuple(sorted(calls, key=lambda api: (-api.total_ns, api.level, api.name)))


def differs_from_op_statistic(path: Path, events: Events, texts: tuple[str, ...]) -> list[str]:
    """What op_statistic.csv says of kernels by op type that they do not: another count, another time; [] for nothing.

    Raises CaptureError with file and line.
    """
    said: dict[str, int] = {}
    counts: dict[str, int] = {}
    for line, row in table_rows(path, ("OP Type", "Count", "Total Time(us)")):
        if line > MAX_ROWS or len(said) > LIMITS.facts:
            fail(path, f"has more than {MAX_ROWS:,} rows")
        op_type = known(row["OP Type"])
        said[op_type] = said.get(op_type, 0) + us_cell(path, line, row, "Total Time(us)")
        counts[op_type] = counts.get(op_type, 0) + whole_cell(row["Count"])
    rows = events.rows(Kind.KERNEL)
    types, which = np.unique(events.op_type[rows], return_inverse=True)
    sums = np.bincount(which, weights=events.duration_ns[rows].astype(np.float64), minlength=len(types))
    mine = {texts[int(number)]: float(ns) for number, ns in zip(types, sums, strict=True)}
    numbers = np.bincount(which, minlength=len(types)).tolist()
    of_type = {texts[int(number)]: count for number, count in zip(types, numbers, strict=True)}
    fewer = {t: counts[t] - of_type.get(t, 0) for t in counts if of_type and counts[t] > of_type.get(t, 0)}
    if fewer:
        worst = max(fewer, key=lambda t: (fewer[t], t))
        return [
            f"{sum(fewer.values()):,} of {sum(counts.values()):,} kernels of op_statistic.csv are not among the "
            f"kernels, most of them {printable(worst, 40)}"
        ]
    total = sum(said.values())
    off = {t: mine.get(t, 0.0) - said.get(t, 0) for t in mine.keys() | said.keys()}
    worst = max(off, key=lambda t: (abs(off[t]), t), default="")
    if not worst or abs(off[worst]) <= SHARE * total:
        return []
    return [
        f"op_statistic.csv has {said.get(worst, 0) / 1000:,.3f} us of {printable(worst, 40)}, the kernels have "
        f"{mine.get(worst, 0.0) / 1000:,.3f}"
    ]
