"""Tensor parallelism in the Program: what a rank holds, which collectives it takes part in, and what is conserved."""

from __future__ import annotations

import pytest

from scenarios.batches import decode_batch
from scenarios.errors import ScenarioError
from scenarios.lowering.decoder import lower
from scenarios.lowering.parallel import parallelize, shard
from scenarios.lowering.step import Step
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Batch, Group, Program
from tests.scenarios.making import faults, scenario

QWEN3_32B = load_model("Qwen3-32B")
BATCH = Batch("decode", (Group(16, 1, 4096),))


def rank_of(model: Model, ranks: int, scattered: bool = False, batch: Batch = BATCH) -> Program:
    local = shard(model, ranks)
    return parallelize(lower(Step(local, batch, "bf16", 4608, batch.tokens)), local, scattered)


def collectives(program: Program, block: str) -> list[tuple[str, str, tuple[int, ...], tuple[int, ...]]]:
    kinds = ("all_reduce", "all_gather", "reduce_scatter")
    ops = [op for op in program.block(block).ops if op.kind in kinds]
    return [(op.kind, op.name, op.inputs[0].shape, op.out.shape) for op in ops]


def test_a_rank_of_16_holds_what_the_a3_profile_shows() -> None:
    # Profile of Qwen3-32B on 16 dies: q [16, 4, 128], k [16, 1, 128], gate_up 5120 x 3200, o 512 x 5120, logits 9496.
    local = shard(QWEN3_32B, 16)
    assert (local.heads, local.kv_heads, local.intermediate, local.vocab) == (4, 1, 1600, 9496)
    assert (local.hidden, local.whole_vocab, local.tensor_parallel) == (5120, 151_936, 16)


def test_kv_heads_repeat_where_ranks_outnumber_them() -> None:
    assert shard(QWEN3_32B, 16).kv_heads == 1  # 8 KV heads on 16 ranks: each is held twice
    assert shard(QWEN3_32B, 4).kv_heads == 2


@pytest.mark.parametrize(
    ("ranks", "words"), [(3, "64 attention heads do not divide by 3"), (128, "do not divide by 128")]
)
def test_sizes_that_do_not_divide_are_refused_with_the_reason(ranks: int, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        shard(QWEN3_32B, ranks)


def test_row_splits_sum_and_column_splits_concatenate() -> None:
    program = rank_of(QWEN3_32B, 16)
    hidden = (16, 5120)
    assert collectives(program, "layers") == [
        ("all_reduce", "o_proj.all_reduce", hidden, hidden),
        ("all_reduce", "down_proj.all_reduce", hidden, hidden),
    ]
    assert collectives(program, "embed") == [("all_reduce", "embed_tokens.all_reduce", hidden, hidden)]
    assert collectives(program, "head") == [("all_gather", "logits_all_gather", (16, 9496), (16, 151_936))]


def test_sequence_parallelism_scatters_and_gathers_in_place_of_the_reduction() -> None:
    program = rank_of(QWEN3_32B, 16, scattered=True)
    share, whole = (1, 5120), (16, 5120)
    assert collectives(program, "layers") == [
        ("all_gather", "q_proj.all_gather", share, whole),
        ("reduce_scatter", "o_proj.reduce_scatter", whole, share),
        ("all_gather", "gate_proj.all_gather", share, whole),
        ("reduce_scatter", "down_proj.reduce_scatter", whole, share),
    ]
    norms = [
        op for op in program.block("layers").ops if op.name.startswith(("post_attention_norm", "next_norm", "add_"))
    ]
    assert {op.out.shape[0] for op in norms} == {1}


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_data_flows_without_a_fault(ranks: int, scattered: bool) -> None:
    assert faults(rank_of(QWEN3_32B, ranks, scattered)) == []


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_share_the_flops_and_the_weights(ranks: int) -> None:
    def totals(program: Program) -> tuple[int, int]:
        ops = [(b.repeat, op) for b in program.blocks for op in b.ops if op.kind == "matmul"]
        flops = sum(n * work_of(op).cube_flops for n, op in ops)
        return flops, sum(n * op.inputs[1].bytes for n, op in ops)

    alone = lower(Step(QWEN3_32B, BATCH, "bf16", 4608, 16))
    whole, part = totals(alone), totals(rank_of(QWEN3_32B, ranks))
    assert part == (whole[0] // ranks, whole[1] // ranks)


def test_a_step_below_the_threshold_keeps_its_all_reduce() -> None:
    from scenarios.build import build

    result = scenario(
        model="Qwen3-32B", workload__batch=16, engine__sequence_parallel=True, engine__tensor_parallel_size=16
    )
    program = build(result, shard(QWEN3_32B, 16), decode_batch(result))
    assert {op.kind for op in program.block("layers").ops} & {"all_reduce", "reduce_scatter"} == {"all_reduce"}
