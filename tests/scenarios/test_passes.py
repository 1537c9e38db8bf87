"""Each optimisation as a rewrite: the calls before and after, what it saves, and what no rewrite may change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.ops.program import Op, Program, Tensor
from scenarios.passes import PASSES
from scenarios.schema import Fusion, Optimizations, Scenario
from tests.scenarios.making import (
    BIASED,
    TINY,
    bare,
    cube_flops,
    faults,
    gm_bytes,
    kinds,
    op,
    program,
    switched,
    weight_bytes,
    weight_tensors,
)

NORM = ["cast", "pow", "reduce_mean", "adds", "rsqrt", "mul", "cast", "mul"]
ROTATE = ["mul", "slice", "neg", "slice", "concat", "mul", "add"]
ATTENTION = ["expand", "expand", "batch_matmul", "muls", "add", "cast", "softmax", "cast", "batch_matmul"]

#: Two decoding requests on 9 cached tokens, of a model of two layers; everything off.
OFF = bare(workload__batch=2, workload__input_tokens=9, workload__output_tokens=1)
ALONE = bare(workload__batch=1, workload__input_tokens=9, workload__output_tokens=1)
#: The norms fused, so that the lists of calls stay short.
NORMED = switched(OFF, fusion__rms_norm=True)

BEFORE = [
    "matmul", "matmul", "matmul", "rms_norm", "rms_norm", *ROTATE, *ROTATE, "kv_cache_write", "kv_cache_write",
    *ATTENTION, "matmul", "add", "rms_norm", "matmul", "matmul", "silu", "mul", "matmul", "add", "rms_norm",
]  # fmt: skip


def changed(before: Program, after: Program, block: str = "layers") -> tuple[list[str], list[str]]:
    """The kinds that only `before` has and those that only `after` has, in order."""
    old, new = before.block(block).ops, after.block(block).ops
    return [o.kind for o in old if o not in new], [o.kind for o in new if o not in old]


# ---- what each pass rewrites ----


def test_rms_norm_becomes_one_call() -> None:
    before, after = program(OFF), program(NORMED)
    assert kinds(after) == BEFORE
    assert kinds(before, "embed")[-8:] == NORM
    assert kinds(after, "embed")[-1:] == ["rms_norm"]
    norm = op(after, "post_attention_norm")
    assert [t.name for t in norm.inputs] == ["residual_mid", "post_attention_norm.weight"]
    assert norm.outputs == (Tensor("mlp_in", (2, 16), "bf16"), Tensor("post_attention_norm.rstd", (2, 1), "fp32"))
    assert norm.attr("eps") == TINY.norm_eps
    assert len(before) - len(after) == 7 * (2 * 4 + 1)  # four norms a layer and the first


def test_add_rms_norm_takes_the_residual_add_in() -> None:
    before, after = program(NORMED), program(switched(NORMED, fusion__add_rms_norm=True))
    assert changed(before, after) == (["add", "rms_norm", "add", "rms_norm"], ["add_rms_norm", "add_rms_norm"])
    assert kinds(after, "embed")[-1] == "rms_norm"  # nothing is added before the first
    fused = op(after, "next_norm")
    assert [t.name for t in fused.inputs] == ["mlp_out", "residual_mid", "next_norm.weight"]
    assert [(t.name, t.shape) for t in fused.outputs] == [
        ("normed", (2, 16)),
        ("next_norm.rstd", (2, 1)),
        ("residual", (2, 16)),
    ]
    # It saves one launch and one read of the sum, twice a layer; the residual is still written.
    assert len(before) - len(after) == 4
    assert gm_bytes(before) - gm_bytes(after) == 4 * 2 * 16 * 2


def test_add_rms_norm_takes_a_norm_of_eight_calls_too() -> None:
    before, after = program(OFF), program(switched(OFF, fusion__add_rms_norm=True))
    assert changed(before, after) == (["add", *NORM, "add", *NORM], ["add_rms_norm", "add_rms_norm"])
    # The norms with nothing to add stay as they are: of Q, of K, and the first.
    assert kinds(after)[3:19] == [*NORM, *NORM]
    assert kinds(after, "embed")[-8:] == NORM
    both = program(switched(NORMED, fusion__add_rms_norm=True))
    assert op(after, "next_norm") == op(both, "next_norm")


def test_rope_becomes_one_call_and_two_look_ups() -> None:
    before, after = program(NORMED), program(switched(NORMED, fusion__rope=True))
    assert changed(before, after) == ([*ROTATE, *ROTATE], ["rope"])
    assert [t.name for t in op(after, "rope").inputs] == ["q_normed", "k_normed", "cos", "sin"]
    assert [t.name for t in op(after, "rope").outputs] == ["q_rotated", "k_rotated"]
    assert changed(before, after, "embed") == (
        ["mul", "concat", "cos", "sin", "cast", "cast"],
        ["index_select", "index_select"],
    )
    table = op(after, "rotary.cos_lookup", "embed").inputs[0]
    assert (table.shape, table.role) == ((TINY.max_position, 4), "table")


def test_packed_qkv_of_one_token_needs_no_slices() -> None:
    before, after = program(ALONE), program(switched(ALONE, fusion__qkv=True))
    assert changed(before, after) == (["matmul"] * 3, ["matmul"])
    packed = op(after, "qkv_proj")
    assert packed.inputs[1] == Tensor("qkv_proj.weight", (32, 16), "bf16", "weight")
    assert [(t.name, t.elements) for t in packed.outputs] == [("q", 16), ("k", 8), ("v", 8)]


def test_packed_qkv_of_several_tokens_is_cut_by_copies() -> None:
    before, after = program(OFF), program(switched(OFF, fusion__qkv=True))
    assert changed(before, after) == (["matmul"] * 3, ["matmul", "slice", "slice", "slice"])
    assert [(o.name, op_type_of(o), o.out.shape) for o in after.block("layers").ops[1:4]] == [
        ("slice_q", "Slice", (2, 16)),
        ("slice_k", "Slice", (2, 8)),
        ("slice_v", "Slice", (2, 8)),
    ]


def test_a_packed_projection_packs_its_bias() -> None:
    packed = op(program(switched(OFF, fusion__qkv=True), BIASED), "qkv_proj")
    assert [(t.name, t.shape) for t in packed.inputs[1:]] == [("qkv_proj.weight", (32, 16)), ("qkv_proj.bias", (32,))]


def test_packed_gate_and_up_is_sliced_for_silu_and_multiply() -> None:
    before, after = program(OFF), program(switched(OFF, fusion__gate_up=True))
    assert changed(before, after) == (["matmul", "matmul"], ["matmul", "slice", "slice"])
    assert op(after, "gate_up_proj").inputs[1].shape == (48, 16)
    assert kinds(after)[-14:-8] == ["slice", "slice", "silu", "mul", "matmul", "add"]


def test_swiglu_after_a_packed_projection_takes_the_slices_in() -> None:
    packed = switched(OFF, fusion__gate_up=True)
    before, after = program(packed), program(switched(packed, fusion__swiglu=True))
    assert changed(before, after) == (["slice", "slice", "silu", "mul"], ["swiglu"])
    assert op(after, "swiglu").inputs == (Tensor("gate_up", (2, 48), "bf16"),)


def test_swiglu_after_two_projections_has_to_lay_them_side_by_side() -> None:
    before, after = program(OFF), program(switched(OFF, fusion__swiglu=True))
    assert changed(before, after) == (["silu", "mul"], ["concat", "swiglu"])
    assert len(before) == len(after)  # the cost that the pass declares: nothing is saved here


FEED_FORWARD = switched(OFF, fusion__gate_up=True, fusion__swiglu=True, weights="fp16")


def test_a_feed_forward_layer_becomes_one_call_on_both_weights() -> None:
    before, after = program(FEED_FORWARD), program(switched(FEED_FORWARD, fusion__ffn=True))
    assert changed(before, after) == (["matmul", "swiglu", "matmul"], ["ffn"])
    fused = op(after, "ffn")
    assert [(t.name, t.shape, t.role) for t in fused.inputs] == [
        ("mlp_in", (2, 16), "activation"),
        ("gate_up_proj.weight", (48, 16), "weight"),
        ("down_proj.weight", (16, 24), "weight"),
    ]
    assert fused.out == Tensor("mlp_out", (2, 16), "fp16")
    assert op_type_of(fused) == "FFN"
    # A workspace in global memory joins its products, so not a byte is saved.
    assert gm_bytes(before) == gm_bytes(after)
    assert cube_flops(before) == cube_flops(after)


@pytest.mark.parametrize("graph", ["eager", "aclgraph", "npugraph_ex", "ge_graph"])
def test_a_feed_forward_layer_is_one_call_in_every_graph(graph: str) -> None:
    after = program(switched(FEED_FORWARD, fusion__ffn=True, graph=graph))
    assert kinds(after).count("ffn") == 1
    assert faults(after) == []


def test_fused_attention_reads_the_cache_as_it_lies() -> None:
    before, after = program(OFF), program(switched(OFF, fusion__attention=True))
    assert changed(before, after) == (ATTENTION, ["attention"])
    fused = op(after, "attention")
    assert [t.name for t in fused.inputs] == ["q_rotated", "k_cache", "v_cache"]
    assert fused.out == Tensor("attended", (2, 4, 4), "bf16")
    assert fused.attr("groups") == ((2, 1, 9),)
    assert (fused.attr("heads"), fused.attr("kv_heads"), fused.attr("head_dim"), fused.attr("block_size", 0)) == (
        4,
        2,
        4,
        0,
    )
    assert len(before) - len(after) == 2 * 8


FUSED = switched(OFF, fusion__rms_norm=True, fusion__rope=True, fusion__qkv=True, fusion__attention=True)


def test_paging_writes_keys_and_values_at_once_and_reads_through_a_table() -> None:
    before, after = program(FUSED), program(switched(FUSED, kv__layout="paged"))
    assert changed(before, after) == (
        ["kv_cache_write", "kv_cache_write", "attention"],
        ["kv_cache_write", "attention"],
    )
    assert op_type_of(op(after, "write_kv")) == "ReshapeAndCache"
    # Slots and lengths are worked out in 16 more small calls before each step.
    assert (len(kinds(before, "prepare")), len(kinds(after, "prepare"))) == (2, 18)
    attention = op(after, "attention")
    assert attention.attr("block_size") == 128
    assert attention.inputs[3] == Tensor("block_table", (2, 1), "int32", "table")
    assert attention.inputs[1].shape == (2, 128, 2, 4)  # one block for each request


@pytest.mark.parametrize("graph", ["npugraph_ex", "ge_graph"])
def test_a_compiled_graph_writes_keys_and_values_apart(graph: str) -> None:
    after = program(switched(FUSED, kv__layout="paged", graph=graph))
    writes = [o for o in after.block("layers").ops if o.kind == "kv_cache_write"]
    assert [(o.name, op_type_of(o)) for o in writes] == [("write_k", "ScatterNdUpdate"), ("write_v", "ScatterNdUpdate")]


def test_unfused_attention_gathers_its_blocks_first() -> None:
    before, after = program(OFF), program(switched(OFF, kv__layout="paged"))
    kept = ["kv_cache_write", "kv_cache_write", "expand", "expand"]
    assert changed(before, after) == (kept, ["kv_cache_write", "block_gather", "expand", "block_gather", "expand"])
    gather = op(after, "gather_k_cache")
    assert (gather.inputs[0].shape, gather.out.shape) == ((2, 128, 2, 4), (2, 2, 10, 4))
    # The pool is not read, only the tokens that are there.
    assert work_of(gather).cold_read_bytes == 2 * 2 * 10 * 4 * 2


PAGED = switched(FUSED, kv__layout="paged")


@pytest.mark.parametrize(
    ("scale", "new", "scales_bytes"),
    [
        ("channel", ["static_quant", "static_quant", "kv_cache_write"], 2 * 2 * 4 * 2),
        ("token", ["dynamic_quant", "dynamic_quant", *["kv_cache_write"] * 3], 2 * 2 * 10 * 4),
        ("head", ["dynamic_quant", "dynamic_quant", *["kv_cache_write"] * 3], 2 * 2 * 10 * 2 * 4),
    ],
)
def test_an_int8_cache_quantises_what_it_writes_and_keeps_the_scales(
    scale: str, new: list[str], scales_bytes: int
) -> None:
    before = program(PAGED)
    after = program(switched(PAGED, kv__dtype="int8", kv__scale=scale))
    assert changed(before, after) == (["kv_cache_write", "attention"], [*new, "attention"])
    old, now = work_of(op(before, "attention")), work_of(op(after, "attention"))
    kv_bytes = 2 * 2 * 10 * 8 * 2  # K and V, 2 requests, 10 tokens, 2 heads of 4, 2 bytes
    table_bytes = 2 * 4
    assert old.cold_read_bytes == kv_bytes + table_bytes
    assert now.cold_read_bytes == kv_bytes // 2 + table_bytes + scales_bytes
    assert now.cube_flops == old.cube_flops


def test_what_is_read_as_scales_is_what_was_written() -> None:
    after = program(switched(PAGED, kv__dtype="int8", kv__scale="head"))
    written = {t.name for o in after.block("layers").ops if o.kind == "kv_cache_write" for t in o.outputs}
    assert written == {"k_cache", "v_cache", "k_scale", "v_scale"}
    assert {t.name for t in op(after, "attention").inputs if t.role == "kv_cache"} == written


def test_norm_rope_and_cache_write_become_one_call() -> None:
    before, after = program(PAGED), program(switched(PAGED, fusion__qkv_norm_rope_cache=True))
    assert kinds(before)[:9] == [
        "matmul", "slice", "slice", "slice", "rms_norm", "rms_norm", "rope", "kv_cache_write", "attention"
    ]  # fmt: skip
    assert kinds(after)[:3] == ["matmul", "qkv_norm_rope_cache", "attention"]
    fused = op(after, "qkv_norm_rope_cache")
    assert [t.name for t in fused.inputs] == [
        "qkv", "q_norm.weight", "k_norm.weight", "cos", "sin", "slots", "k_cache", "v_cache"
    ]  # fmt: skip
    assert [t.name for t in fused.outputs] == ["q_rotated", "k_cache", "v_cache"]


def test_the_fused_cache_write_quantises_too() -> None:
    after = program(switched(PAGED, fusion__qkv_norm_rope_cache=True, kv__dtype="int8"))
    fused = op(after, "qkv_norm_rope_cache")
    assert [t.name for t in fused.inputs][5:7] == ["k_scale", "v_scale"]
    assert [t.dtype for t in fused.outputs] == ["bf16", "int8", "int8"]


def test_weight_only_quantisation_adds_no_calls() -> None:
    before, after = program(NORMED), program(switched(NORMED, weights="w4a16"))
    assert changed(before, after) == (["matmul"] * 7, ["weight_quant_matmul"] * 7)
    assert kinds(after, "head") == ["matmul"]  # the LM head keeps its 16 bits
    assert [(t.name, t.shape, t.dtype) for t in op(after, "gate_proj").inputs] == [
        ("mlp_in", (2, 16), "bf16"),
        ("gate_proj.weight", (24, 16), "int4"),
        ("gate_proj.scale", (24,), "fp32"),
    ]


def test_int8_activations_are_quantised_once_for_all_that_read_them() -> None:
    before, after = program(NORMED), program(switched(NORMED, weights="w8a8"))
    old, new = changed(before, after)
    assert old == ["matmul"] * 7
    assert Counter(new) == {"quant_matmul": 7, "dynamic_quant": 4}
    assert kinds(after)[:4] == ["dynamic_quant", "quant_matmul", "quant_matmul", "quant_matmul"]
    assert [(t.name, t.dtype) for t in op(after, "v_proj").inputs] == [
        ("normed_int8", "int8"),
        ("v_proj.weight", "int8"),
        ("v_proj.scale", "fp32"),
        ("normed_scale", "fp32"),
    ]
    assert op(after, "quant_normed").outputs[1].shape == (2,)  # one scale per token


def test_a_bias_survives_quantisation() -> None:
    for weights in ("w8a8", "w8a16"):
        inputs = op(program(switched(OFF, weights=weights), BIASED), "q_proj").inputs
        assert inputs[-1] == Tensor("q_proj.bias", (16,), "bf16", "weight")


def test_add_norm_and_quantise_become_one_call() -> None:
    quantised = switched(NORMED, fusion__add_rms_norm=True, weights="w8a8")
    before, after = program(quantised), program(switched(quantised, fusion__add_rms_norm_quant=True))
    assert changed(before, after) == (["add_rms_norm", "dynamic_quant"], ["add_rms_norm_dynamic_quant"])
    fused = op(after, "post_attention_norm")
    assert [(t.name, t.dtype) for t in fused.outputs] == [
        ("mlp_in_int8", "int8"),
        ("residual_mid", "bf16"),
        ("mlp_in_scale", "fp32"),
    ]


def test_scaling_gate_and_quantising_become_one_call_on_bare_sums() -> None:
    quantised = switched(OFF, fusion__gate_up=True, fusion__swiglu=True, weights="w8a8")
    before, after = program(quantised), program(switched(quantised, fusion__swiglu_quant=True))
    fused_calls = ["quant_matmul", "dequant_swiglu_quant"]
    assert changed(before, after) == (["quant_matmul", "swiglu", "dynamic_quant"], fused_calls)
    product, fused = op(after, "gate_up_proj"), op(after, "swiglu")
    assert [t.name for t in product.inputs] == ["mlp_in_int8", "gate_up_proj.weight", "gate_up_proj.scale"]
    assert [(t.name, t.dtype) for t in fused.inputs] == [
        ("gate_up", "int32"),
        ("gate_up_proj.scale", "fp32"),
        ("mlp_in_scale", "fp32"),
    ]
    assert fused.outputs == op(before, "quant_gated").outputs
    assert weight_bytes(before) == weight_bytes(after)


def test_the_nz_layout_marks_the_weights_of_the_layers_only() -> None:
    before, after = program(OFF), program(switched(OFF, weight_format="nz"))
    assert [t.format for t, _ in weight_tensors(after).values()].count("nz") == 7
    assert {t.format for o in after.block("head").ops for t in o.inputs} == {"nd"}
    assert weight_bytes(before) == weight_bytes(after)
    assert kinds(before) == kinds(after)


def test_a_graph_captures_the_forward_pass_and_keeps_the_preamble_outside() -> None:
    captured = {
        graph: [b.name for b in program(switched(OFF, graph=graph)).blocks if b.captured]
        for graph in ("eager", "aclgraph", "npugraph_ex", "ge_graph")
    }
    assert captured == {
        "eager": [],
        "aclgraph": ["embed", "layers"],
        "npugraph_ex": ["embed", "layers", "head"],
        "ge_graph": ["embed", "layers", "head", "sample"],
    }


def test_the_graph_engine_fuses_runs_of_elementwise_calls() -> None:
    before, after = program(NORMED), program(switched(NORMED, graph="ge_graph"))
    rotated = ["mul", "slice", "neg", "slice", "concat", "fused_elementwise"]
    assert kinds(after) == [
        "matmul", "matmul", "matmul", "rms_norm", "rms_norm", *rotated, *rotated, "kv_cache_write", "kv_cache_write",
        "expand", "expand", "batch_matmul", "fused_elementwise", "softmax", "cast", "batch_matmul",
        "matmul", "add", "rms_norm", "matmul", "matmul", "fused_elementwise", "matmul", "add", "rms_norm",
    ]  # fmt: skip
    fused = op(after, "silu+mul_up")
    assert [p.name for p in fused.parts] == ["silu", "mul_up"]
    assert [t.name for t in fused.inputs] == ["gate", "up"]
    assert [t.name for t in fused.outputs] == ["gated"]
    assert fused.attr("fused_ops") == 7 + 1  # of silu and mul
    # A mask of one row a request is stretched over the heads without a kernel of its own.
    assert [p.kind for p in op(after, "attn.scale+mask+to_fp32").parts] == ["muls", "add", "cast"]
    # The angles of cos and sin alternate, so no call follows the one that it reads.
    assert kinds(after, "embed") == ["graph_parameters", *kinds(before, "embed")]
    assert len(before) - len(after) == 2 * 5 - 1


def test_a_change_of_shape_ends_a_fused_run() -> None:
    after = program(switched(OFF, graph="ge_graph"))
    norm = [o for o in after.block("layers").ops if o.name.startswith("post_attention_norm")]
    # [2, 16] is squared and reduced to [2, 1] by one kernel, and spread over [2, 16] again by another.
    assert [(o.name, [p.kind for p in o.parts]) for o in norm] == [
        ("post_attention_norm.add_eps+rsqrt", ["adds", "rsqrt"]),
        ("post_attention_norm.mul+cast_back+mul_gamma", ["mul", "cast", "mul"]),
    ]
    # The add before it joins the first run; what later calls read comes out of it.
    joined = op(after, "add_attention+cast+pow+mean")
    assert [t.name for t in joined.outputs] == ["residual_mid", "post_attention_norm.x32", "post_attention_norm.mean"]


def test_the_graph_engine_gives_calls_its_own_names() -> None:
    everything = switched(NORMED, fusion__add_rms_norm=True, graph="ge_graph")
    after = program(everything)
    assert op_type_of(op(after, "o_proj")) == "MatMul"
    assert op_type_of(op(after, "next_norm")) == "InplaceAddRmsNorm"
    assert op_type_of(op(program(switched(everything, graph="aclgraph")), "o_proj")) == "MatMulV2"


def test_prefills_are_never_captured() -> None:
    for phase in ("prefill", "mixed"):
        result = switched(bare(workload__batch=2, workload__phase=phase, workload__input_tokens=8), graph="ge_graph")
        after = program(result)
        assert after.graph == "eager"
        assert not any(b.captured for b in after.blocks)


def test_a_prefill_is_compiled_where_it_is_asked_for() -> None:
    result = switched(
        bare(workload__batch=2, workload__phase="prefill", workload__input_tokens=8),
        graph="ge_graph",
        graph_prefill=True,
    )
    after = program(result)
    assert after.graph == "ge_graph"
    assert [b.name for b in after.blocks if b.captured] == ["embed", "layers", "head", "sample"]
    assert "fused_elementwise" in kinds(after)
    assert op(after, "o_proj").inputs[0].shape == (16, 16)  # exactly its 16 tokens, no padding
    # Not of a mixed step, and not by the other modes.
    for others in ({"graph": "aclgraph"}, {"graph": "eager"}):
        assert program(switched(result, **others)).graph == "eager"
    mixed = bare(workload__batch=2, workload__phase="mixed", workload__input_tokens=8)
    assert program(switched(mixed, graph="ge_graph", graph_prefill=True)).graph == "eager"


# ---- the table of passes ----


def test_every_switch_of_a_pass_is_a_field_of_the_schema() -> None:
    for item in PASSES:
        for value in (*item.off, item.on):
            part: object = switched(Scenario(), **{item.switch.replace(".", "__"): value})
            Scenario.model_validate(part.model_dump())  # type: ignore[attr-defined]
        assert item.on not in item.off
        assert item.is_on(switched(Scenario(), **{item.switch.replace(".", "__"): item.on}))
        assert not item.is_on(switched(Scenario(), **{item.switch.replace(".", "__"): item.off[0]}))


def test_every_switch_has_a_pass() -> None:
    switches = {item.switch for item in PASSES}
    assert len(switches) == len(PASSES)
    # The rest of `overlap` is refused by scenarios.checks. graph_prefill says where the pass `graph` reaches.
    assert {f"fusion.{name}" for name in Fusion.model_fields} <= switches
    assert set(Optimizations.model_fields) - {s.partition(".")[0] for s in switches} == {"graph_prefill"}


def test_a_pass_comes_after_what_it_needs() -> None:
    order = [item.switch for item in PASSES]
    for item in PASSES:
        for needed, _ in item.needs:
            assert order.index(needed) < order.index(item.switch)


def test_every_pass_says_what_it_rewrites_saves_costs_and_shows() -> None:
    for item in PASSES:
        assert min(len(text) for text in (item.title, item.rewrites, item.saves, item.costs, item.claim)) >= 4


# ---- the rules that find faults find them ----


@pytest.mark.parametrize(
    ("break_it", "result"),
    [
        (lambda o: replace(o, inputs=(replace(o.inputs[0], name="lost"), *o.inputs[1:])), "which nothing has written"),
        (lambda o: replace(o, inputs=(replace(o.inputs[0], shape=(3, 16)), *o.inputs[1:])), "written as (2, 16)"),
        (lambda o: replace(o, inputs=(replace(o.inputs[0], dtype="fp16"), *o.inputs[1:])), "written as bf16"),
        (lambda o: replace(o, name="k_proj"), "2 ops called k_proj"),
        (lambda o: replace(o, outputs=(replace(o.out, name="unread"),)), "nothing reads what q_proj writes"),
    ],
)
def test_a_broken_program_has_faults(break_it, result: str) -> None:
    whole = program(NORMED)
    assert faults(whole) == []

    def rewritten(one: Op) -> Op:
        return break_it(one) if one.name == "q_proj" else one

    blocks = tuple(replace(b, ops=tuple(rewritten(o) for o in b.ops)) for b in whole.blocks)
    assert any(result in fault for fault in faults(replace(whole, blocks=blocks)))
