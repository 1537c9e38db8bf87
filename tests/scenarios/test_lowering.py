"""A decoder as eager torch code issues it: which calls, in which order, of which shapes."""

from __future__ import annotations

from collections import Counter

import pytest

from scenarios.lowering.decoder import lower
from scenarios.lowering.prepare import prepare_paged
from scenarios.lowering.step import Step
from scenarios.models.hf_config import load_model
from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.ops.program import Batch, Group, Program, Tensor
from tests.scenarios.making import BIASED, PLAIN, TINY, bare, faults, kinds, names, op, program, switched

NORM = ["cast", "pow", "reduce_mean", "adds", "rsqrt", "mul", "cast", "mul"]
ROTATE = ["mul", "slice", "neg", "slice", "concat", "mul", "add"]
ATTENTION = ["expand", "expand", "batch_matmul", "muls", "add", "cast", "softmax", "cast", "batch_matmul"]


def lowered(batch: Batch, model=TINY, **how) -> Program:
    sampling = how.pop("sampling", "greedy")
    how = {"act": "bf16", "cache_tokens": 64, "tokens": batch.tokens, **how}
    return lower(Step(model, batch, **how), sampling)


DECODE = Batch("decode", (Group(2, 1, 9),))
PREFILL = Batch("prefill", (Group(2, 5, 0),))


def test_a_layer_call_by_call() -> None:
    assert kinds(lowered(DECODE)) == [
        "matmul", "matmul", "matmul", *NORM, *NORM, *ROTATE, *ROTATE,
        "kv_cache_write", "kv_cache_write", *ATTENTION, "matmul", "add", *NORM,
        "matmul", "matmul", "silu", "mul", "matmul", "add", *NORM,
    ]  # fmt: skip


def test_a_model_without_q_and_k_norm_has_two_norms_less() -> None:
    assert kinds(lowered(DECODE, PLAIN))[3:17] == [*ROTATE, *ROTATE]
    assert len(kinds(lowered(DECODE, TINY))) - len(kinds(lowered(DECODE, PLAIN))) == 16


def test_a_bias_is_one_more_weight_of_the_projections_that_have_it() -> None:
    result = lowered(DECODE, BIASED)
    assert [t.shape for t in op(result, "q_proj").inputs] == [(2, 16), (16, 16), (16,)]
    assert [t.shape for t in op(result, "k_proj").inputs] == [(2, 16), (8, 16), (8,)]
    assert len(op(result, "o_proj").inputs) == 2


def test_the_blocks_of_a_step() -> None:
    result = lowered(DECODE)
    assert [(b.name, b.repeat, b.captured) for b in result.blocks] == [
        ("prepare", 1, False),
        ("embed", 1, False),
        ("layers", 2, False),
        ("head", 1, False),
        ("sample", 1, False),
    ]
    assert kinds(result, "embed") == ["embedding", "mul", "concat", "cos", "sin", "cast", "cast", *NORM]
    assert kinds(result, "head") == ["matmul"]
    assert kinds(result, "sample") == ["cast", "argmax", "cast"]


def test_a_layer_hands_the_next_one_its_normed_input() -> None:
    result = lowered(DECODE)
    first, last = result.block("layers").ops[0], result.block("layers").ops[-1]
    assert first.inputs[0] == result.block("embed").ops[-1].out == last.out == Tensor("normed", (2, 16), "bf16")
    assert result.block("head").ops[0].inputs[0] == last.out  # the final norm is the last layer's


def test_sampling_by_top_k_and_top_p_sorts_the_logits() -> None:
    assert kinds(lowered(DECODE, sampling="top_k_top_p"), "sample") == [
        "cast", "div", "sort", "top_k_top_p", "softmax", "div", "argmax", "cast",
    ]  # fmt: skip


def test_a_prefill_keeps_the_last_token_of_each_request_for_the_lm_head() -> None:
    result = lowered(PREFILL)
    assert kinds(result, "head") == ["index_select", "matmul"]
    assert op(result, "last_token", "head").inputs[0].shape == (10, 16)
    assert [t.shape for t in op(result, "lm_head", "head").inputs] == [(2, 16), (32, 16)]


def test_matrix_products_have_one_row_a_token_and_padding_adds_rows() -> None:
    assert op(lowered(PREFILL), "gate_proj").out.shape == (10, 24)
    padded = lowered(DECODE, tokens=4)
    assert op(padded, "gate_proj").out.shape == (4, 24)
    assert op(padded, "lm_head", "head").out.shape == (4, 32)
    assert op(padded, "argmax", "sample").inputs[0].shape == (2, 32)  # only real requests are sampled


