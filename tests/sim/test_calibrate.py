"""The shipped profiles are what the reference says, and one command says it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sim.calibrate import STAGES, calibrate, rows_of_block
from sim.fitting.kernels import Block, fit, held_out, interval, put, read_samples, residuals
from sim.hardware.profile import SHIPPED, load_hardware

pytest.importorskip("scipy", reason="calibration needs the extra `fit`")


def test_a_fit_finds_the_numbers_that_made_the_times() -> None:
    hw = load_hardware("atlas_a3_die")
    block = Block("rope", {"programs.triton_rope.code_us": 0.2, "programs.triton_rope.row_us": 0.3}, ("triton_rope",))
    rows = rows_of_block(block, read_samples(hardware=("atlas_a3_die",)), {"atlas_a3_die": hw})
    truth = {"programs.triton_rope.code_us": 0.1, "programs.triton_rope.row_us": 0.6}
    errors = residuals(truth, rows, {"atlas_a3_die": hw})
    made = [
        s.__class__(s.hardware, s.op_type, s.shape, s.work, s.us * 2.718281828459045**e, False, False)
        for s, e in zip(rows, errors, strict=True)
    ]
    found = fit(block, made, {"atlas_a3_die": hw})
    assert found["programs.triton_rope.row_us"] == pytest.approx(0.6, rel=0.02)
    assert found["programs.triton_rope.code_us"] == pytest.approx(0.1, rel=0.1)


def test_held_out_rows_are_each_predicted_once() -> None:
    hw = {"atlas_a3_die": load_hardware("atlas_a3_die")}
    block = Block("sort", {"programs.sort.element_ns": 0.25}, ("sort",))
    rows = rows_of_block(block, read_samples(hardware=hw), hw)
    errors = held_out(block, rows, hw)
    assert sorted(s.us for s, _ in errors) == sorted(s.us for s in rows)
    low, high = interval(block, rows, hw, 10)["programs.sort.element_ns"]
    assert 0.15 < low <= high < 0.35


def test_numbers_go_where_their_names_say() -> None:
    hw = put(load_hardware("910b2"), {"memory.hbm_gbps": 5.0, "programs.swiglu.code_us": 7.0})
    assert (hw.memory.hbm_gbps, hw.programs["swiglu"].code_us) == (5.0, 7.0)


def test_fitted_numbers_are_those_that_the_calibration_fits() -> None:
    fitted: dict[str, set[str]] = {}
    for stage in STAGES:
        fitted.setdefault(stage.into, set()).update(name for block in stage.blocks for name in block.parameters)
    for name, parameters in fitted.items():
        own = load_hardware(name).profile.numbers()
        assert parameters <= {n for n, number in own.items() if number.source == "fitted"}
    everything = set().union(*fitted.values())
    for path in SHIPPED.glob("*.yaml"):
        numbers = load_hardware(path.stem).profile.numbers()
        mine = {n for n in numbers if n.startswith(("memory.", "kernel.", "programs."))}
        assert {n for n in mine if numbers[n].source == "fitted"} <= everything


@pytest.mark.slow
def test_the_shipped_profiles_equal_a_new_calibration(tmp_path: Path) -> None:
    for path in SHIPPED.glob("*.yaml"):
        shutil.copy(path, tmp_path)
    calibrate(tmp_path, check=False)
    for path in SHIPPED.glob("*.yaml"):
        new = load_hardware(str(tmp_path / path.name)).profile.numbers()
        for name, number in load_hardware(path.stem).profile.numbers().items():
            # Another machine's arithmetic may end a fit elsewhere in the last digit.
            assert new[name].value == pytest.approx(number.value, rel=0.02), f"{path.stem} {name}"
