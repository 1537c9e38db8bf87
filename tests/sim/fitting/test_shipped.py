"""The shipped profiles are what the reference says, and one command says it again."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path

import pytest

from scenarios.ops.catalogue import family_of
from sim.fitting.kernels import Block, Report, fit, held_out, interval, read_samples, residuals
from sim.fitting.robust import family_sigmas
from sim.fitting.shipped import CUBE, STAGES, Stage, calibrate, fit_vector, rows_of_block
from sim.fitting.vector import EFFECTS, FAMILY, VectorRow, fit_laws, unseen
from sim.hardware.numbers import with_numbers
from sim.hardware.profile import SHIPPED, load_hardware
from sim.kernel.vector_tiling import TILINGS
from sim.predict.uncertainty import Z90

pytest.importorskip("scipy", reason="calibration needs the extra `fit`")


def test_a_fit_finds_the_numbers_that_made_the_times() -> None:
    hw = load_hardware("atlas_a3_die")
    block = Block("int8", {"programs.quant_matmul.fixed_us": 9.0}, ("quant_matmul",))
    rows = rows_of_block(block, read_samples(hardware=("atlas_a3_die",)), {"atlas_a3_die": hw})
    errors = residuals({"programs.quant_matmul.fixed_us": 4.0}, rows, {"atlas_a3_die": hw})
    result = [replace(s, us=s.us * exp(e)) for s, e in zip(rows, errors, strict=True)]
    assert fit(block, result, {"atlas_a3_die": hw})["programs.quant_matmul.fixed_us"] == pytest.approx(4.0, rel=0.02)


def test_held_out_rows_are_each_predicted_once() -> None:
    hw = {"atlas_a3_die": load_hardware("atlas_a3_die")}
    block = Block("int8", {"programs.quant_matmul.fixed_us": 9.0}, ("quant_matmul",))
    rows = rows_of_block(block, read_samples(hardware=hw), hw)
    errors = held_out(block, rows, hw)
    assert sorted(s.us for s, _ in errors) == sorted(s.us for s in rows)
    low, high = interval(block, rows, hw, 10)["programs.quant_matmul.fixed_us"]
    assert 3 < low <= high < 20


def test_numbers_go_where_their_names_say() -> None:
    hw = with_numbers(load_hardware("910b2"), {"memory.hbm_gbps": 5.0, "programs.swiglu.start_us": 7.0})
    assert (hw.memory.hbm_gbps, hw.programs["swiglu"].start_us) == (5.0, 7.0)


# ---- vector kernels ----


def made(kind: str, start: float, core: float, element_ns: float, cores: int, elements: int) -> VectorRow:
    us = start + core * cores + element_ns * elements / 1000
    return VectorRow(kind, f"{cores} {elements}", "here", "model", cores, elements, 0.0, us)


def test_many_rows_of_a_kind_have_a_law_of_their_own() -> None:
    sizes = [(1, 100), (4, 4000), (16, 8000), (48, 1000), (48, 50_000), (48, 200_000), (30, 3000)]
    laws = fit_laws([made("softmax", 2.5, 0.2, 0.3, *size) for size in sizes])
    start, core, element_ns = laws.numbers("softmax")
    assert start == pytest.approx(2.5, rel=0.05)
    assert core == pytest.approx(0.2, rel=0.05)
    assert element_ns == pytest.approx(0.3, rel=0.05)


def test_a_kind_without_rows_has_its_familys_law_and_one_of_another_family_not() -> None:
    sizes = [(1, 100), (16, 8000), (48, 1000), (48, 200_000)]
    laws = fit_laws([made(kind, 6.0, 0.4, 2.0, *size) for kind in ("softmax", "sort", "argmax") for size in sizes])
    start, core, element_ns = laws.numbers("moe_gating_top_k")
    assert (start, core, element_ns) > (3.0, 0.25, 1.0)
    assert laws.numbers("copy")[0] == pytest.approx(1.5, rel=0.01)


def test_each_row_is_predicted_by_laws_that_have_not_seen_it() -> None:
    rows = [made("softmax", 2.5, 0.2, 0.3, cores, 1000 * cores) for cores in (1, 2, 4, 8, 16, 32, 48)]
    rows[3] = replace(rows[3], us=10 * rows[3].us)  # a blunder, which its own laws would follow a little
    errors = {row.shape: error for row, error in unseen(rows, "shape")}
    assert len(errors) == len(rows)
    assert errors[rows[3].shape] < -2


def test_every_law_of_the_table_has_a_family() -> None:
    assert set(FAMILY) == set(TILINGS)


def test_fitted_numbers_are_those_that_the_calibration_fits() -> None:
    fitted: dict[str, set[str]] = {}
    for stage in STAGES:
        fitted.setdefault(stage.into, set()).update(name for block in stage.blocks for name in block.parameters)
    laws = {f"programs.{kind}.{effect}" for kind in FAMILY for effect in EFFECTS}
    fitted["atlas_a2_910b2"] |= laws
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
    vector: list[tuple[VectorRow, float]]

    @property
    def errors(self) -> list[tuple[str, str, float]]:
        """(kind, shape, log error) of the rows on A3 and 910B2, by fits that never saw the shape."""
        reports = [report for stage, report in self.done if stage.blocks is CUBE]
        cube = [(s.work.program, s.shape, e) for report in reports for s, e in report.errors]
        return cube + [(row.kind, row.shape, e) for row, e in self.vector]

    @property
    def unseen(self) -> list[tuple[str, str, float]]:
        """The same by family."""
        return [(family_of(kind), shape, e) for kind, shape, e in self.errors]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    folder = tmp_path_factory.mktemp("profiles")
    for path in SHIPPED.glob("*.yaml"):
        shutil.copy(path, folder)
    done = calibrate(folder)
    return Calibrated(folder, done, fit_vector(folder, check=True)["atlas_a2_910b2"])


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
    errors = [(kind, e) for kind, shape, e in calibrated.errors if shape in seen]
    result = {name.removeprefix("residual.").removesuffix("_sigma"): v for name, v in family_sigmas(errors).items()}
    rows = [row for row in calibrated.unseen if row[1] not in seen and row[0] in result]
    assert {"matmul", "vector"} <= set(result)
    assert 0.80 <= covered(rows, result, load_hardware("atlas_a2_910b2").residual.device_sigma) <= 0.97


def test_a_sigma_is_the_width_that_holds_nine_errors_in_ten() -> None:
    # Twenty errors, half of them negative: eighteen of them are at most 0.18 away.
    errors = [("matmul", (-1) ** i * i / 100) for i in range(1, 21)]
    assert family_sigmas(errors) == {"residual.matmul_sigma": pytest.approx(0.18 / 2.1318)}
    assert family_sigmas(errors[:14]) == {}  # too few to say
