"""How much of a step's width measured steps need: by hand, and as it is shipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sim.fitting.steps import Step, cautious_share, held_out, share_of_width, unfitted_steps, write
from sim.kernel.ranges import SPREADS_FILE, spreads

STEP = Step("A", "chip", error=0.05, width=0.1, skew=0.0, late=0.0)


def test_a_measurement_lies_inside_a_share_of_the_width_and_its_skew() -> None:
    assert STEP.inside(0.51)
    assert not STEP.inside(0.49)
    assert replace(STEP, error=-0.05, skew=0.05).inside(0.0)
    assert replace(STEP, error=0.05, skew=0.03).inside(0.4)  # a triangle of 3, 4 and 5


def test_nine_of_ten_steps_decide_where_each_is_of_a_model_of_its_own() -> None:
    steps = [replace(STEP, model=f"{n}", error=0.01 * n * (-1) ** n) for n in range(1, 11)]
    assert share_of_width(steps) == pytest.approx(0.9)
    # One that waits for rank skew decides nothing.
    assert share_of_width([*steps, replace(STEP, model="late", error=5.0, late=0.1)]) == pytest.approx(0.9)


def test_rows_of_one_model_count_as_the_root_of_their_number() -> None:
    many = [replace(STEP, error=0.02)] * 100
    # 100 rows weigh 10, the other model 1: nine tenths lie inside without it.
    assert share_of_width([*many, replace(STEP, model="B", error=0.07)]) == pytest.approx(0.2)
    # 64 rows weigh 8, less than nine tenths of 9.
    assert share_of_width([*many[:64], replace(STEP, model="B", error=0.07)]) == pytest.approx(0.7)


def test_each_model_is_judged_by_the_others() -> None:
    steps = [STEP, replace(STEP, model="B", error=0.02), replace(STEP, model="B", error=0.08)]
    assert held_out(steps) == [("A", pytest.approx(0.8), 1, 1), ("B", pytest.approx(0.5), 1, 2)]
    assert (share_of_width(steps), cautious_share(steps)) == (pytest.approx(0.8), pytest.approx(0.8))
    sure = [replace(STEP, error=0.01)] * 99
    assert share_of_width([*sure, replace(STEP, model="B", error=0.07)]) == pytest.approx(0.1)
    assert cautious_share([*sure, replace(STEP, model="B", error=0.07)]) == pytest.approx(0.7)  # without A
    with pytest.raises(ValueError, match="no measured step decides"):
        share_of_width([replace(STEP, late=0.5)])


def test_the_share_is_written_and_what_else_the_file_says_stays(tmp_path: Path) -> None:
    file = tmp_path / "spreads.csv"
    file.write_text("term,of,value\nfew,,0.1\nstep,old,0.9\n")
    write(0.66321, ["one", "two"], file)
    assert file.read_text() == "term,of,value\nfew,,0.1\nstep,one,0.664\nstep,two,0.664\n"


@pytest.mark.slow
def test_the_shipped_share_is_what_the_measured_steps_ask_for(tmp_path: Path) -> None:
    steps, file = unfitted_steps(), tmp_path / "spreads.csv"
    file.write_text(SPREADS_FILE.read_text())
    write(cautious_share(steps), sorted({step.device for step in steps}), file)
    assert file.read_text() == SPREADS_FILE.read_text()
    folds = held_out(steps)
    assert sum(inside for _, _, inside, _ in folds) >= 0.85 * len(steps)
    assert all(share <= 1 for _, share, _, _ in folds)
    assert set(spreads().steps) == {step.device for step in steps}
