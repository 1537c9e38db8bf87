"""Measured kernels as `Work`: op type, input shapes and data types, as msprof prints them, mapped onto the cost model.

The profiler prints inputs only, so outputs follow from the op type; where a shape leaves something open, the usual case
of a language model stands for it, and `GUESSES` says which. FRACTAL_NZ weights are [a, b, 16, 16] in 16 bit (K = 16 a,
N = 16 b) and [a, b, 16, 32] in INT8 (N = 32 a, K = 16 b).
"""

from __future__ import annotations

from scenarios.ops.work import Work
from sim.accuracy.rows import cube, vector
from sim.accuracy.rows.cube import attention_work
from sim.accuracy.rows.row import Row, Unpriced, parse_dtypes, parse_shapes
from sim.accuracy.rows.vector import Maker

__all__ = ["GUESSES", "Unpriced", "attention_work", "known_op_types", "repeats", "work_of_row"]

#: What the profiler's shapes leave open, and what is taken for it.
GUESSES = {
    "Slice": "half of the last dimension is kept",
    "Cast": "16 bit becomes 32 bit and the other way round; other types become 64 bit",
    "BroadcastTo": "the output is twice the input",
    "FusedInferAttentionScore": "every request has kv_tokens keys",
    "GroupedMatmul": "tokens are spread evenly over the experts",
    "RINGMLAPrefillBF16Kernel": "the tokens attend to themselves only",
}

_PLAIN = (
    "Add", "Adds", "Sub", "Mul", "Muls", "Maximum", "Minimum", "Neg", "Abs", "Relu", "Axpy", "FloorMod", "LogicalNot",
    "LogicalAnd", "LogicalOr", "BitwiseNot", "BitwiseAnd", "ClipByValueV2",
)  # fmt: skip
_COMPARE = ("GreaterEqual", "Greater", "Less", "LessEqual", "Equal", "NotEqual")
#: Vector instructions of functions that take several.
_FUNCTIONS = {
    "RealDiv": 2, "Div": 2, "Log": 8, "Exp": 4, "Sqrt": 2, "Rsqrt": 3, "Pow": 8, "Pows": 2, "Sigmoid": 6, "Swish": 7,
    "Silu": 7, "Gelu": 12, "GeluV2": 12, "Mish": 30, "Cos": 50, "Sin": 50, "AutomaticBufferFusionOp": 4,
}  # fmt: skip
_SLICES = ("Slice", "StridedSlice", "StridedSliceD", "StridedSliceV2", "StridedSliceV3", "SplitVD", "SplitV")
_REDUCE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceAny", "ReduceAll", "ReduceMeanD")
_MATMUL = ("MatMul", "MatMulV2", "MatMulV3", "GemmV3")
_BATCH_MATMUL = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "TransposeBatchMatMul")
_ATTENTION = ("FusedInferAttentionScore", "IncreFlashAttention", "PromptFlashAttention")
#: Kernels without a shape: AI CPU kernels, the parameter update of a static graph, exchanges between ranks.
_SHAPELESS = ("Cumsum", "FloorDiv", "Data")
_EXCHANGE = ("MoeDistributeDispatchV2", "MoeDistributeCombineV2")

