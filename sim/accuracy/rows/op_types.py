"""Measured kernels as `Work`: op type, input shapes and data types, as msprof prints them, mapped onto the cost model.

The profiler prints inputs only, so outputs follow from the op type; where a shape leaves something open, the usual case
of a language model stands for it, and `GUESSES` says which. FRACTAL_NZ weights are [a, b, 16, 16] in 16 bit (K = 16 a,
N = 16 b) and [a, b, 16, 32] in INT8 (N = 32 a, K = 16 b).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from scenarios.ops.families import family_of_type
from scenarios.ops.work import Work
from sim.accuracy.rows import cube, experts, vector
from sim.accuracy.rows.cube import attention_work
from sim.accuracy.rows.row import Row, Unpriced, parse_dtypes, parse_shapes
from sim.accuracy.rows.vector import Maker

__all__ = ["GUESSES", "Unpriced", "attention_work", "known_op_types", "plain_work", "work_of_row"]

#: What the profiler's shapes leave open, and what is taken for it.
GUESSES = {
    "Slice": "where the output is not printed, one head of 128 of a packed QKV is kept, half of the last dimension "
    "of other tensors",
    "Cast": "16 bit becomes 32 bit and the other way round; other types become 64 bit",
    "BroadcastTo": "where the output is not printed, [tokens, 1, 64] is a rotary key for 16 heads; other outputs are "
    "twice the input",
    "Fill": "a small tensor where the output is not printed",
    "MoeFinalizeRoutingV2": "the choice of experts tells the tokens where the output is not printed",
    "FusedInferAttentionScore": "every request has kv_tokens keys",
    "GroupedMatmul": "tokens are spread evenly over the experts",
    "RINGMLAPrefillBF16Kernel": "the tokens attend to themselves only",
}

_PLAIN = (
    "Add", "Adds", "AddV2", "Sub", "Mul", "Muls", "Maximum", "Minimum", "Neg", "Abs", "Relu", "Axpy", "FloorMod", "Mod",
    "LogicalNot", "LogicalAnd", "LogicalOr", "LogicalXor", "BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "LeftShift", "RightShift", "ClipByValue", "ClipByValueV2", "Square", "Sign", "Floor", "Ceil", "Round", "Rint",
    "SquaredDifference", "Inv", "Reciprocal", "Trunc",
)  # fmt: skip
_COMPARE = ("GreaterEqual", "Greater", "Less", "LessEqual", "Equal", "NotEqual", "IsFinite", "IsNan", "IsInf")
#: Vector instructions of functions that take several.
_FUNCTIONS = {
    "RealDiv": 2, "Div": 2, "Log": 8, "Exp": 4, "Sqrt": 2, "Rsqrt": 3, "Pow": 8, "Pows": 2, "Sigmoid": 6, "Swish": 7,
    "Silu": 7, "Gelu": 12, "GeluV2": 12, "FastGelu": 8, "FastGeluV2": 8, "Tanh": 10, "Erf": 12, "Softplus": 10,
    "Log1p": 9, "Mish": 30, "Cos": 50, "Sin": 50, "AutomaticBufferFusionOp": 4, "SwishMul": 8, "DivNoNan": 3,
    "Addcmul": 2, "Addcdiv": 3, "Lerp": 3, "AddN": 1,
}  # fmt: skip
#: Programs of functions that are not those of a plain sum.
_PROGRAMS = {
    **dict.fromkeys(
        ("Log", "Log1p", "Exp", "Sqrt", "Rsqrt", "Pow", "Pows", "Cos", "Sin", "Erf", "Softplus"), "elementwise_heavy"
    ),
    **dict.fromkeys(("Gelu", "GeluV2", "FastGelu", "FastGeluV2", "Tanh", "Swish", "Silu"), "gelu"),
    **dict.fromkeys(("AutomaticBufferFusionOp", "SwishMul"), "swish_mul"),
    "Sigmoid": "sigmoid",
    "Mish": "mish",
}
_SLICES = ("Slice", "SliceD", "StridedSlice", "StridedSliceD", "StridedSliceV2", "StridedSliceV3")
_SPLITS = ("SplitVD", "SplitV", "Split", "SplitD", "Unpack")
_REDUCE = tuple(
    f"Reduce{what}{form}" for what in ("Sum", "Mean", "Max", "Min", "Any", "All", "Prod") for form in ("", "D")
)
_PERMUTED = ("MoeInitRouting", "MoeInitRoutingV2", "MoeInitRoutingV3", "MoeTokenPermute", "MoeReRouting")
_UNPERMUTED = ("MoeFinalizeRouting", "MoeFinalizeRoutingV2", "MoeTokenUnpermute")
_MATMUL = ("MatMul", "MatMulV2", "MatMulV3", "GemmV3")
_BATCH_MATMUL = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "TransposeBatchMatMul")
_ATTENTION = ("FusedInferAttentionScore", "IncreFlashAttention", "PromptFlashAttention")
#: Kernels without a shape: AI CPU kernels, the parameter update of a static graph, exchanges between ranks.
_SHAPELESS = ("Cumsum", "FloorDiv", "Data")
_EXCHANGE = ("MoeDistributeDispatchV2", "MoeDistributeCombineV2")

#: Op types whose time no shape tells, or whose shape may be left out.
_NO_SHAPES = frozenset((*_SHAPELESS, *_EXCHANGE, "Range", "RangeD"))
#: Known, and in no Program: convolutions and pictures.
_OTHER_NETWORKS = frozenset(
    ("Conv2D", "Conv3D", "ResizeBilinearV2", "ResizeNearestNeighborV2", "MaxPoolV3", "AvgPoolV2")
)
_MAKERS: dict[str, Maker] = {
    **dict.fromkeys(_PLAIN, vector.elementwise()),
    **{name: vector.elementwise(_PROGRAMS.get(name, ""), ops=ops) for name, ops in _FUNCTIONS.items()},
    **dict.fromkeys(_COMPARE, vector.elementwise("compare", vector.byte)),
    "Cast": vector.elementwise("cast", vector.cast_size),
    **dict.fromkeys(("MaskedFill", "Select", "SelectV2"), vector.masked_fill),
    **dict.fromkeys(("BroadcastTo", "BroadcastToD", "Tile", "TileD", "Expand", "ExpandD"), vector.expand),
    **dict.fromkeys(("TensorMove", "Identity", "ViewCopy", "Pad", "PadD", "PadV3"), vector.copy),
    **dict.fromkeys(("Fill", "FillD", "ZerosLike", "OnesLike", "MemSet"), vector.fill),
    **dict.fromkeys(("Range", "RangeD"), vector.range_),
    **dict.fromkeys(_SLICES, vector.slice_),
    **dict.fromkeys(_SPLITS, vector.split),
    **dict.fromkeys(("Concat", "ConcatD", "ConcatV2", "ConcatV2D", "Pack"), vector.concat),
    "AsStrided": vector.as_strided,
    **dict.fromkeys(("Transpose", "TransposeD"), vector.transpose),
    "TransData": vector.trans_data,
    **dict.fromkeys(("SwiGlu", "SwiGluQuant", "DequantSwigluQuant"), vector.swiglu),
    **dict.fromkeys(("AscendQuantV2", "AscendQuant"), vector.static_quant),
    **dict.fromkeys(("RmsNorm", "GemmaRmsNorm"), vector.norm("rms_norm", 4)),
    **dict.fromkeys(("LayerNorm", "LayerNormV3", "LayerNormV4"), vector.norm("rms_norm", 6)),
    **dict.fromkeys(
        ("AddRmsNorm", "AddRmsNormBias", "InplaceAddRmsNorm"), vector.norm("add_rms_norm", 5, residual=True)
    ),
    "AddRmsNormDynamicQuant": vector.norm("add_rms_norm_dynamic_quant", 9, vector.byte, residual=True),
    **dict.fromkeys(("DynamicQuant", "DynamicQuantV2"), vector.norm("dynamic_quant", 4, vector.byte)),
    **dict.fromkeys(_REDUCE, vector.norm("reduce", 1, vector.byte)),
    "ApplyRotaryPosEmb": vector.apply_rope,
    "RotaryPositionEmbedding": vector.token_rows("rope", 4),
    "InterleaveRope": vector.token_rows("interleave_rope", 4),
    "_triton_rope": vector.token_rows("triton_rope", 4, inputs=2),
    **dict.fromkeys(("ReshapeAndCacheNdKernel", "ReshapeAndCache"), vector.token_rows("kv_cache_write", 0, inputs=2)),
    "Scatter": partial(vector.scatter, program="scatter"),
    **dict.fromkeys(("ScatterNdUpdate", "ScatterUpdate", "ScatterElementsV2", "IndexPutV2"), vector.scatter),
    "PagedCacheLoadNdKernel": vector.cache_read,
    "KvRmsNormRopeCache": vector.token_rows("kv_norm_rope_cache", 6),
    "split_qkv_rmsnorm_rope_kernel": vector.token_rows("triton_qkv_norm_rope", 8),
    **dict.fromkeys(("GatherV2", "GatherV2D", "GatherV3", "GatherElements", "GatherElementsV2"), vector.gather),
    "Index": vector.index,
    **dict.fromkeys(("SoftmaxV2", "LogSoftmaxV2"), vector.sampler("softmax", 5, 4)),
    **dict.fromkeys(("ArgMaxV2", "ArgMaxD", "ArgMaxWithValue", "ArgMin", "ArgMinD"), vector.sampler("argmax", 2)),
    **dict.fromkeys(("Sort", "TopK", "TopKD", "TopKV2"), vector.sampler("sort", 2, 12)),
    "ApplyTopKTopPCustom": vector.sampler("top_k_top_p", 4, 4),
    **dict.fromkeys(("MoeGatingTopK", "MoeGatingTopKSoftmax"), vector.sampler("moe_gating_top_k", 4)),
    **dict.fromkeys(_PERMUTED, experts.permuted),
    **dict.fromkeys(_UNPERMUTED, experts.unpermuted),
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


def plain_work(op_type: str, input_shapes: str, dtypes: str = "", output_shapes: str = "") -> Work:
    """The work of a vector kernel of an unknown op type: each element of its tensors moved once, one instruction each.

    Raises Unpriced for a type that `work_of_row` knows, for what is no vector kernel by its name, and without shapes.
    """
    known = op_type in _MAKERS or op_type in _OTHER_NETWORKS
    if known or family_of_type(op_type) != "vector" or not (input_shapes + output_shapes).strip("; "):
        raise Unpriced(f"op type {op_type} is not known")
    outputs = parse_shapes(output_shapes) if output_shapes else ()
    row = Row(op_type, parse_shapes(input_shapes), parse_dtypes(dtypes), 0, outputs)
    return vector.laid_out(replace(vector.elementwise()(row), program=op_type), row)


def known_op_types() -> list[str]:
    """Op types that can be priced, sorted."""
    return sorted(_MAKERS)


def work_of_row(op_type: str, input_shapes: str, dtypes: str = "", kv_tokens: int = 0, output_shapes: str = "") -> Work:
    """The work of a measured kernel. Raises Unpriced with the reason.

    input_shapes, dtypes, output_shapes: as msprof prints them, `;` between tensors. kv_tokens: keys of each request of
    an attention, 0 where unknown.
    """
    maker = _MAKERS.get(op_type)
    if maker is None:
        reason = "is no kernel of a language model's step" if op_type in _OTHER_NETWORKS else "is not known"
        raise Unpriced(f"op type {op_type} {reason}")
    if op_type not in _NO_SHAPES and not (input_shapes + output_shapes).strip("; "):
        raise Unpriced("the source prints no shapes")
    outputs = parse_shapes(output_shapes) if output_shapes else ()
    row = Row(op_type, parse_shapes(input_shapes), parse_dtypes(dtypes), kv_tokens, outputs)
    try:
        return vector.laid_out(maker(row), row)
    except (IndexError, ZeroDivisionError):
        raise Unpriced(f"shapes of another {op_type} than is known: {input_shapes[:60]}") from None
