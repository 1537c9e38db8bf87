"""The shipped profiles are what the reference says, and one command says it again."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from scenarios.ops.catalogue import family_of
from sim.fitting.kernels import Block, Report, fit, held_out, interval, read_samples, residuals
from sim.fitting.robust import family_sigmas
from sim.fitting.shipped import CUBE, SHARED, STAGES, Stage, calibrate, rows_of_block
from sim.hardware.numbers import with_numbers
from sim.hardware.profile import SHIPPED, load_hardware
from sim.predict.uncertainty import Z90

pytest.importorskip("scipy", reason="calibration needs the extra `fit`")


def test_a_fit_finds_the_numbers_that_made_the_times() -> None:
    hw = load_hardware("atlas_a3_die")
    block = Block("rope", {"programs.triton_rope.code_us": 0.2, "programs.triton_rope.row_us": 0.3}, ("triton_rope",))
    rows = rows_of_block(block, read_samples(hardware=("atlas_a3_die",)), {"atlas_a3_die": hw})
    truth = {"programs.triton_rope.code_us": 0.1, "programs.triton_rope.row_us": 0.6}
    errors = residuals(truth, rows, {"atlas_a3_die": hw})
    result = [
        s.__class__(s.hardware, s.op_type, s.shape, s.work, s.us * 2.718281828459045**e, False, False)
        for s, e in zip(rows, errors, strict=True)
    ]
    outcome = fit(block, result, {"atlas_a3_die": hw})
    assert outcome["programs.triton_rope.row_us"] == pytest.approx(0.6, rel=0.02)
    assert outcome["programs.triton_rope.code_us"] == pytest.approx(0.1, rel=0.1)


def test_held_out_rows_are_each_predicted_once() -> None:
    hw = {"atlas_a3_die": load_hardware("atlas_a3_die")}
    block = Block("sort", {"programs.sort.element_ns": 0.25}, ("sort",))
    rows = rows_of_block(block, read_samples(hardware=hw), hw)
    errors = held_out(block, rows, hw)
    assert sorted(s.us for s, _ in errors) == sorted(s.us for s in rows)
    low, high = interval(block, rows, hw, 10)["programs.sort.element_ns"]
    assert 0.15 < low <= high < 0.35


def test_numbers_go_where_their_names_say() -> None:
    hw = with_numbers(load_hardware("910b2"), {"memory.hbm_gbps": 5.0, "programs.swiglu.code_us": 7.0})
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


@dataclass(frozen=True)
class Calibrated:
    """One new calibration: the folder of its profiles, and its reports by stage."""

    folder: Path
    done: list[tuple[Stage, Report]]

    @property
    def unseen(self) -> list[tuple[str, str, float]]:
        """(family, shape, log error) of the rows of networks on A3 and 910B2, by fits that never saw the shape."""
        reports = [report for stage, report in self.done if stage.blocks in (CUBE, SHARED)]
        return [(family_of(s.work.program), s.shape, e) for report in reports for s, e in report.errors]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    folder = tmp_path_factory.mktemp("profiles")
    for path in SHIPPED.glob("*.yaml"):
        shutil.copy(path, folder)
    return Calibrated(folder, calibrate(folder))


def covered(errors: Iterable[tuple[str, str, float]], sigmas: Mapping[str, float], device_sigma: float) -> float:
    """Share of the errors inside the nominal 90 % interval, made as `sim.accuracy.score` makes it."""
    inside = [abs(e) <= Z90 * (sigmas[family] ** 2 + device_sigma**2) ** 0.5 for family, _, e in errors]
    return sum(inside) / len(inside)


@pytest.mark.slow
@pytest.mark.xdist_group("calibration")
def test_the_shipped_profiles_equal_a_new_calibration(calibrated: Calibrated) -> None:
    for path in SHIPPED.glob("*.yaml"):
        new = load_hardware(str(calibrated.folder / path.name)).profile.numbers()
        for name, number in load_hardware(path.stem).profile.numbers().items():
            # Another machine's arithmetic may end a fit elsewhere in the last digit.
            assert new[name].value == pytest.approx(number.value, rel=0.02), f"{path.stem} {name}"


@pytest.mark.slow
@pytest.mark.xdist_group("calibration")
@pytest.mark.parametrize("family", ["matmul", "attention", "vector", "all"])
def test_nominal_intervals_cover_the_rows_that_no_fit_has_seen(calibrated: Calibrated, family: str) -> None:
    residual = load_hardware("atlas_a2_910b2").residual
    sigmas = {name: getattr(residual, f"{name}_sigma") for name in ("matmul", "attention", "vector")}
    rows = [row for row in calibrated.unseen if family in (row[0], "all")]
    assert len(rows) >= 15
    assert 0.80 <= covered(rows, sigmas, residual.device_sigma) <= 0.97


@pytest.mark.slow
@pytest.mark.xdist_group("calibration")
@pytest.mark.parametrize("half", [0, 1])
def test_sigmas_from_half_of_the_shapes_cover_the_other_half(calibrated: Calibrated, half: int) -> None:
    shapes = sorted({shape for _, shape, _ in calibrated.unseen})
    seen = set(shapes[half::2])
    errors = [
        (s.work.program, e)
        for stage, report in calibrated.done
        if stage.blocks in (CUBE, SHARED)
        for s, e in report.errors
        if s.shape in seen
    ]
    result = {name.removeprefix("residual.").removesuffix("_sigma"): v for name, v in family_sigmas(errors).items()}
    rows = [row for row in calibrated.unseen if row[1] not in seen and row[0] in result]
    assert {"matmul", "vector"} <= set(result)
    assert 0.80 <= covered(rows, result, load_hardware("atlas_a2_910b2").residual.device_sigma) <= 0.97


def test_a_sigma_is_the_width_that_holds_nine_errors_in_ten() -> None:
    # Twenty errors, half of them negative: eighteen of them are at most 0.18 away.
    errors = [("matmul", (-1) ** i * i / 100) for i in range(1, 21)]
    assert family_sigmas(errors) == {"residual.matmul_sigma": pytest.approx(0.18 / 1.6449)}
    assert family_sigmas(errors[:14]) == {}  # too few to say