_MAKERS: dict[str, Maker] = {
    **dict.fromkeys(_PLAIN, vector.elementwise()),
    **{name: vector.elementwise(ops=ops) for name, ops in _FUNCTIONS.items()},
    **dict.fromkeys(_COMPARE, vector.elementwise("compare", vector.byte)),
    "Cast": vector.elementwise(out_size=vector.cast_size),
    **dict.fromkeys(("MaskedFill", "Select", "SelectV2"), vector.masked_fill),
    **dict.fromkeys(("BroadcastTo", "Tile"), vector.expand),
    **dict.fromkeys(("TensorMove", "Identity", "ViewCopy"), vector.copy),
    **dict.fromkeys(("Fill", "ZerosLike", "OnesLike", "Range"), vector.fill),
    **dict.fromkeys(_SLICES, vector.slice_),
    **dict.fromkeys(("ConcatD", "ConcatV2D"), vector.concat),
    "AsStrided": vector.as_strided,
    **dict.fromkeys(("Transpose", "TransData"), vector.transpose),
    **dict.fromkeys(("SwiGlu", "SwiGluQuant", "DequantSwigluQuant"), vector.swiglu),
    **dict.fromkeys(("AscendQuantV2", "AscendQuant"), vector.static_quant),
    "RmsNorm": vector.norm("rms_norm", 4),
    **dict.fromkeys(
        ("AddRmsNorm", "AddRmsNormBias", "InplaceAddRmsNorm"), vector.norm("add_rms_norm", 5, residual=True)
    ),
    "AddRmsNormDynamicQuant": vector.norm("add_rms_norm_dynamic_quant", 9, vector.byte, residual=True),
    **dict.fromkeys(("DynamicQuant", "DynamicQuantV2"), vector.norm("dynamic_quant", 4, vector.byte)),
    **dict.fromkeys(_REDUCE, vector.norm("row_wise", 1, vector.byte)),
    "ApplyRotaryPosEmb": vector.apply_rope,
    "RotaryPositionEmbedding": vector.token_rows("rope", 4),
    "InterleaveRope": vector.token_rows("interleave_rope", 4),
    "_triton_rope": vector.token_rows("triton_rope", 4, inputs=2),
    **dict.fromkeys(("ReshapeAndCacheNdKernel", "ReshapeAndCache"), vector.token_rows("kv_cache_write", 0, inputs=2)),
    **dict.fromkeys(("ScatterNdUpdate", "Scatter", "ScatterElementsV2"), vector.scatter),
    "PagedCacheLoadNdKernel": vector.cache_read,
    "KvRmsNormRopeCache": vector.token_rows("kv_norm_rope_cache", 6),
    "split_qkv_rmsnorm_rope_kernel": vector.token_rows("triton_qkv_norm_rope", 8),
    **dict.fromkeys(("GatherV2", "GatherV3", "GatherElementsV2"), vector.gather),
    "Index": vector.index,
    **dict.fromkeys(("SoftmaxV2", "LogSoftmaxV2"), vector.sampler("softmax", 5, 4)),
    **dict.fromkeys(("ArgMaxV2", "ArgMaxWithValue"), vector.sampler("argmax", 2)),
    **dict.fromkeys(("Sort", "TopKV2"), vector.sampler("sort", 2, 12)),
    "ApplyTopKTopPCustom": vector.sampler("top_k_top_p", 4, 4),
    **dict.fromkeys(("MoeGatingTopK", "MoeGatingTopKSoftmax"), vector.sampler("moe_gating_top_k", 4)),
    **dict.fromkeys(_MATMUL, cube.matmul),
    **dict.fromkeys(_BATCH_MATMUL, cube.batch_matmul),
    **dict.fromkeys(("QuantBatchMatmulV3", "QuantBatchMatmulV4"), cube.quant_matmul),
    "WeightQuantBatchMatmulV2": cube.weight_quant,
    "GroupedMatmul": cube.grouped,
    "FFN": cube.ffn,
    **dict.fromkeys(_ATTENTION, cube.attention),
    "RINGMLAPrefillBF16Kernel": cube.mla_prefill,
    **dict.fromkeys(_SHAPELESS, vector.fixed),
    **dict.fromkeys(_EXCHANGE, vector.exchange),
}


def known_op_types() -> list[str]:
    """Op types that can be priced, sorted."""
    return sorted(_MAKERS)


def work_of_row(op_type: str, input_shapes: str, dtypes: str = "", kv_tokens: int = 0) -> Work:
    """The work of a measured kernel. Raises Unpriced with the reason.

    input_shapes, dtypes: as msprof prints them, `;` between tensors. kv_tokens: keys of each request of an attention,
    0 where unknown.
    """
    maker = _MAKERS.get(op_type)
    if maker is None:
        raise Unpriced(f"op type {op_type} is not known")
    row = Row(op_type, parse_shapes(input_shapes), parse_dtypes(dtypes), kv_tokens)
    try:
        return maker(row)
    except (IndexError, ZeroDivisionError):
        raise Unpriced(f"shapes of another {op_type} than is known: {input_shapes[:60]}") from None


def repeats(op_type: str, input_shapes: str) -> bool:
    """Whether the same program ran just before this kernel, as far as its shape tells.

    A norm of [tokens, 1, head_dim] is K's norm in a model with one KV head on this rank; it follows Q's norm.
    """
    if op_type != "RmsNorm":
        return False
    first = parse_shapes(input_shapes)[0]
    return len(first) == 3 and first[1] == 1
