"""Weights that replicas hold in slices: what each product becomes, and what is refused."""

from __future__ import annotations

import pytest

from scenarios.build import problems_of
from scenarios.checks import check
from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.program import Op
from scenarios.schema import Scenario
from tests.scenarios.making import LATENT, TINY, program, races, scenario


def shared(**settings: object) -> Scenario:
    usual = {"workload__batch": 3, "engine__data_parallel_size": 2, "engine__enable_expert_parallel": True}
    return scenario(**{**usual, "optimizations__graph": "aclgraph", **settings})


def replicas(model: Model, count: int = 2) -> Model:
    return shard(model, 1, replicas=count, expert_parallel=True)


def ops(result: Scenario, model: Model, block: str) -> dict[str, Op]:
    return {op.name: op for op in program(result, model).block(block).ops}


def of(name: str, size: int = 2) -> dict[str, object]:
    return {"engine__finegrained_tp_config": {f"{name}_tensor_parallel_size": size}}


def test_an_output_projection_multiplies_a_slice_of_columns_for_the_rows_of_all() -> None:
    model = replicas(LATENT)
    result = shared(**of("oproj"))
    assert problems_of(result, model) == []
    assert races(program(result, model)) == []
    layer = ops(result, model, "layers")
    whole = ops(shared(), model, "layers")["o_proj"]
    (rows, width), (outputs, _) = whole.inputs[0].shape, whole.inputs[1].shape
    names = [name for name in layer if name.startswith("o_proj")]
    assert names == [
        "o_proj.by_rank", "o_proj.clear", "o_proj.all_to_all", "o_proj", "o_proj.copy", "o_proj.reduce_scatter",
    ]  # fmt: skip
    assert layer["o_proj"].inputs[0].shape == (2 * rows, width // 2)
    assert layer["o_proj"].inputs[1].shape == (outputs, width // 2)
    assert layer["o_proj.reduce_scatter"].out == whole.out
    assert layer["o_proj.all_to_all"].attr("ranks") == 2


def test_a_head_gathers_rows_and_deals_logits_out() -> None:
    model = replicas(LATENT)
    head, whole = (ops(shared(**more), model, "head") for more in (of("lmhead"), {}))
    rows, hidden = whole["lm_head"].inputs[0].shape
    assert head["lm_head.all_gather"].out.shape == head["lm_head"].inputs[0].shape == (2 * rows, hidden)
    assert head["lm_head"].out.shape == (2 * rows, model.vocab // 2)
    assert head["lm_head.all_to_all"].out == whole["lm_head"].out


def test_an_embedding_and_the_plain_mlp_of_dense_layers_are_summed_over_the_group() -> None:
    model = replicas(LATENT)
    embed = ops(shared(**of("embedding")), model, "embed")
    assert [name for name in embed if name.startswith("embed")] == [
        "embed_tokens.all_gather", "embed_tokens", "embed_tokens.reduce_scatter",
    ]  # fmt: skip
    assert embed["embed_tokens"].inputs[0].shape == (model.vocab // 2, model.hidden)
    result = shared(**of("mlp"))
    dense, sparse = (ops(result, model, block) for block in ("dense_layers", "layers"))
    rows = dense["mlp.all_gather"].inputs[0].shape[0]
    assert dense["down_proj"].inputs[0].shape == (2 * rows, model.intermediate // 2)
    assert dense["down_proj"].inputs[1].shape == (model.hidden, model.intermediate // 2)
    assert dense["mlp.reduce_scatter"].out.name == "mlp_out"
    assert "mlp.all_gather" not in sparse


@pytest.mark.parametrize(
    ("model", "settings", "what"),
    [
        (replicas(LATENT), of("lmhead", 3), "must divide the 2 replicas, got 3"),
        (replicas(LATENT), of("lmhead", 1), "has no effect where every size is 1"),
        (replicas(load_model("Qwen3-30B-A3B")), of("mlp"), "finds no plain MLP"),
        (shard(TINY, 1, replicas=2), {**of("lmhead"), "engine__enable_expert_parallel": False}, "step together"),
        (shard(LATENT, 2, 2, expert_parallel=True), {**of("lmhead"), "engine__tensor_parallel_size": 2}, "size 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused(model: Model, settings: dict[str, object], what: str) -> None:
    problems = problems_of(shared(**settings), model)
    assert len(problems) == 1
    assert problems[0][0].startswith("engine.finegrained_tp_config")
    assert what in problems[0][1]


def test_an_output_projection_is_not_shared_op_by_op() -> None:
    (problem,) = check(shared(**{**of("oproj"), "optimizations__graph": "eager"}))
    assert problem.where == "engine.finegrained_tp_config.oproj_tensor_parallel_size"
    assert problem.what.startswith("needs a captured graph")
