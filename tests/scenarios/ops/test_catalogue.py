"""The work of each kind of operation, with flops and bytes counted by hand on tiny shapes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from scenarios.ops import catalogue
from scenarios.ops.attention_work import attention_groups
from scenarios.ops.catalogue import CATALOGUE, op_type_of
from scenarios.ops.program import DType, Group, Op, Tensor
from scenarios.ops.work import AttentionShape, FfnShape, FixedShape, FlatShape, MatmulShape, RowsShape, Work


def activation(name: str, shape: tuple[int, ...], dtype: DType = "bf16") -> Tensor:
    return Tensor(name, shape, dtype)


def weight(name: str, shape: tuple[int, ...], dtype: DType = "bf16") -> Tensor:
    return Tensor(name, shape, dtype, "weight")


def work_of(op: Op) -> Work:
    """What is asked for, whichever kernel program will run it and however memory is cut."""
    return replace(catalogue.work_of(op), program="", pieces=0)


def test_a_linear_layer() -> None:
    # [3, 8] x [8, 5]: 2 * 3 * 8 * 5 flops; 80 B of weights come cold, 48 B of input warm, 30 B go out.
    op = Op("matmul", "proj", (activation("x", (3, 8)), weight("w", (5, 8))), (activation("y", (3, 5)),))
    assert work_of(op) == Work("cube", MatmulShape(1, 3, 8, 5, "bf16", "bf16", "nd"), 240, 0, 80, 48, 30)


def test_a_bias_is_read_with_the_weights() -> None:
    x, y = activation("x", (3, 8)), activation("y", (3, 5))
    op = Op("matmul", "proj", (x, weight("w", (5, 8)), weight("b", (5,))), (y,))
    assert work_of(op).cold_read_bytes == 80 + 10


def test_a_batched_product_reads_two_activations() -> None:
    # 2 x 4 products [1, 8] x [8, 5]: 8 * 2 * 8 * 5 flops.
    op = Op(
        "batch_matmul",
        "qk",
        (activation("q", (2, 4, 1, 8)), activation("k", (2, 4, 5, 8))),
        (activation("s", (2, 4, 1, 5)),),
        (("batched", True),),
    )
    assert work_of(op) == Work("cube", MatmulShape(8, 1, 8, 5, "bf16", "bf16", "nd", "k"), 640, 0, 0, 128 + 640, 80)


def test_int8_products_read_their_scales() -> None:
    # Rescaling 15 outputs is part of the kernel program, not counted work: no vector operations.
    inputs = (
        activation("x", (3, 8), "int8"),
        weight("w", (5, 8), "int8"),
        weight("scale", (5,), "fp32"),
        activation("row_scale", (3,), "fp32"),
    )
    work = work_of(Op("quant_matmul", "proj", inputs, (activation("y", (3, 5)),)))
    assert work == Work("mix", MatmulShape(1, 3, 8, 5, "int8", "int8", "nd", "k"), 240, 0, 40 + 20, 24 + 12, 30)


def test_weight_only_quantisation_reads_packed_weights() -> None:
    inputs = (activation("x", (3, 8)), weight("w", (5, 8), "int4"), weight("scale", (5,), "fp32"))
    work = work_of(Op("weight_quant_matmul", "proj", inputs, (activation("y", (3, 5)),)))
    assert work == Work("mix", MatmulShape(1, 3, 8, 5, "bf16", "int4", "nd", "k"), 240, 0, 20 + 20, 48, 30)


def test_a_feed_forward_layer_moves_what_its_products_hand_on() -> None:
    # [3, 8] x [8, 2 x 6], halves gated to [3, 6], x [6, 8]: 6 * 3 * 8 * 6 flops; 192 + 96 B of weights come cold.
    # Next to 48 B in and out, the first product (72 B) and the activated half (36 B) go to a workspace and back.
    inputs = (activation("x", (3, 8), "fp16"), weight("w1", (12, 8), "fp16"), weight("w2", (8, 6), "fp16"))
    work = work_of(Op("ffn", "ffn", inputs, (activation("y", (3, 8), "fp16"),)))
    assert work == Work("mix", FfnShape(3, 8, 6, "fp16"), 864, 5 * 18, 288, 48 + 108, 48 + 108)


def test_rms_norm_reads_the_row_and_writes_it_with_its_statistic() -> None:
    # 2 rows of 8: reads 32 B and 16 B of gamma, writes 32 B and one fp32 a row.
    outputs = (activation("y", (2, 8)), activation("rstd", (2, 1), "fp32"))
    work = work_of(Op("rms_norm", "norm", (activation("x", (2, 8)), weight("g", (8,))), outputs))
    assert work == Work("vector", RowsShape(2, 8), 0, 4 * 16, 16, 32, 32 + 8)


def test_a_norm_of_heads_has_a_row_for_each_head() -> None:
    outputs = (activation("y", (3, 2, 4)), activation("rstd", (3, 2, 1), "fp32"))
    work = work_of(Op("rms_norm", "q_norm", (activation("q", (3, 2, 4)), weight("g", (4,))), outputs))
    assert work.shape == RowsShape(6, 4)


def test_add_rms_norm_reads_two_rows_and_writes_the_sum_too() -> None:
    inputs = (activation("a", (2, 8)), activation("b", (2, 8)), weight("g", (8,)))
    outputs = (activation("y", (2, 8)), activation("rstd", (2, 1), "fp32"), activation("sum", (2, 8)))
    work = work_of(Op("add_rms_norm", "norm", inputs, outputs))
    assert work == Work("vector", RowsShape(2, 8), 0, 5 * 16, 16, 64, 32 + 8 + 32)


def attention(
    groups: tuple[tuple[int, int, int], ...], tokens: int, kv: DType = "bf16", further: tuple[Tensor, ...] = ()
) -> Work:
    """The work of 4 query heads on 2 key heads of 8."""
    cache = Tensor("k_cache", (64, 16, 2, 8), kv, "kv_cache")
    query, out = activation("q", (tokens, 4, 8)), activation("out", (tokens, 4, 8))
    attrs = (("groups", groups), ("heads", 4), ("kv_heads", 2), ("head_dim", 8), ("block_size", 16))
    return work_of(Op("attention", "attention", (query, cache, cache, *further), (out,), attrs))


def test_attention_of_one_decoding_request() -> None:
    # One query sees 10 keys: 4 * 8 * 4 * 10 flops; K and V of 10 tokens are 2 * 10 * 2 * 8 elements.
    work = attention(((1, 1, 9),), 1)
    assert work == Work("mix", AttentionShape((Group(1, 1, 9),), 4, 2, 8, "bf16", 16), 1280, 6 * 4 * 10, 640, 64, 64)


def test_attention_of_a_prefill_is_causal() -> None:
    # Three queries on two cached tokens see 3, 4 and 5 keys: 12 pairs, not 15; K and V of 5 tokens are read once.
    work = attention(((1, 3, 2),), 3)
    assert (work.cube_flops, work.vector_ops) == (4 * 8 * 4 * 12, 6 * 4 * 12)
    assert (work.cold_read_bytes, work.warm_read_bytes, work.write_bytes) == (2 * 5 * 2 * 8 * 2, 192, 192)


def test_attention_of_a_mixed_step_adds_its_groups_up() -> None:
    # Two decoding requests at 9 tokens (2 x 10 pairs) and a prefill of 4 (1 + 2 + 3 + 4 pairs).
    work = attention(((2, 1, 9), (1, 4, 0)), 6)
    assert work.cube_flops == 4 * 8 * 4 * (20 + 10)
    assert work.cold_read_bytes == 2 * (20 + 4) * 2 * 8 * 2
    assert work.cube_flops == attention(((2, 1, 9),), 2).cube_flops + attention(((1, 4, 0),), 4).cube_flops


def test_an_int8_cache_halves_the_bytes_and_has_to_be_unpacked() -> None:
    half = attention(((1, 1, 9),), 1, kv="int8")
    assert half.cold_read_bytes == 320
    assert half.vector_ops == 6 * 4 * 10 + 2 * 10 * 2 * 8
    scales = (Tensor("k_scale", (10, 2), "fp32", "kv_cache"), Tensor("block_table", (1, 4), "int32", "table"))
    assert attention(((1, 1, 9),), 1, "int8", scales).cold_read_bytes == 320 + 80 + 16


def test_groups_come_back_from_their_attribute() -> None:
    op = Op("attention", "attention", (), (), (("groups", ((2, 1, 9), (1, 4, 0))),))
    assert attention_groups(op) == (Group(2, 1, 9), Group(1, 4, 0))


def test_an_embedding_reads_the_picked_rows_only() -> None:
    # 3 rows of 8 out of a table of 1000: 48 B cold, the indices 24 B warm, and nothing is computed.
    inputs = (weight("table", (1000, 8)), activation("ids", (3,), "int64"))
    work = work_of(Op("embedding", "embed", inputs, (activation("x", (3, 8)),)))
    assert work == Work("vector", RowsShape(3, 8), 0, 0, 48, 24, 48)


def test_a_gather_from_an_activation_is_warm() -> None:
    inputs = (activation("x", (100, 8)), activation("last", (2,), "int64"))
    work = work_of(Op("index_select", "last_token", inputs, (activation("y", (2, 8)),)))
    assert (work.cold_read_bytes, work.warm_read_bytes, work.write_bytes) == (0, 32 + 16, 32)


POOL = Tensor("k_cache", (64, 16, 2, 8), "bf16", "kv_cache")
SLOTS = Tensor("slots", (3,), "int64", "table")


def test_a_cache_write_moves_the_new_tokens_and_not_the_pool() -> None:
    # Keys alone are scattered head by head: 3 tokens of 2 heads are 6 rows of 8.
    work = work_of(Op("kv_cache_write", "write_k", (activation("k", (3, 2, 8)), POOL, SLOTS), (POOL,)))
    assert work == Work("vector", RowsShape(6, 8), 0, 0, 24, 96, 96)


def test_writing_keys_and_values_in_one_call_moves_both() -> None:
    # Together they go token by token: 3 rows of 2 x 2 x 8.
    k, v = activation("k", (3, 2, 8)), activation("v", (3, 2, 8))
    work = work_of(Op("kv_cache_write", "write_kv", (k, v, POOL, POOL, SLOTS), (POOL, POOL)))
    assert work == Work("vector", RowsShape(3, 32), 0, 0, 24, 192, 192)


def test_elementwise_reads_all_operands_and_counts_the_largest() -> None:
    op = Op(
        "mul",
        "scale",
        (activation("x", (2, 8), "fp32"), activation("r", (2, 1), "fp32")),
        (activation("y", (2, 8), "fp32"),),
    )
    assert work_of(op) == Work("vector", FlatShape(16, 8), 0, 16, 0, 64 + 8, 64)


@pytest.mark.parametrize(
    ("kind", "ops"),
    [("add", 1), ("mul", 1), ("neg", 1), ("div", 2), ("pow", 2), ("rsqrt", 3), ("silu", 7), ("cos", 50), ("sin", 50)],
)
def test_16_bit_elements_are_cast_in_and_out(kind: str, ops: int) -> None:
    def vector_ops(dtype: DType) -> int:
        x = activation("x", (2, 8), dtype)
        return work_of(Op(kind, "it", (x,), (x,))).vector_ops

    assert vector_ops("fp32") == ops * 16
    assert vector_ops("bf16") == vector_ops("fp16") == (ops + 2) * 16


def test_a_cast_counts_by_what_it_reads() -> None:
    narrow, wide = activation("x", (2, 8)), activation("y", (2, 8), "fp32")
    assert work_of(Op("cast", "up", (narrow,), (wide,))) == Work("vector", FlatShape(16, 8), 0, 3 * 16, 0, 32, 64)
    assert work_of(Op("cast", "down", (wide,), (narrow,))) == Work("vector", FlatShape(16, 8), 0, 16, 0, 64, 32)


def test_a_fused_run_of_elementwise_ops_brings_its_own_count() -> None:
    # It computes in float32 from end to end, so nothing is added for 16 bit.
    op = Op("fused_elementwise", "a+b", (activation("x", (2, 8)),), (activation("y", (2, 8)),), (("fused_ops", 5),))
    assert work_of(op).vector_ops == 5 * 16


def test_swiglu_counts_its_packed_input() -> None:
    # [2, 16] -> [2, 8]: 32 elements are laid over the cores, five operations for each of the 16 that come out.
    op = Op("swiglu", "swiglu", (activation("gate_up", (2, 16)),), (activation("gated", (2, 8)),))
    assert work_of(op) == Work("vector", FlatShape(32, 16), 0, 5 * 16, 0, 64, 32)


def test_an_expansion_computes_nothing() -> None:
    op = Op("expand", "repeat_k", (activation("k", (1, 2, 4)),), (activation("k4", (1, 4, 4)),))
    assert work_of(op) == Work("vector", FlatShape(16, 4), 0, 0, 0, 16, 32)


@pytest.mark.parametrize(
    ("kind", "second", "expected"),
    [
        ("mul", (2, 8), "mul"),
        ("mul", (8,), "broadcast_row"),
        ("mul", (1, 8), "broadcast_row"),
        ("add", (2, 1), "broadcast"),
        ("mul", (1,), "mul"),  # a scalar is held in a register
    ],
)
def test_a_smaller_operand_is_stretched_by_a_program_of_its_own(
    kind: str, second: tuple[int, ...], expected: str
) -> None:
    op = Op(kind, "it", (activation("x", (2, 8)), activation("r", second)), (activation("y", (2, 8)),))
    assert catalogue.work_of(op).program == expected


def test_every_other_kind_is_run_by_the_program_of_its_name() -> None:
    x = activation("x", (3, 8))
    for kind in ("rms_norm", "softmax", "dynamic_quant", "static_quant", "swiglu", "rope", "argmax", "embedding"):
        assert catalogue.work_of(Op(kind, "it", (x, x), (x,))).program == kind
    assert catalogue.work_of(Op("matmul", "it", (x, weight("w", (5, 8))), (x,))).program == "matmul"


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "pieces"),
    [
        ("slice", [(3, 2, 4)], [(3, 2, 2)], 12),  # each of 6 rows is read and written
        ("concat", [(3, 2, 2), (3, 2, 2)], [(3, 2, 4)], 24),  # 6 rows of each part
        ("split", [(3, 8)], [(3, 4), (3, 2), (3, 2)], 18),  # 3 rows of each part
        ("neg", [(3, 8)], [(3, 8)], 0),  # contiguous
    ],
)
def test_copies_of_parts_of_rows_are_cut_into_pieces(
    kind: str, inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]], pieces: int
) -> None:
    op = Op(kind, "it", tuple(activation("x", s) for s in inputs), tuple(activation("y", s) for s in outputs))
    assert catalogue.work_of(op).pieces == pieces


def test_rope_takes_a_token_as_a_row() -> None:
    # 3 tokens, 2 query heads and 1 key head of 8: 72 elements in, 72 out, cos and sin next to them.
    q, k, angle = activation("q", (3, 2, 8)), activation("k", (3, 1, 8)), activation("cos", (3, 8))
    work = work_of(Op("rope", "rope", (q, k, angle, angle), (q, k)))
    assert work == Work("vector", RowsShape(3, 24), 0, 4 * 72, 0, 144 + 96, 144)


def test_the_fused_cache_write_puts_queries_out_and_keys_and_values_away() -> None:
    # 3 tokens of 2 + 1 + 1 heads of 8: 192 B in, cos and sin 96 B, two gammas 32 B and slots 24 B cold.
    qkv, q, angle = activation("qkv", (3, 32)), activation("q", (3, 2, 8)), activation("cos", (3, 8))
    inputs = (qkv, weight("q_norm", (8,)), weight("k_norm", (8,)), angle, angle, SLOTS, POOL, POOL)
    work = work_of(Op("qkv_norm_rope_cache", "fused", inputs, (q, POOL, POOL)))
    assert work == Work("vector", RowsShape(12, 8), 0, 8 * 96, 32 + 24, 192 + 96, 96 + 96)


def test_a_fixed_kernel_is_known_by_its_profiler_name() -> None:
    lengths = activation("lengths", (3,), "int64")
    work = work_of(Op("prepare_cpu", "prepare.sum", (lengths,), (lengths,), op_type="Cumsum"))
    assert work == Work("ai_cpu", FixedShape("Cumsum"), 0, 0, 0, 24, 24)


def test_an_unknown_kind_names_those_that_exist() -> None:
    with pytest.raises(KeyError, match=r"unknown op kind 'matmull'; the catalogue has add, .*matmul"):
        work_of(Op("matmull", "x", (), ()))


def test_the_profiler_name_is_the_ops_own_or_the_kinds() -> None:
    x = activation("x", (1,))
    assert op_type_of(Op("rms_norm", "n", (x,), (x,))) == "RmsNorm"
    assert op_type_of(Op("rms_norm", "n", (x,), (x,), op_type="InplaceRmsNorm")) == "InplaceRmsNorm"


def test_only_products_are_called_matmul_and_only_attention_attention() -> None:
    quantised = ("quant_", "weight_quant_", "matmul_all_reduce")
    products = {name for name, kind in CATALOGUE.items() if kind.unit == "cube" or name.startswith(quantised)}
    assert {n for n, k in CATALOGUE.items() if "matmul" in n or "matmul" in k.op_type.lower()} == products
    assert {n for n, k in CATALOGUE.items() if "attention" in n or "attention" in k.op_type.lower()} == {"attention"}
    assert products == {
        "matmul", "batch_matmul", "transpose_batch_matmul", "grouped_matmul", "matmul_all_reduce",
        "quant_matmul", "weight_quant_matmul", "quant_grouped_matmul",
    }  # fmt: skip


def test_every_kind_is_filed_under_its_name_and_says_what_calls_it() -> None:
    for name, kind in CATALOGUE.items():
        assert name == kind.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert kind.op_type
        assert kind.api
        assert kind.ops_per_element >= 1 or name == "expand"