def test_unfused_attention_repeats_keys_over_the_group_and_scores_every_pair() -> None:
    # 2 requests, 4 query heads on 2 key heads of 4, one query on 10 keys.
    result = lowered(DECODE)
    shapes = {
        name: ([t.shape for t in op(result, name).inputs], op(result, name).out.shape)
        for name in ("attn.repeat_k", "attn.qk", "attn.mask", "attn.softmax", "attn.pv")
    }
    assert shapes == {
        "attn.repeat_k": ([(2, 2, 10, 4)], (2, 4, 10, 4)),
        "attn.qk": ([(2, 4, 1, 4), (2, 4, 10, 4)], (2, 4, 1, 10)),
        "attn.mask": ([(2, 4, 1, 10), (2, 1, 1, 10)], (2, 4, 1, 10)),
        "attn.softmax": ([(2, 4, 1, 10)], (2, 4, 1, 10)),
        "attn.pv": ([(2, 4, 1, 10), (2, 4, 10, 4)], (2, 4, 4)),
    }
    # QK and PV: 2 products of 2 * 4 * [1, 4] x [4, 10].
    assert work_of(op(result, "attn.qk")).cube_flops == work_of(op(result, "attn.pv")).cube_flops == 2 * 2 * 4 * 4 * 10


def test_unfused_attention_pads_a_mixed_step_to_its_longest_request() -> None:
    mixed = Batch("mixed", (Group(3, 1, 9), Group(1, 5, 0)))
    result = lowered(mixed)
    assert op(result, "attn.qk").out.shape == (4, 4, 5, 10)  # 4 requests, 5 queries, 10 keys, each the largest
    assert op(result, "attn.pv").out.shape == (8, 4, 4)  # 3 + 5 tokens come out


def test_the_cache_reserves_the_longest_request_for_everyone() -> None:
    result = lowered(DECODE)
    assert op(result, "write_k").outputs == (Tensor("k_cache", (2, 64, 2, 4), "bf16", "kv_cache"),)
    assert [op_type_of(o) for o in result.block("layers").ops if o.kind == "kv_cache_write"] == ["Scatter", "Scatter"]


def test_rotation_copies_the_halves_that_it_reads() -> None:
    result = lowered(DECODE)
    moved = [
        (o.name, [t.name for t in o.inputs], o.out.name, o.out.shape)
        for o in result.block("layers").ops
        if o.name.startswith("rope_k.") and o.kind in ("slice", "neg", "concat")
    ]
    assert moved == [
        ("rope_k.slice_upper", ["k_normed"], "rope_k.upper", (2, 2, 2)),
        ("rope_k.negate", ["rope_k.upper"], "rope_k.neg", (2, 2, 2)),
        ("rope_k.slice_lower", ["k_normed"], "rope_k.lower", (2, 2, 2)),
        ("rope_k.rotate_half", ["rope_k.neg", "rope_k.lower"], "rope_k.rotated", (2, 2, 4)),
    ]


def test_the_preamble_of_a_static_cache_moves_one_position_on() -> None:
    assert names(lowered(DECODE), "prepare") == ["prepare.position", "prepare.mask_column"]


def test_the_preamble_of_a_paged_cache_is_the_recorded_one() -> None:
    # The eager calls before the graph in the seed's decode profile.
    block = prepare_paged(DECODE)
    assert Counter(op_type_of(o) for o in block.ops) == {
        "Add": 3, "Cast": 2, "Cumsum": 2, "FloorDiv": 1, "Tril": 1, "OnesLike": 1, "LogicalNot": 1, "Fill": 1,
        "ZerosLike": 1, "BroadcastTo": 1, "FloorMod": 1, "ReduceMax": 1, "GatherElementsV2": 1, "Mul": 1,
    }  # fmt: skip
    assert [o.name for o in block.ops if o.kind == "prepare_cpu"] == [
        "prepare.query_offsets",
        "prepare.kv_offsets",
        "prepare.block_index",
    ]


def test_the_notebooks_toggle_of_fused_norms() -> None:
    # Qwen3-8B: 145 norms (4 a layer and the first) of 8 calls and 72 adds, against 73 + 72 fused calls.
    model = load_model("Qwen3-8B")
    eager = bare(model="Qwen3-8B", workload__batch=1)
    fused = switched(eager, fusion__rms_norm=True, fusion__add_rms_norm=True)

    def norm_and_add_calls(result: Program) -> int:
        return sum("_norm" in issued.op.name or issued.op.name.startswith("add_") for issued in result)

    unfused_calls = norm_and_add_calls(program(eager, model))
    assert (unfused_calls, norm_and_add_calls(program(fused, model))) == (145 * 8 + 72, 145) == (1232, 145)
    assert len(program(eager, model)) - len(program(fused, model)) == 1232 - 145


def test_names_are_stable_and_unique() -> None:
    assert names(lowered(DECODE), "embed")[:3] == ["embed_tokens", "rotary.angles", "rotary.double"]
    for batch in (DECODE, PREFILL, Batch("mixed", (Group(3, 1, 9), Group(1, 5, 0)))):
        for model in (TINY, PLAIN, BIASED):
            assert faults(lowered(batch, model)) == []


@pytest.mark.parametrize("batch", [DECODE, PREFILL])
def test_a_step_that_was_lowered_before_is_the_same(batch: Batch) -> None:
    steps = [
        Step(model, batch, act=act, cache_tokens=10, tokens=batch.tokens)
        for model in (TINY, PLAIN, BIASED)
        for act in ("bf16", "fp16")
    ]  # type: ignore[arg-type]
    for _ in range(2):
        assert [lower(step) for step in steps] == [lower.__wrapped__(step) for step in steps]
