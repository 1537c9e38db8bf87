"""Pipeline stages on gloo: the tokens of one rank, and rounds of micro-batches that are measured on every stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from device.backends import choose
from device.measure.answer import Task, measured
from device.ranks.spawn import on_ranks
from scenarios.errors import ScenarioError
from scenarios.exchange.measured import Predicted
from scenarios.loader import load_scenario
from scenarios.models.model import Model
from scenarios.schema import Scenario
from tests.device.making import ALL_FUSED, DEEPSEEK, GLM, QWEN3, WIDE_REFERENCE, Run, plain, prompts
from tests.device.ranks import Case, StageCases
from tests.scenarios.making import scenario, switched

DEEP = replace(QWEN3, layers=5)  # 2 and 3
MEASURED = "measured"


def case(model: Model, engine: dict[str, object] | None = None, **switches: object) -> tuple[Case, Run]:
    """A run on two stages, and the same on one."""
    scenario = plain(model, **switches)
    first = Case(scenario, model, WIDE_REFERENCE, prompts(), []).run(None)
    alone = Case(scenario, model, WIDE_REFERENCE, prompts(), [first.tokens[0]] * 2)
    update = {"pipeline_parallel_size": 2, **(engine or {})}
    staged = scenario.model_copy(update={"engine": scenario.engine.model_copy(update=update)})
    return replace(alone, scenario=staged), alone.run(None)


def measured_scenario() -> Scenario:
    """Three requests of Tiny-Llama on two stages: micro-batches of two and one."""
    changed = scenario(
        model="Tiny-Llama",
        hardware="cpu",
        workload__batch=3,
        workload__input_tokens=24,
        workload__output_tokens=4,
        engine__pipeline_parallel_size=2,
    )
    fused = dict.fromkeys(("fusion__add_rms_norm", "fusion__rope", "fusion__swiglu"), False)
    return switched(changed, **fused, graph="eager", kv__layout="contiguous", overlap__prefetch=False)


def runs(cases: dict[str, tuple[Case, Run]], ranks: int, measure: Task | None = None) -> dict[str, Any]:
    stage_cases = StageCases({name: one for name, (one, _) in cases.items()}, ranks // 2, measure)
    answers = on_ranks(stage_cases, ranks, "gloo", timeout_s=110)
    told = {name: [answer[name] for answer in answers] for name in answers[0]}
    result: dict[str, Any] = {
        name: ([Run(tokens, torch.tensor(logits)) for tokens, logits in told[name]], alone)
        for name, (_, alone) in cases.items()
    }
    return result | {MEASURED: told.get(MEASURED)}


@pytest.fixture(scope="module")
def two() -> dict[str, Any]:
    paged = {**ALL_FUSED, "kv__layout": "paged", "kv__block_size": 16}
    cases = {
        "residual crosses": case(DEEP),
        "MLP output and residual cross": case(DEEP, **paged),
        "of two lengths": case(QWEN3, **ALL_FUSED),
        "dense layers, then experts": case(GLM, fusion__grouped_matmul=True),
        "latent attention, experts one by one": case(DEEPSEEK, kv__layout="paged"),
    }
    task = Task("cpu", measured_scenario(), Path(), Predicted(1000, dict.fromkeys(range(1000), 1)))
    return runs(cases, 2, task)


@pytest.fixture(scope="module")
def four() -> dict[str, Any]:
    ranks = {"tensor_parallel_size": 2}
    spread = {**ranks, "enable_expert_parallel": True}
    return runs(
        {
            "two stages of two": case(DEEP, ranks, **ALL_FUSED),
            "with experts spread in each": case(GLM, spread, fusion__grouped_matmul=True, fusion__moe_dispatch=True),
        },
        4,
    )


def check(result: tuple[list[Run], Run]) -> None:
    staged, alone = result
    for run in staged:
        assert ((run.logits - alone.logits).norm() / alone.logits.norm()).item() < 1e-6
        assert run.tokens == alone.tokens


@pytest.mark.parametrize(
    "name",
    [
        "residual crosses",
        "MLP output and residual cross",
        "of two lengths",
        "dense layers, then experts",
        "latent attention, experts one by one",
    ],
)
def test_two_stages_compute_what_one_does(two: dict[str, Any], name: str) -> None:
    check(two[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two stages of two", "with experts spread in each"])
def test_two_stages_of_two_ranks_compute_what_one_does(four: dict[str, Any], name: str) -> None:
    check(four[name])


def test_a_round_is_measured_on_each_stage_and_gives_the_tokens_of_one(two: dict[str, Any]) -> None:
    """Rank 0 answers for its stage, op by op through both micro-batches; the other stage says its round."""
    first, second = two[MEASURED]
    whole = measured_scenario()
    one = whole.model_copy(update={"engine": whole.engine.model_copy(update={"pipeline_parallel_size": 1})})
    alone = Task("cpu", one, Path(), Predicted(1000, dict.fromkeys(range(1000), 1)))(None).document
    assert [len(item["stages"]) for item in (first, second)] == [2, 2]
    assert first["stages"] == second["stages"]
    assert all(0 < stage["low_us"] <= stage["median_us"] <= stage["high_us"] for stage in first["stages"])
    assert first["ranks"] == {"in_scenario": 2, "measured": 2}
    names = [op["name"] for op in first["ops"]]
    assert names.count("send.residual") == names.count("embed_tokens") == 2  # two micro-batches
    assert "lm_head" not in names
    assert [op["index"] for op in first["ops"]] == list(range(len(names)))  # numbered through, as a prediction is
    assert sorted(first["next_ids"]) == sorted(alone["next_ids"])


def test_a_prefill_in_stages_is_refused_by_name() -> None:
    loaded = load_scenario("tiny_llama_cpu", ["workload.phase=prefill", "engine.pipeline_parallel_size=2"])
    with pytest.raises(ScenarioError) as caught:
        measured(choose("cpu"), loaded, Predicted(1, {}))
    assert caught.value.messages == (
        "--backend cpu: engine.pipeline_parallel_size: a prefill's stages are predicted from empty to empty, and only "
        "a steady round is measured; set it to 1, or workload.phase to decode",
    )
