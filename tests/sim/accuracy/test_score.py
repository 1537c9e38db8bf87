"""Errors, percentiles and coverage by hand; kernels and steps priced as the rest of the package prices them."""

from __future__ import annotations

from dataclasses import replace
from math import exp, hypot
from pathlib import Path

import pytest

from scenarios.batches import reported_batch
from sim.accuracy.roofline import roofline_us
from sim.accuracy.rows.files import KernelRow, StepRow, read_kernels
from sim.accuracy.rows.op_types import work_of_row
from sim.accuracy.score import (
    Scored,
    Skipped,
    coverage,
    errors,
    percentile,
    price_kernels,
    price_steps,
    rows_result,
    steps_result,
)
from sim.accuracy.steps import case_of_row, roofline_of
from sim.hardware.profile import load_hardware
from sim.kernel.price import price
from sim.kernel.ranges import extra_sigma, share_of
from sim.predict.steps import interval_ns
from sim.predict.uncertainty import T90


def scored(measured: float, predicted: float, *, low: float = 0.0, high: float = 1e9, yes: bool = True) -> Scored:
    return Scored("row", "MatMul", measured, predicted, low, high, 2 * measured, yes)


def kernel(op_type: str = "MatMulV2", shapes: str = "1,4096;4096,4096", *, hardware: str = "910b2", **of) -> KernelRow:
    return replace(KernelRow("row", hardware, op_type, shapes, "DT_BF16;DT_BF16", 20.0, 0, False, True), **of)


STEP = StepRow(
    "step", "910b2", "Qwen3-0.6B", "decode", 2, 1, 500, 1, 1, 1, 1, 3.0, ("optimizations.graph=ge_graph",), True
)


def test_an_error_is_predicted_over_measured_less_one() -> None:
    assert scored(10.0, 12.0).error == pytest.approx(0.2)
    assert scored(10.0, 8.0).error == pytest.approx(-0.2)
    assert scored(10.0, 12.0).roofline_error == pytest.approx(1.0)


def test_errors_of_four_rows_by_hand() -> None:
    rows = [scored(10.0, p) for p in (11.0, 8.0, 10.0, 14.0)]
    result = errors(rows)
    # Absolute errors 0, 0.1, 0.2, 0.4; the 90th percentile lies 0.7 of the way from 0.2 to 0.4.
    assert result == {
        "rows": 4, "median": pytest.approx(0.15), "p90": pytest.approx(0.34), "worst": pytest.approx(0.4),
        "bias": pytest.approx(0.05), "roofline_median": pytest.approx(1.0),
    }  # fmt: skip


def test_no_rows_have_no_error() -> None:
    assert set(errors([]).values()) == {0, None}
    assert coverage([]) is None


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 3.0), (0.9, 4.6), (1.0, 5.0)])
def test_percentiles_are_numpys_linear_ones(share: float, expected: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], share) == pytest.approx(expected)
    assert percentile([7.0], share) == 7.0


def test_coverage_counts_the_ends_of_an_interval() -> None:
    rows = [scored(10.0, 11.0, low=low, high=high) for low, high in ((10.0, 12.0), (9.0, 10.0), (10.1, 12), (8, 9.9))]
    assert coverage(rows) == 0.5


def test_a_kernel_has_its_price_its_interval_and_its_roofline() -> None:
    ((row,), skipped) = price_kernels([kernel()])
    hw = load_hardware("910b2")
    work = work_of_row("MatMulV2", "1,4096;4096,4096", "DT_BF16;DT_BF16", 0)
    us = price(work, hw).duration_ns / 1000
    own = share_of("matmul") * hw.residual.matmul_sigma
    width = T90 * hypot(own, extra_sigma(work, "atlas_a2_910b2"), hw.residual.device_sigma)
    assert skipped == []
    assert (row.measured_us, row.predicted_us, row.roofline_us) == (20.0, us, roofline_us(work, hw))
    assert (row.low_us, row.high_us) == (pytest.approx(us * exp(-width)), pytest.approx(us * exp(width)))


def test_a_kernel_replayed_alone_has_its_instructions_and_data_at_hand() -> None:
    norm = kernel("RmsNorm", "16,5120;5120")
    ((cold,), _), ((warm,), _) = price_kernels([norm]), price_kernels([replace(norm, replayed=True)])
    assert warm.predicted_us < 0.9 * cold.predicted_us


