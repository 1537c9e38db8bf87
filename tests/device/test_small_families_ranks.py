"""Families whose layers differ on two gloo ranks: sharded heads, states, sinks and biases give the logits of one."""

from __future__ import annotations

import pytest
import torch

from device.measure.numerics import Run
from device.ranks.spawn import on_ranks
from tests.device.making import WIDE_REFERENCE, prompts
from tests.device.ranks import Case, Cases
from tests.device.small import small
from tests.device.test_small_families import fused_of
from tests.scenarios.making import bare, switched

NAMES = (
    "gpt_oss",
    "gemma4",
    "qwen3_next",
    "llama4",
    "nemotron_h",
    "lfm2",
    "hunyuan",
    "olmo3",
    "step3p5",
    "PanguProMoE",
    "kimi_linear",
    "baichuan with ALiBi",
    "mimo_v2_flash",
    "cohere with norms of each head",
    "telechat",
    "afmoe",
    "nemotron_h with latent experts",
    "deepseek_v4",
    "step3",
)
SIZES = {"workload__batch": 2, "workload__input_tokens": 40, "workload__output_tokens": 8}


def case(name: str, ranks: int) -> Case:
    """The model with every fusion that it has a use for, on `ranks`; one decode step behind the prompts."""
    model = small(name)
    scenario = switched(bare(model, **SIZES), **fused_of(name))
    engine = scenario.engine.model_copy(update={"tensor_parallel_size": ranks})
    given = prompts(model.vocab, (40, 33))
    return Case(scenario.model_copy(update={"engine": engine}), model, WIDE_REFERENCE, given, [[1, 2]])


@pytest.fixture(scope="module")
def together() -> dict[str, Run]:
    answers = on_ranks(Cases({name: case(name, 2) for name in NAMES}), 2, "gloo", timeout_s=110)
    assert answers[0] == answers[1]
    return {name: Run(tokens, torch.tensor(logits)) for name, (tokens, logits) in answers[0].items()}


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_compute_what_one_does(together: dict[str, Run], name: str) -> None:
    alone = case(name, 1).run(None)
    assert ((together[name].logits - alone.logits).norm() / alone.logits.norm()).item() < 2e-5
