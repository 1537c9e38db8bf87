"""What a table says of a scenario against its whole prediction: the same numbers and the same bottleneck."""

from __future__ import annotations

import pytest

from scenarios.loader import load_scenario
from scenarios.timeline import step_time
from sim.predict.brief import brief
from sim.predict.explain import diagnose
from sim.predict.predict import check, predict
from sim.predict.scenario_result import case_of
from tests.sim.step.test_lengths import shorter, what_ifs

#: One rank and many, issued in each way; experts of ranks that differ, collectives inside kernels, other steps.
CASES = {
    ("qwen3_8b_decode",): "columns",
    ("qwen3_8b_decode", "optimizations.graph=eager", "engine.task_queue_enable=2"): "columns",
    ("qwen3_8b_decode", "workload.phase=mixed", "workload.batch=3"): "columns",
    ("qwen3_8b_decode", "protocol.synchronize=layer"): "a timeline",
    ("qwen3_32b_tp16_decode",): "columns",
    ("qwen3_32b_tp16_decode", "optimizations.graph=eager", "workload.phase=prefill"): "columns",
    ("qwen3_32b_tp16_decode", "engine.sequence_parallel=false", "optimizations.fusion.matmul_all_reduce=true"): "",
    ("qwen3_30b_a3b_decode", "workload.expert_skew=0.5"): "columns",
    ("llama_3_1_70b_tp4_pp2_decode",): "a timeline",
}


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_brief_says_what_the_whole_prediction_says(case: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    name, *sets = case
    of = case_of(load_scenario(name, sets)) if "pp2" in name else shorter(name, 4, *sets)
    prediction = predict(of)
    wanted = prediction.metrics, step_time(prediction.timeline), prediction.memory, diagnose(prediction).name
    if CASES[case] == "columns":
        monkeypatch.setattr("sim.predict.predict._shown", None)
    short = brief(of)
    assert (short.metrics, short.step, short.memory, short.bottleneck) == wanted


def test_the_brief_of_every_what_if_is_that_of_its_prediction() -> None:
    compared = 0
    for case in what_ifs(shorter("qwen3_32b_tp16_decode", 2, "workload.batch=4")):
        if not check(case):
            prediction, short = predict(case), brief(case)
            assert (short.step, short.bottleneck) == (step_time(prediction.timeline), diagnose(prediction).name)
            assert short.metrics == prediction.metrics
            compared += 1
    assert compared > 20
