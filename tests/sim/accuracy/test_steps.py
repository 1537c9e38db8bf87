"""A measured step as a scenario: what its columns become, and the reasons for which there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.ops.program import Group
from scenarios.speculation_settings import MAX_DRAFT
from sim.accuracy.roofline import program_roofline_us
from sim.accuracy.rows.files import StepRow
from sim.accuracy.steps import case_of_row, roofline_of
from sim.predict.steps import Case

DECODE = StepRow(
    "a step", "910b2", "Qwen3-0.6B", "decode", 300, 1, 500, 1, 1, 1, 1, 3.0, ("optimizations.weights=fp16",), True
)
PREFILL = replace(DECODE, phase="prefill", batch=4, query_len=4096, context=0)


def case(row: StepRow, hardware: str = "") -> Case:
    result = case_of_row(row, hardware)
    assert isinstance(result, Case), result
    return result


def test_a_decode_row() -> None:
    result = case(DECODE)
    batch = reported_batch(result.scenario)
    assert (batch.phase, batch.groups) == ("decode", (Group(300, 1, 500),))
    assert result.scenario.optimizations.weights == "fp16"
    assert (result.hardware.name, result.model.name) == ("atlas_a2_910b2", "Qwen3-0.6B")


def test_a_row_of_many_cards_spreads_whole_experts_over_them() -> None:
    row = replace(DECODE, model="GLM-4.5-Air", hardware="atlas_a3_die", batch=8, tp=8, dp=2, ep=16, cards=16)
    model = case(replace(row, settings=("optimizations.graph=aclgraph",))).model
    assert (model.tensor_parallel, model.data_parallel, model.expert_parallel) == (8, 2, True)
    assert (model.experts and model.experts.held, model.ranks, model.cards) == (8, 16, 16)


def test_a_prefill_row_is_one_chunk_however_long() -> None:
    batch = reported_batch(case(PREFILL).scenario)
    assert (batch.phase, batch.groups) == ("prefill", (Group(4, 4096, 0),))


def test_another_profile_takes_the_rows_place() -> None:
    assert case(replace(DECODE, hardware="no_such"), "910b4").hardware.name == "atlas_a2_910b4"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"batch": 0}, "batch, query_len or step_ms is not stated"),
        ({"query_len": 0}, "batch, query_len or step_ms is not stated"),
        ({"step_ms": 0.0}, "batch, query_len or step_ms is not stated"),
        ({"phase": "serving"}, "phase 'serving' is not decode or prefill"),
        ({"cards": 16, "tp": 8}, "16 cards are not 1 replicas of 8 ranks"),
        (
            {"cards": 8, "tp": 8, "settings": ("engine.pipeline_parallel_size=2",)},
            "8 cards are not 1 replicas of 8 ranks in 2 stages",
        ),
        ({"cards": 16, "tp": 8, "dp": 2, "ep": 4}, "experts spread over 4 of 16 cards are not modelled"),
        (
            {"query_len": MAX_DRAFT + 2},
            f"{MAX_DRAFT + 2} query tokens a request are more than a draft of {MAX_DRAFT} and one",
        ),
        ({"model": "No-Such"}, "No-Such"),
        ({"hardware": "no_such"}, "no_such"),
        ({"settings": ("optimizations.wieghts=fp16",)}, "Did you mean 'weights'?"),
        (
            {"settings": ("optimizations.kv.dtype=fp16", "optimizations.weights=bf16")},
            "the fused kernels take one type",
        ),
    ],
)
def test_a_row_without_a_scenario_says_why(changed: dict[str, object], reason: str) -> None:
    result = case_of_row(replace(DECODE, **changed))
    assert isinstance(result, str)
    assert reason in result


def test_the_roofline_of_a_step_is_the_sum_of_its_kernels() -> None:
    result = case(DECODE)
    outcome = build(result.scenario, result.model, reported_batch(result.scenario))
    assert roofline_of(result) == program_roofline_us(outcome, result.hardware)


def test_stages_are_those_of_the_settings() -> None:
    row = replace(DECODE, cards=2, settings=("engine.pipeline_parallel_size=2",))
    case = case_of_row(row)
    assert isinstance(case, Case), case
    assert (case.scenario.engine.pipeline_parallel_size, case.scenario.engine.tensor_parallel_size) == (2, 1)
