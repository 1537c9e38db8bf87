"""The operators of the runtime that an op of a Program issues, and the orders that its streams must keep."""

from __future__ import annotations

from typing import Any

#: The runtime's operator for each kind of op.
OPERATORS = {
    "embedding": "Embedding", "index_select": "Index", "rms_norm": "RmsNorm", "add_rms_norm": "AddRmsNorm",
    "matmul": "Matmul|Addmm", "batch_matmul": "Matmul", "quant_matmul": "QuantMatmulV5",
    "dynamic_quant": "DynamicQuantV2",
    "static_quant": "Quantize", "rope": "ApplyRotaryPosEmbV2", "swiglu": "SwiGlu", "argmax": "ArgMax",
    "mul": "Mul", "muls": "Muls", "add": "Add", "adds": "Adds", "neg": "Neg", "cos": "Cos", "sin": "Sin",
    "silu": "Silu", "sigmoid": "Sigmoid", "div": "Div",
    "rsqrt": "Rsqrt", "pow": "PowTensorScalar", "reduce_mean": "Mean", "softmax": "Softmax", "concat": "Cat",
    "slice": "InplaceCopy", "cast": "InplaceCopy", "transpose": "InplaceCopy", "expand": "RepeatInterleaveIntWithDim",
    "ffn": "FFNV2", "dequant_swiglu_quant": "DequantSwigluQuantV2", "moe_init_routing": "MoeInitRoutingV3",
    "grouped_matmul": "GroupedMatmulV5", "quant_grouped_matmul": "GroupedMatmulV5", "moe_gating_top_k": "MoeGatingTopK",
    "transpose_batch_matmul": "TransposeBatchMatMul", "interleave_rope": "InterleaveRope",
}  # fmt: skip
ATTENTION = "FusedInferAttentionScoreV"
COPY = "InplaceCopy"


def operators_of(op: dict[str, Any]) -> list[str]:
    """The operators of one op by name (of several names one), in order."""
    match op["kind"]:
        case "prefetch":
            return []
        case "attention":
            return [ATTENTION]
        case "kv_cache_write":
            return ["ScatterNdUpdate|ScatterPaKvCache"] * (2 if op["apart"] else 1)
        case "sort":  # the places in 32 bit
            return ["TopkV2", COPY]
        case "moe_gating_top_k" if not op["sigmoid"]:
            return ["MoeGatingTopKSoftmax"]
        case "reduce_mean" if op["name"].endswith("router.sum"):
            return ["ReduceSum"]
        case "moe_finalize_routing":  # the weights in the rows' type
            return [COPY, "MoeFinalizeRoutingV4"]
        case "qkv_norm_rope_cache":  # both scales in float32
            return [COPY, COPY, "QkvRmsNormRopeCache"]
        case "kv_norm_rope_cache":  # the latent row out of the packed product
            return [COPY, "KvRmsNormRopeCache"] if op["packed"] else ["KvRmsNormRopeCache"]
    return [OPERATORS[op["kind"]]]


def compare(ops: list[dict[str, Any]], names: list[str]) -> None:
    """The operators are those of the ops, in order."""
    if [op["kind"] for op in ops[-2:]] == ["argmax", "cast"]:
        ops = ops[:-1]  # aclnnArgMax answers in int64 itself: its second kernel is the cast
    wanted = [(op["name"], name) for op in ops for name in operators_of(op)]
    stream_names = [name.removeprefix("aclnn") for name in names]
    assert [pair for pair, got in zip(wanted, stream_names, strict=True) if not _is(got, pair[1])] == []


def _is(got: str, name: str) -> bool:
    return got in name.split("|") or (name == ATTENTION and got.startswith(name))