def test_another_profile_takes_the_place_of_the_rows() -> None:
    ((own,), _), ((other,), _) = price_kernels([kernel()]), price_kernels([kernel(hardware="no_such")], "910b4")
    assert other.predicted_us > own.predicted_us


def test_what_cannot_be_priced_is_listed_with_its_reason() -> None:
    rows = [kernel("MadeupMatMul"), kernel(), kernel(hardware="tpu")]
    result, skipped = price_kernels(rows)
    assert len(result) == 1
    assert "MadeupMatMul" in skipped[0].reason
    assert "tpu" in skipped[1].reason


def test_a_vector_kernel_of_an_unknown_type_is_a_plain_one_that_nobody_is_sure_of() -> None:
    (unknown, plain), skipped = price_kernels([kernel("Madeup", "64,4096;64,4096"), kernel("Add", "64,4096;64,4096")])
    assert not skipped
    assert (unknown.guessed, plain.guessed) == (True, False)
    assert unknown.predicted_us == pytest.approx(plain.predicted_us, rel=0.5)
    assert unknown.high_us / unknown.predicted_us > 2 * plain.high_us / plain.predicted_us
    assert rows_result([unknown, plain], [])["guessed"] == ["Madeup"]
    for shapes in ("", "a,b"):  # without shapes there is nothing to price
        assert "Madeup is not known" in price_kernels([kernel("Madeup", shapes)])[1][0].reason


def test_unscored_rows_are_priced_and_not_counted() -> None:
    outcome, _ = price_kernels([kernel(), kernel(scored=False)])
    result = rows_result(outcome, [Skipped("lost", "no price")])
    assert (result["rows"], result["unscored"], len(result["unpriced"])) == (1, 1, 1)
    assert result["unpriced"] == [{"row": "lost", "reason": "no price"}]
    assert list(result["by_kind"]) == ["MatMulV2"]


def test_cores_are_held_against_the_blocks_that_a_profiler_counted() -> None:
    row = kernel(cores=24, in_core_us=18.5)
    priced, _ = price_kernels([row, replace(row, cores=1), kernel()])
    result = rows_result(priced, [])
    assert result["cores"] == result["by_kind"]["MatMulV2"]["cores"] == {"rows": 2, "exact": 1}
    first, _, unknown = result["listed"]
    assert (first["cores"], first["measured_cores"], first["measured_start_us"]) == (24, 24, pytest.approx(1.5))
    assert (unknown["measured_cores"], unknown["measured_start_us"]) == (None, None)


def test_the_exchange_form_with_blocks_and_pipe_times(tmp_path: Path) -> None:
    (tmp_path / "k.csv").write_text(
        "hardware,mode,op_type,input_shapes,output_shapes,mean_us,block_num,aic_us,aiv_us\n"
        'atlas_a2_910b2,ge_graph (TorchAir static),BroadcastTo,"1,64;2","48,64",7.3,48,,3.5\n'
    )
    (row,) = read_kernels(tmp_path / "k.csv")
    assert (row.output_shapes, row.cores, row.in_core_us, row.static) == ("48,64", 48, 3.5, True)


def test_a_step_is_the_prediction_of_its_scenario() -> None:
    ((row,), skipped) = price_steps([STEP])
    case = case_of_row(STEP)
    assert not isinstance(case, str)
    expected = interval_ns(case, reported_batch(case.scenario))
    assert skipped == []
    assert (row.predicted_us, row.low_us, row.high_us) == tuple(ns / 1000 for ns in expected)
    assert (row.measured_us, row.roofline_us) == (3000.0, roofline_of(case))


def test_the_steps_document_has_every_row_and_counts_the_scored() -> None:
    outcome, skipped = price_steps(
        [STEP, replace(STEP, id="other", scored=False), replace(STEP, id="many", phase="serving")]
    )
    result = steps_result(outcome, skipped)
    assert [(r["id"], r["scored"]) for r in result["rows"]] == [("step", True), ("other", False)]
    assert result["scored"] == 1
    assert [u["row"] for u in result["unpriced"]] == ["many"]
    assert result["rows"][0]["error"] == pytest.approx(result["rows"][0]["predicted_ms"] / 3.0 - 1)
