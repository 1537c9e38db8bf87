"""The README's tables: what a line says of its rows (that README holds them is tested there)."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.documents.tables import _gain, _line, accuracy_rows
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import read_kernels, read_steps
from sim.accuracy.score import errors, price_kernels, price_steps


def gain(verdict: str, **of: float) -> dict[str, Any]:
    return {"verdict": verdict, "alone_ratio": 1.234, "low": 1.1, "high": 1.35, **of}


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        ("gain", "1.23x (1.10-1.35)"),
        ("loss", "1.23x (1.10-1.35)"),
        ("not distinguishable", "1.23x (1.10-1.35), not distinguishable"),
        ("no effect", "no effect"),
        ("not applicable", "-"),
    ],
)
def test_a_gain_is_a_factor_with_its_interval(verdict: str, shown: str) -> None:
    assert _gain(gain(verdict)) == shown


def test_a_line_of_the_table() -> None:
    result = {"rows": 7, "median": 0.0512, "p90": 0.2, "roofline_median": 0.61}
    assert _line("kernels: all", "somewhere", result) == "| kernels: all | somewhere | 7 | 5.1% | 20.0% | 61% |"


def test_the_families_make_up_all_kernels_and_steps_are_the_scored_ones() -> None:
    lines = [line.split("|") for line in accuracy_rows()]
    rows = {cells[1].strip(): cells for cells in lines}
    counts = [int(rows[name][3]) for name in rows if name.startswith("kernels: ") and name != "kernels: all"]
    kernels = [r for r in price_kernels(read_kernels(reference_csv("kernels")))[0] if r.scored]
    assert sum(counts) == int(rows["kernels: all"][3]) == len(kernels)
    assert rows["kernels: all"][4].strip() == f"{errors(kernels)['median']:.1%}"
    steps = [r for r in price_steps(read_steps(reference_csv("steps")))[0] if r.scored]
    assert sum(int(rows[name][3]) for name in rows if name.startswith("whole ")) == len(steps)
