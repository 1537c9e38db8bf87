"""Gains of single optimisations: read strictly, predicted as two scenarios, scored in points and by direction."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.batches import reported_batch
from scenarios.errors import ScenarioError
from sim.accuracy.ablations import (
    AblationStep,
    ScoredStep,
    ablations_result,
    gain_of,
    measured_gain,
    price_ablations,
    read_ablations,
)
from sim.accuracy.reference import reference_csv
from sim.accuracy.steps import case_of_row
from sim.predict.steps import Case, plans_of, program_of, step_ns
from sim.step.schedule import launches

HEAD = (
    "id,hardware,model,phase,batch,query_len,context,base,step,base_ms,step_ms,gain_low,gain_high,base_kernels,"
    "step_kernels,not_modelled,scored"
)
GRAPH = "g,910b2,Qwen3-0.6B,decode,1,1,100,optimizations.kv.layout=contiguous,optimizations.graph=ge_graph"
GOOD = f"{GRAPH},8.0,4.0,,,900,400,,yes"


def priced(folder: Path, *rows: str) -> list[AblationStep]:
    path = folder / "ladders.csv"
    path.write_text("\n".join((HEAD, *rows)) + "\n")
    return list(read_ablations(path))


def scored(measured: float, predicted: float, yes: bool = True) -> ScoredStep:
    return ScoredStep("rung", measured, predicted, 0.9 * predicted, 1.1 * predicted, yes)


def test_a_row_is_a_base_a_step_and_a_gain(tmp_path: Path) -> None:
    (step_,) = priced(tmp_path, GOOD)
    assert step_.measured_gain == 2.0
    assert (step_.base.settings, step_.step) == (
        ("optimizations.kv.layout=contiguous",),
        ("optimizations.graph=ge_graph",),
    )
    assert (step_.kernels, step_.not_modelled, step_.base.scored) == ((900, 400), "", True)


def test_a_right_gain_may_be_one_of_two_wrong_times() -> None:
    step_ = replace(scored(2.0, 2.0), times_ms=(8.0, 4.0), predicted_ms=(12.0, 6.0))
    assert (step_.points, step_.errors) == (0.0, (0.5, 0.5))
    assert scored(2.0, 2.0).errors is None
    result = ablations_result([step_, scored(2.0, 2.0)], [])
    assert (result["median_points"], result["median_time_error"]) == (0.0, 0.5)
    assert [row["errors"] for row in result["rows"]] == [[0.5, 0.5], None]


def test_intervals_of_gains_that_fix_no_number_are_counted() -> None:
    inside = replace(scored(2.0, 2.1), low=1.9, high=2.3)
    outside = replace(inside, low=2.05)
    result = ablations_result([inside, outside, replace(outside, fitted=True), replace(inside, scored=False)], [])
    assert (result["unfitted"], result["unfitted_coverage"]) == (2, 0.5)
    assert result["unfitted_median_points"] == pytest.approx(100 * (1 / 2.0 - 1 / 2.1))
    assert ablations_result([], [])["unfitted_coverage"] is None


def test_a_published_range_counts_as_its_geometric_mean() -> None:
    row = {"base_ms": "", "step_ms": "", "gain_low": "1.3", "gain_high": "1.55"}
    assert gain_of(row, "x") == pytest.approx((1.3 * 1.55) ** 0.5)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (GOOD.replace(",1,1,100,", ",one,1,100,"), "2: batch: must be a whole number from 0 to 2**53, got 'one'"),
        (GOOD.replace("8.0,4.0", "8.0,"), "2: step_ms: must be a positive number up to 1e12, got ''"),
        (GOOD.replace("8.0,4.0", "-8,4.0"), "2: base_ms: must be a positive number up to 1e12, got '-8'"),
        (GOOD.replace("8.0,4.0", "nan,4.0"), "2: base_ms: must be a positive number up to 1e12, got 'nan'"),
        (GOOD.replace("8.0,4.0", ","), "2: gain_low: must be a positive number up to 1e12, got ''"),
        (GOOD.replace("900", "many"), "2: base_kernels: must be a whole number from 0 to 2**53, got 'many'"),
        (GOOD + ",more", "2: more fields than the header has columns; quote commas"),
    ],
)
def test_a_bad_row_is_one_line_with_its_place(tmp_path: Path, row: str, what: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        priced(tmp_path, row)
    assert refused.value.messages == (f"{tmp_path / 'ladders.csv'}:{what}",)


def test_a_file_without_a_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ladders.csv"
    path.write_text(GOOD.replace("g,", "id,", 1) + "\n")
    with pytest.raises(ScenarioError, match=re.escape(f"{path}:1: no column hardware")):
        list(read_ablations(path))


def test_a_gain_is_the_ratio_of_two_predicted_steps(tmp_path: Path) -> None:
    step_ = priced(tmp_path, GOOD)[0]
    ((result,), skipped) = price_ablations(iter([step_]))
    before = case_of_row(step_.base)
    assert isinstance(before, Case)
    graph = before.scenario.optimizations.model_copy(update={"graph": "ge_graph"})
    after = before.with_scenario(before.scenario.model_copy(update={"optimizations": graph}))
    batch = reported_batch(before.scenario)
    assert skipped == []
    assert result.predicted_gain == step_ns(before, batch) / step_ns(after, batch)
    assert result.low < result.predicted_gain < result.high
    assert result.kernels == (900, 400)
    assert result.predicted_kernels == tuple(len(program_of(c.scenario, c.model, batch)) for c in (before, after))


MLP = (
    "m,910b2,Qwen3-0.6B,prefill,2,64,0,optimizations.weights=fp16;optimizations.graph=ge_graph;"
    "optimizations.graph_prefill=true;optimizations.fusion.gate_up=false;optimizations.fusion.swiglu=false,"
    "optimizations.fusion.gate_up=true;optimizations.fusion.swiglu=true;optimizations.fusion.ffn=true,"
    "8.0,10.0,,,,,,yes"
)


def test_a_part_of_a_step_is_its_kernels(tmp_path: Path) -> None:
    path = tmp_path / "ladders.csv"
    path.write_text(f"{HEAD},part\n{MLP},mlp\n{MLP},\n")
    (part, whole) = list(read_ablations(path))
    result, _ = price_ablations(iter([part, whole]))
    timed = []
    for settings in (part.base.settings, (*part.base.settings, *part.step)):
        case = case_of_row(replace(part.base, settings=settings))
        assert isinstance(case, Case)
        launched = launches(plans_of(case, reported_batch(case.scenario))[0])
        mlp = ("matmul", "fused_elementwise", "ffn")
        after = ("o_proj", "q_proj", "k_proj", "v_proj", "qkv_proj", "lm_head")
        timed.append(sum(k.kernel.duration_ns for k in launched if k.kind in mlp and k.name not in after))
    assert result[0].predicted_gain == timed[0] / timed[1]
    assert result[0].low < result[0].predicted_gain < result[0].high
    # The rest of the step does not change, so less of it is gained or lost.
    assert abs(result[1].predicted_gain - 1) < abs(result[0].predicted_gain - 1)


def test_a_part_that_is_not_known_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ladders.csv"
    path.write_text(f"{HEAD},part\n{MLP},mpl\n")
    with pytest.raises(ScenarioError, match=re.escape(f"{path}:2: part: must be empty or one of mlp, got 'mpl'")):
        list(read_ablations(path))


def test_what_no_switch_expresses_is_listed_with_its_reason(tmp_path: Path) -> None:
    no_such = GOOD.replace("optimizations.graph=ge_graph", "optimizations.grpah=ge_graph")
    said = GOOD.replace("8.0,4.0,,,900,400,,", ",,,,,,it is another engine,")
    result, skipped = price_ablations(iter(priced(tmp_path, no_such, said, GOOD)))
    assert len(result) == 1
    assert "Did you mean 'graph'?" in skipped[0][1]
    assert skipped[1] == ("g", "it is another engine")


def test_points_are_of_the_bases_time() -> None:
    # Measured 10 -> 8 (gain 1.25), predicted 10 -> 9: 10 points too little; the other way round 10 too much.
    assert scored(10 / 8, 10 / 9).points == pytest.approx(-10.0)
    assert scored(10 / 9, 10 / 8).points == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("measured", "predicted", "right"),
    [(1.2, 1.01, True), (1.2, 0.99, False), (0.8, 0.99, True), (0.8, 1.5, False), (1.04, 0.5, None), (0.96, 2, None)],
)
def test_a_direction_is_asked_where_the_effect_is_clear(measured: float, predicted: float, right: bool | None) -> None:
    assert scored(measured, predicted).sign_right is right


def test_the_document_counts_what_is_scored() -> None:
    rows = [scored(1.25, 10 / 9), scored(0.8, 0.9), scored(1.25, 0.9, False), scored(1.0, 1.0)]
    result = ablations_result(rows, [("lost", "why")])
    assert (result["scored"], result["signs_right"], result["signs_asked"]) == (3, 2, 2)
    assert result["median_points"] == pytest.approx(10.0)
    assert result["unpriced"] == [{"row": "lost", "reason": "why"}]
    assert [r["measured_kernels"] for r in result["rows"]] == [None] * 4


def test_one_gain_by_name() -> None:
    assert measured_gain(reference_csv("ladders"), "qwen3_8b_eager_to_graph_b1") == pytest.approx(62.893 / 14.507)
    with pytest.raises(KeyError, match="no ladder row 'nothing'"):
        measured_gain(reference_csv("ladders"), "nothing")


@pytest.fixture(scope="module")
def reference() -> tuple[list[ScoredStep], list[tuple[str, str]]]:
    return price_ablations(read_ablations(reference_csv("ladders")))


def test_the_ladders_of_the_reference_set(reference: tuple[list[ScoredStep], list[tuple[str, str]]]) -> None:
    result = ablations_result(*reference)
    assert result["scored"] >= 13
    assert result["signs_right"] == result["signs_asked"] >= 10
    assert result["median_points"] < 6.0


def test_every_rung_of_the_reference_set_is_priced_or_says_why(
    reference: tuple[list[ScoredStep], list[tuple[str, str]]],
) -> None:
    result, skipped = reference
    rows = list(read_ablations(reference_csv("ladders")))
    assert sorted([r.id for r in result] + [name for name, _ in skipped]) == sorted(r.base.id for r in rows)
    assert all(reason for _, reason in skipped)


def test_the_feed_forward_kernel_that_lost_is_predicted_to_lose(
    reference: tuple[list[ScoredStep], list[tuple[str, str]]],
) -> None:
    (lost,) = (r for r in reference[0] if r.id == "npu_ffn_lost")
    assert lost.measured_gain == pytest.approx(7.754 / 9.276)
    assert lost.predicted_gain < 0.95
    assert abs(lost.points) < 12.0


def test_programs_have_about_the_kernels_that_were_counted(
    reference: tuple[list[ScoredStep], list[tuple[str, str]]],
) -> None:
    counted = {r.id: r for r in reference[0] if any(r.kernels)}
    pair = counted["reranker_0_6b_profiled_pair"]
    # Ours has no mask made in each forward and no transposes, so it has fewer, but loses about as large a part.
    assert 0.65 < pair.predicted_kernels[0] / pair.kernels[0] < 1.0
    assert 0.65 < pair.predicted_kernels[1] / pair.kernels[1] < 1.0
    assert pair.predicted_kernels[1] / pair.predicted_kernels[0] == pytest.approx(682 / 1582, abs=0.05)
    # A layout of weights changes no kernel.
    nz = counted["reranker_4b_nz"]
    assert nz.kernels[0] == nz.kernels[1]
    assert nz.predicted_kernels[0] == nz.predicted_kernels[1]
