"""How far a kernel lies from the shapes that its program was fitted to."""

from __future__ import annotations

from dataclasses import replace
from math import hypot, sqrt
from pathlib import Path

import pytest

from scenarios.ops.work import FixedShape, FlatShape, MatmulShape, RowsShape, Work
from sim.fitting import ranges
from sim.kernel.ranges import (
    FEW_SIGMA,
    MAX_OCTAVES,
    OCTAVE_SIGMA,
    RANGES_FILE,
    UNKNOWN_SIGMA,
    Box,
    extra_sigma,
    fitted_boxes,
    sizes_of,
)

BOX = Box(4, ((1, 64), (1024, 4096)))


def rows(count: int, columns: int, program: str = "rms_norm") -> Work:
    return Work("vector", RowsShape(count, columns), program=program)


@pytest.mark.parametrize(
    ("sizes", "octaves"),
    [
        ((1, 1024), 0.0),
        ((64, 4096), 0.0),
        ((256, 2048), 2.0),
        ((8, 128), 3.0),
        ((128, 128), 3.0),
        ((1, 1), MAX_OCTAVES),
    ],
)
def test_factors_of_two_outside_of_the_box(sizes: tuple[int, int], octaves: float) -> None:
    assert BOX.octaves_outside(sizes) == octaves


def test_few_shapes_and_sizes_far_off_are_less_sure() -> None:
    # Four shapes: 0.15 / 2; three octaves: 3 x 0.05.
    assert BOX.extra_sigma((8, 2048)) == pytest.approx(FEW_SIGMA / 2)
    assert BOX.extra_sigma((8, 128)) == pytest.approx(hypot(FEW_SIGMA / 2, 3 * OCTAVE_SIGMA))
    assert Box(100, BOX.sides).extra_sigma((8, 2048)) < Box(1, BOX.sides).extra_sigma((8, 2048))


def test_what_a_programs_time_depends_on() -> None:
    assert sizes_of(rows(8, 128)) == (8, 128)
    assert sizes_of(Work("vector", FlatShape(300))) == (300,)
    assert sizes_of(Work("cube", MatmulShape(2, 4, 8, 16, "bf16", "bf16", "nd"))) == (8, 8, 16)
    assert sizes_of(Work("vector", FixedShape("Data"))) == ()


def test_a_longer_row_is_less_sure_and_an_unknown_program_is_least() -> None:
    near, far = (extra_sigma(rows(16, columns), "atlas_a3_die") for columns in (5120, 2**20))
    assert 0 < near < far < extra_sigma(rows(16, 5120, "unheard"), "atlas_a3_die") == UNKNOWN_SIGMA
    assert extra_sigma(Work("vector", FixedShape("Data")), "atlas_a3_die") == 0.0


def test_a_program_fitted_on_another_device_only_is_less_sure() -> None:
    boxes = fitted_boxes()
    program = next(name for device, name in sorted(boxes) if device == "any" and ("950pr", name) not in boxes)
    box = boxes["any", program]
    work = {1: Work("vector", FlatShape(box.sides[0][0]), program=program)}.get(len(box.sides))
    work = work or rows(box.sides[0][0], box.sides[1][0], program)
    if len(box.sides) == 3:
        (m, _), (k, _), (n, _) = box.sides
        work = replace(work, unit="cube", shape=MatmulShape(1, m, k, n, "bf16", "bf16", "nd"))
    # A device without any fitted row says how sure it is by its own residuals.
    assert extra_sigma(work, "my_calibrated_board") == pytest.approx(FEW_SIGMA / sqrt(box.shapes))
    assert extra_sigma(work, "950pr") > extra_sigma(work, "my_calibrated_board")


def test_the_boxes_are_those_of_the_reference_set(tmp_path: Path) -> None:
    ranges.write(tmp_path / "ranges.csv")
    assert (tmp_path / "ranges.csv").read_text() == RANGES_FILE.read_text(), "run python -m sim.fitting.ranges"
