"""The README's tables: what a line says of its rows (that README holds them is tested there)."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.documents.tables import _gain, _line, accuracy_rows, kernels_of_reference
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import read_steps
from sim.accuracy.score import Scored, errors, price_steps


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


def test_a_line_of_the_table_keeps_fitted_rows_apart() -> None:
    rows = [
        Scored("row", "MatMul", 10.0, us, 0.0, 1e9, 16.0, True, fitted=fitted)
        for us, fitted in ((10.5, True), (9.0, False), (13.0, False))
    ]
    assert _line("kernels: all", "somewhere", rows) == (
        "| kernels: all | somewhere | 1 | 5.0% | 5.0% | 2 | 20.0% | 28.0% | 60% |"
    )
    assert _line("links", "x", rows[:1]) == "| links | x | 1 | 5.0% | 5.0% | - | - | - | 60% |"


def test_the_families_make_up_all_kernels_and_steps_are_the_scored_ones() -> None:
    lines = [line.split("|") for line in accuracy_rows()]
    rows = {cells[1].strip(): cells for cells in lines}

    def count(name: str) -> list[int]:
        return [int(cell.strip().replace("-", "0")) for cell in (rows[name][3], rows[name][6])]

    families = [count(name) for name in rows if name.startswith("kernels: ") and name != "kernels: all"]
    kernels = kernels_of_reference()
    fitted = sum(r.fitted for r in kernels)
    assert [sum(column) for column in zip(*families, strict=True)] == count("kernels: all")
    assert count("kernels: all") == [fitted, len(kernels) - fitted]
    assert rows["kernels: all"][4].strip() == f"{errors([r for r in kernels if r.fitted])['median']:.1%}"
    steps = [r for r in price_steps(read_steps(reference_csv("steps")))[0] if r.scored]
    assert sum(sum(count(name)) for name in rows if name.startswith("whole ")) == len(steps)
