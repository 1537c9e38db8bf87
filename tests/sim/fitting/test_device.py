"""Fits to microbenchmarks of a machine whose numbers are known: found where the rows tell them, said where not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from device.microbench.plan import trials
from scenarios.build import build
from scenarios.errors import ScenarioError
from scenarios.exchange.timings import STEP, SYNCHRONIZE, Timing, Timings
from scenarios.ops.catalogue import CATALOGUE, kind_of, work_of
from scenarios.ops.program import Batch, Group, Op, Tensor
from sim.fitting.calibrated import Calibrated, calibrated
from sim.fitting.collectives import with_links
from sim.fitting.cpu import constant, fit_program, held_out, reference_us, samples_of
from sim.fitting.profile_file import profile_text, ready, write_profile
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.kernel.price import price
from tests.sim.timing_maker import HOST_US, REFERENCE_US, START_US, TRUE, machine, plain_trials, timings

BASE = load_hardware("cpu")


@pytest.fixture(scope="module")
def found() -> Calibrated:
    return calibrated(timings(machine()), BASE, draws=12)


@pytest.mark.parametrize("program", ["matmul", "attention", "rms_norm", "add", "mul", "silu"])
def test_known_parameters_lie_in_their_intervals(found: Calibrated, program: str) -> None:
    for effect in ("row_us", "element_ns", "mac_ns"):
        name, true = f"programs.{program}.{effect}", getattr(TRUE[program], effect)
        if name in found.unknown:
            assert true == 0 or effect == "row_us"  # the columns of a product go with its weight's elements
            continue
        if true:
            number = found.numbers[name]
            assert number.source == "fitted"
            assert 0.9 * number.low <= true <= 1.1 * number.high
            assert number.value == pytest.approx(true, rel=0.15)
    number = found.numbers[f"programs.{program}.fixed_us"]
    whole = number.value + found.numbers["kernel.start_us"].value
    assert whole == pytest.approx(TRUE[program].fixed_us + START_US, rel=0.15)


def test_what_stands_around_the_programs(found: Calibrated) -> None:
    assert found.numbers["host.tiling_us"].value == pytest.approx(HOST_US)
    assert found.numbers["reference_us"].value == pytest.approx(REFERENCE_US, rel=0.21)
    assert found.numbers["memory.core_l2_gbps"].value == pytest.approx(60, rel=0.05)
    assert found.numbers["memory.l2_read_gbps"].value == pytest.approx(40, rel=0.05)
    assert found.numbers["memory.hbm_gbps"].value == pytest.approx(10, rel=0.05)
    assert (found.numbers["chip.l2_bytes"].value, found.numbers["chip.l2_bytes"].source) == (32 << 20, "spec")


def test_what_no_row_speaks_of_is_said_and_stays_assumed(found: Calibrated) -> None:
    assert found.unknown["collective.hccs_gbps"] == "no collectives were timed"
    assert found.unknown["graph.mix_gap_ns"] == "too few compiled pieces were timed"
    text = "".join(profile_text(found, timings(machine()), "mine"))
    assert "# Not identified: collective.hccs_gbps: no collectives were timed" in text
    assert "# Not timed: weight_format: a CPU has no cube" in text
    assert found.hardware.collective.hccs_gbps == BASE.collective.hccs_gbps


def test_an_effect_that_the_rows_cannot_tell_is_left_out_and_not_invented() -> None:
    """Of norms over rows of one length, rows and elements are the same thing."""
    result = timings(machine())
    samples = samples_of(result, reference_us(result), BASE)["rms_norm"]
    alike = [s for s in samples if s.work.shape.cols == 320]  # type: ignore[union-attr]
    fit = fit_program("rms_norm", alike, draws=20)
    assert set(fit.unknown) & {"row_us", "element_ns"}
    assert len(fit.values) == 2


def test_held_out_shapes_are_predicted_as_well_as_their_noise_allows() -> None:
    result = timings(machine(), noise=0.02)
    fit = held_out(fit_program("matmul", samples_of(result, reference_us(result), BASE)["matmul"], draws=10))
    errors = sorted(abs(e) for e in fit.errors)
    assert len(errors) == len(fit.samples)
    assert errors[int(0.9 * len(errors))] < 0.08


def test_the_machines_drift_is_not_taken_for_the_ops_own() -> None:
    """Trials at different speeds of the machine, each with its reference, are one machine."""
    result = timings(machine(), noise=1e-6)
    steady = samples_of(result, REFERENCE_US, BASE)["silu"]
    by_shape: dict[str, set[float]] = {}
    for sample in steady:
        by_shape.setdefault(sample.shape, set()).add(round(sample.us, 3))
    assert all(max(times) - min(times) < 0.01 for times in by_shape.values())


def test_the_profile_that_is_written_prices_as_the_fit_does(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    profile = write_profile(out, timings(machine(), plan=plain_trials()[:5]), BASE)
    hw = load_hardware(str(out))
    assert (hw.name, hw.profile.device) == ("mine", "cpu")
    assert hw.programs["matmul"].mac_ns == pytest.approx(profile.numbers["programs.matmul.mac_ns"].value, rel=0.01)
    numbers = hw.profile.numbers()
    assert {n.source for n in numbers.values()} == {"spec", "fitted", "measured", "assumed"}
    assert all(
        "2026-01-01" in n.origin and "torch 2.13.0" in n.origin for n in numbers.values() if n.source == "fitted"
    )
    assert hw.profile.reference_us is not None
    assert numbers["programs.matmul.mac_ns"].low is not None


# ---- bad input ----


def test_no_rows_no_profile() -> None:
    empty = replace(timings(machine(), plan=()), rows=())
    with pytest.raises(ScenarioError, match="there are no rows to fit to"):
        calibrated(empty, BASE)


def test_rows_of_steps_alone_give_no_program_and_no_failure() -> None:
    result = timings(machine(), plan=plain_trials()[:3])
    steps = replace(result, rows=tuple(row for row in result.rows if row.kind == STEP))
    outcome = calibrated(steps, BASE, draws=4)
    assert not outcome.fits
    assert outcome.unknown["fixed_us.ai_cpu"] == "no small preparation was timed"


def test_without_scipy_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.startswith("scipy")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ScenarioError) as told:
        ready("cpu", tmp_path / "out.yaml", "")
    assert told.value.messages == ("calibrate: scipy is not installed; pip install 'ascend-whatif[fit]'",)


def test_a_base_for_another_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as told:
        ready("cpu", tmp_path / "out.yaml", "atlas_a3_die")
    assert told.value.messages == (
        "--hardware: atlas_a3_die is a profile for npu, and --backend is cpu; one for it is cpu",
    )
    with pytest.raises(ScenarioError, match="is a folder"):
        ready("cpu", tmp_path, "")


# ---- an accelerator ----


def test_an_npus_own_numbers_are_found_from_its_rows(tmp_path: Path) -> None:
    base = load_hardware("atlas_a2_910b2")
    norm = base.programs["rms_norm_short"]
    slower = replace(norm, start_us=1.5 * norm.start_us, element_ns=2 * norm.element_ns)
    true = replace(base, programs={**base.programs, "rms_norm_short": slower})
    plan = [trial for trial in plain_trials() if "fused" in trial.name]
    result = timings(true, noise=0.01, plan=plan)
    norms = tuple(row for row in result.rows if row.kind in ("rms_norm", STEP))
    result = replace(result, rows=norms, about={**result.about, "backend": "npu"})
    out = tmp_path / "npu.yaml"
    profile = write_profile(out, result, base)
    hw = load_hardware(str(out))
    assert "rms_norm_short" in [fit.program for fit in profile.fits]
    errors = sorted(abs(e) for e in profile.fits[0].errors)
    assert errors[len(errors) // 2] < 0.05
    assert hw.programs["swiglu"] == base.programs["swiglu"]  # what was not timed is the base's
    assert hw.programs["matmul"] == base.programs["matmul"]
    assert profile.unknown["collective"].startswith("no collectives were timed")
    assert "host.aten_python_us" in profile.unknown  # these steps are a microsecond long: nothing waits for their host


#: Microseconds of an aten call, and of one that ends in a matmul or a fused kernel, on the made-up machine.
ATEN_US, OTHER_US = 11.0, 70.0


def with_host(result: Timings, base: HardwareProfile) -> Timings:
    """`result` with steps as long as their host's calls, and collectives of the chip's own links."""
    rows = [row for row in result.rows if row.kind != STEP]
    for step in (row for row in result.rows if row.kind == STEP):
        mine = [row for row in rows if row.trial == step.trial]
        aten = sum(CATALOGUE[row.kind].host == "aten" for row in mine)
        each = base.host.tiling_us + base.host.enqueue_us
        long_us = aten * ATEN_US + (len(mine) - aten) * OTHER_US + len(mine) * each + base.host.synchronize_us
        rows.append(replace(step, raw_us=long_us))
    links = with_links(base, {"aiv_gbps": 0.6 * base.collective.aiv_gbps})
    for size in (1 << 12, 1 << 15, 1 << 18, 1 << 21, 1 << 24):
        x = Tensor("x", (8, size // 16), "bf16")
        op = Op("all_reduce", "all_reduce of 2", (x,), (x,), (("ranks", 2),))
        us = price(work_of(op), links).duration_ns / 1000
        rows.append(Timing("all_reduce", f"{size} bytes", "torch", (op,), us, us, us, us, REFERENCE_US, 25))
    return replace(result, rows=tuple(rows), about={**result.about, "backend": "npu"})


def test_an_npus_host_and_links_are_found_from_its_rows() -> None:
    base = load_hardware("atlas_a2_910b2")
    kinds = ("rms_norm", "add", "mul", STEP, "silu", SYNCHRONIZE)
    result = timings(base, noise=0.01, plan=[trial for trial in plain_trials() if "decode" in trial.name])
    few = replace(result, rows=tuple(row for row in result.rows if row.kind in kinds))
    found = calibrated(with_host(few, base), base, draws=12)
    assert found.numbers["host.aten_python_us"].value == pytest.approx(ATEN_US, rel=0.02)
    assert found.numbers["host.fused_op_python_us"].value == pytest.approx(OTHER_US, rel=0.02)
    assert found.numbers["host.synchronize_us"].source == "measured"
    assert found.hardware.host.matmul_python_us == found.hardware.host.fused_op_python_us
    rate = found.numbers["collective.aiv_gbps"]
    assert rate.low <= rate.value <= rate.high
    assert rate.value == pytest.approx(0.6 * base.collective.aiv_gbps, rel=0.1)
    assert found.hardware.collective.aiv_gbps == rate.value
    assert "collective.ai_cpu_start_us" not in found.numbers  # no such message goes by the AI CPU here
    assert not {"host.aten_python_us", "collective"} & set(found.unknown)


def test_a_row_of_a_ragged_batch_counts_as_the_calls_that_it_was() -> None:
    """Two requests of 50 and 49 tokens are two calls, which see 51 + 50 keys together."""
    trial = next(t for t in trials() if t.ragged)
    batch = Batch("decode", (Group(1, 1, 50), Group(1, 1, 49)))
    program = build(trial.scenario, trial.model, batch)
    op = next(issued.op for issued in program if kind_of(issued.op).family == "attention")
    row = Timing(op.kind, trial.name, "composed", (op,), 200.0, 190.0, 210.0, 200.0, REFERENCE_US, 5)
    (sample,) = samples_of(Timings({}, "plan", True, (row,)), REFERENCE_US, BASE)["attention_paged"]
    heads, dim, kv = trial.model.heads, trial.model.head_dim, trial.model.kv_heads
    expected = (2, 2 * heads, 2 * 101 * kv * dim / 1000, 2 * dim * heads * 101 / 1000)
    assert sample.features == pytest.approx(expected)
    assert sample.us == 200


def test_a_program_that_has_one_shape_in_all_steps_takes_its_median() -> None:
    """The template of the mask: priced as timed once ten trials have timed it, and not before."""
    trial = next(t for t in trials() if t.ragged)
    program = build(trial.scenario, trial.model, Batch("decode", (Group(1, 1, 50),)))
    op = next(issued.op for issued in program if issued.op.name == "prepare.tril")
    times = (900.0, 1000.0, 1100.0, 1200.0, 1300.0, 1250.0, 1225.0, 1210.0, 1190.0, 5000.0, 1200.0)
    rows = tuple(
        Timing(op.kind, f"trial {n}", "torch", (op,), us, us, us, us, REFERENCE_US, 5) for n, us in enumerate(times)
    )
    samples = samples_of(Timings({}, "plan", True, rows), REFERENCE_US, BASE)[op.kind]
    fit = constant(op.kind, samples)
    assert fit is not None
    assert fit.values["fixed_us"] + samples[0].floor_us == pytest.approx(1200.0)
    low, high = fit.intervals["fixed_us"]
    assert low + samples[0].floor_us == pytest.approx(950.0)
    assert high + samples[0].floor_us == pytest.approx(3150.0)
    assert constant(op.kind, samples[:9]) is None
