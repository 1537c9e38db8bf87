"""How far a kernel lies from the shapes that its program was fitted to."""

from __future__ import annotations

from dataclasses import replace
from math import hypot, sqrt
from pathlib import Path

import pytest

from scenarios.ops.program import Group
from scenarios.ops.work import AttentionShape, FixedShape, FlatShape, MatmulShape, RowsShape, Work
from sim.fitting import ranges
from sim.kernel.ranges import (
    MAX_OCTAVES,
    RANGES_FILE,
    Box,
    Spreads,
    Support,
    extra_sigma,
    fitted_boxes,
    program_name,
    share_of,
    sizes_of,
    spreads,
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


TERMS = Spreads(0.15, 0.05, 0.6, 0.2, {"matmul": 0.1, "attention": 0.1, "vector": 0.2}, {"softmax": 0.5})


def test_few_shapes_and_sizes_far_off_are_less_sure() -> None:
    # Four shapes: 0.15 / 2; three octaves: 3 x 0.05; another chip: 0.2.
    assert TERMS.extra(Support("here", 4, 0.0), "vector") == pytest.approx(0.075)
    assert TERMS.extra(Support("here", 4, 3.0), "vector") == pytest.approx(hypot(0.075, 0.15))
    assert TERMS.extra(Support("elsewhere", 4, 3.0), "vector") == pytest.approx(hypot(0.075, 0.15, 0.2))
    assert TERMS.extra(Support("never"), "vector") == 0.6


def test_the_shipped_spreads_are_of_a_size_that_errors_have() -> None:
    terms = spreads()
    assert 0 < terms.octave < terms.few < terms.elsewhere["vector"] < terms.never < 1.5
    assert 0.05 < terms.shared < 0.5
    assert share_of("softmax") < 1 < share_of("slice")
    assert share_of("unheard") == 1.0


def test_what_a_programs_time_depends_on() -> None:
    assert sizes_of(rows(8, 128)) == (8, 128)
    assert sizes_of(Work("vector", FlatShape(300))) == (300,)
    assert sizes_of(Work("cube", MatmulShape(2, 4, 8, 16, "bf16", "bf16", "nd"))) == (8, 8, 16)
    assert sizes_of(Work("vector", FixedShape("Data"))) == ()


def test_kinds_that_run_one_program_share_its_box() -> None:
    groups = {"static": (Group(2, 1, 99),), "prefill": (Group(1, 512, 0),)}
    shapes = {name: AttentionShape(given, 8, 8, 128, "bf16", 128) for name, given in groups.items()}
    static = replace(shapes["static"], static_tokens=4096)
    names = [program_name(Work("mix", s, program="attention")) for s in (shapes["static"], static, shapes["prefill"])]
    assert names == ["attention", "static_attention", "attention_prefill"]
    assert program_name(rows(4, 8, "embedding")) == "gather"


def test_a_longer_row_is_less_sure_and_an_unknown_program_is_least() -> None:
    near, far = (extra_sigma(rows(16, columns), "atlas_a3_die") for columns in (5120, 2**20))
    assert 0 < near < far < extra_sigma(rows(16, 5120, "unheard"), "atlas_a3_die") == spreads().never
    assert extra_sigma(Work("vector", FixedShape("Data")), "atlas_a3_die") == 0.0
    assert extra_sigma(Work("copy", FlatShape(4096), program="prefetch"), "atlas_a3_die") == 0.0


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
    assert extra_sigma(work, "my_calibrated_board") == pytest.approx(spreads().few / sqrt(box.shapes))
    assert extra_sigma(work, "950pr") > extra_sigma(work, "my_calibrated_board")


def test_the_boxes_are_those_of_the_reference_set(tmp_path: Path) -> None:
    ranges.write(tmp_path / "ranges.csv")
    assert (tmp_path / "ranges.csv").read_text() == RANGES_FILE.read_text(), "run python -m sim.fitting.ranges"
