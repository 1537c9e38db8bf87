"""Every operation kind once: what the profiler calls it, which cores run it, and what work it asks for.

A `Work` counts flops and bytes only; times are the simulator's business. Adding a kind: one row in `CATALOGUE`, a
plain-torch reference in `device/operators`, and its fused call where a backend has one.
"""

from __future__ import annotations

from scenarios.ops import op_work as of
from scenarios.ops.op_work import OpKind
from scenarios.ops.program import Op
from scenarios.ops.work import Work


def work_of(op: Op) -> Work:
    """The work of `op`; KeyError names the kinds that exist where its kind is unknown."""
    try:
        kind = CATALOGUE[op.kind]
    except KeyError:
        raise KeyError(f"unknown op kind {op.kind!r}; the catalogue has {', '.join(sorted(CATALOGUE))}") from None
    return kind.work(op, kind)


def op_type_of(op: Op, device: str = "npu") -> str:
    """The name that CANN's profiler prints for `op`; its kind on a device that is no NPU."""
    return (op.op_type or CATALOGUE[op.kind].op_type) if device == "npu" else op.kind


def _table(*kinds: OpKind) -> dict[str, OpKind]:
    return {kind.name: kind for kind in kinds}


CATALOGUE: dict[str, OpKind] = _table(
    # Matrix products. Only these have "matmul" in their name.
    OpKind("matmul", "MatMulV2", "cube", of.matmul, "matmul", api="torch.nn.functional.linear"),
    OpKind("batch_matmul", "BatchMatMulV2", "cube", of.matmul, "matmul", api="torch.matmul"),
    OpKind("quant_matmul", "QuantBatchMatmulV3", "mix", of.matmul, "npu", api="torch_npu.npu_quant_matmul"),
    OpKind(
        "weight_quant_matmul",
        "WeightQuantBatchMatmulV2",
        "mix",
        of.matmul,
        "npu",
        api="torch_npu.npu_weight_quant_batchmatmul",
    ),
    OpKind(
        "matmul_all_reduce",
        "MatmulAllReduce",
        "mix",
        of.matmul_all_reduce,
        "npu",
        api="torch_npu.npu_mm_all_reduce_base",
    ),
    OpKind(
        "transpose_batch_matmul",
        "TransposeBatchMatMul",
        "cube",
        of.matmul,
        "npu",
        api="torch_npu.npu_transpose_batchmatmul",
    ),
    OpKind(
        "grouped_matmul",
        "GroupedMatmul",
        "cube",
        of.grouped_matmul,
        "npu",
        api="torch_npu.npu_grouped_matmul",
        routed=True,
    ),
    OpKind(
        "quant_grouped_matmul",
        "GroupedMatmul",
        "mix",
        of.grouped_matmul,
        "npu",
        api="torch_npu.npu_grouped_matmul (scale, per_token_scale)",
        routed=True,
    ),
    # Matrix products and what lies between them, in one kernel.
    OpKind("ffn", "FFN", "mix", of.ffn, "npu", ops_per_element=5, api="torch_npu.npu_ffn"),
    # Attention. Only this has "attention" in its name.
    OpKind(
        "attention",
        "FusedInferAttentionScore",
        "mix",
        of.attention,
        "npu",
        api="torch_npu.npu_fused_infer_attention_score",
    ),
    # Normalisation, one row a token or a head.
    OpKind("rms_norm", "RmsNorm", "vector", of.rows, "npu", ops_per_element=4, api="torch_npu.npu_rms_norm"),
    OpKind("add_rms_norm", "AddRmsNorm", "vector", of.rows, "npu", ops_per_element=5, api="torch_npu.npu_add_rms_norm"),
    OpKind(
        "add_rms_norm_dynamic_quant",
        "AddRmsNormDynamicQuant",
        "vector",
        of.rows,
        "npu",
        ops_per_element=9,
        api="torch_npu.npu_add_rms_norm_dynamic_quant",
    ),
    OpKind("reduce_mean", "ReduceMean", "vector", of.rows, ops_per_element=1, api="torch.mean"),
    OpKind("softmax", "SoftmaxV2", "vector", of.rows, ops_per_element=5, api="torch.softmax"),
    # Quantisation.
    OpKind(
        "dynamic_quant", "DynamicQuant", "vector", of.rows, "npu", ops_per_element=4, api="torch_npu.npu_dynamic_quant"
    ),
    OpKind("static_quant", "AscendQuantV2", "vector", of.flat, "npu", ops_per_element=3, api="torch_npu.npu_quantize"),
    # Rotary embedding, activation, cache.
    OpKind(
        "rope",
        "ApplyRotaryPosEmb",
        "vector",
        of.rope,
        "npu",
        ops_per_element=4,
        api="torch_npu.npu_apply_rotary_pos_emb",
    ),
    OpKind("swiglu", "SwiGlu", "vector", of.swiglu, "npu", ops_per_element=5, api="torch_npu.npu_swiglu"),
    OpKind(
        "dequant_swiglu_quant",
        "DequantSwigluQuant",
        "vector",
        of.dequant_swiglu_quant,
        "npu",
        ops_per_element=11,
        api="torch_npu.npu_dequant_swiglu_quant",
    ),
    OpKind(
        "kv_cache_write",
        "ScatterNdUpdate",
        "vector",
        of.cache_write,
        "npu",
        api="torch_npu.npu_scatter_nd_update_ / npu_scatter_pa_kv_cache",
    ),
    OpKind(
        "qkv_norm_rope_cache",
        "QkvRmsNormRopeCache",
        "vector",
        of.qkv_norm_rope_cache,
        "npu",
        ops_per_element=8,
        api="torch_npu.npu_qkv_rms_norm_rope_cache",
    ),
    OpKind(
        "kv_norm_rope_cache",
        "KvRmsNormRopeCache",
        "vector",
        of.token_rows,
        "npu",
        ops_per_element=6,
        api="torch_npu.npu_kv_rmsnorm_rope_cache",
    ),
    OpKind(
        "interleave_rope",
        "InterleaveRope",
        "vector",
        of.token_rows,
        "npu",
        ops_per_element=4,
        api="torch_npu.npu_interleave_rope",
    ),
    OpKind("cache_read", "PagedCacheLoadNdKernel", "vector", of.cache_read, "npu", api="paged cache load of MLA"),
    # Experts: who goes where.
    OpKind(
        "moe_gating_top_k",
        "MoeGatingTopK",
        "vector",
        of.rows,
        "npu",
        ops_per_element=4,
        api="torch_npu.npu_moe_gating_top_k",
    ),
    OpKind("moe_init_routing", "MoeInitRoutingV2", "vector", of.gather, "npu", api="torch_npu.npu_moe_init_routing_v2"),
    OpKind("moe_re_routing", "MoeReRouting", "vector", of.gather, "npu", api="torch_npu.npu_moe_re_routing"),
    OpKind(
        "moe_finalize_routing",
        "MoeFinalizeRoutingV2",
        "vector",
        of.rows,
        "npu",
        ops_per_element=2,
        api="torch_npu.npu_moe_finalize_routing",
    ),
    # Elementwise primitives: a graph compiler fuses runs of these.
    OpKind("add", "Add", "vector", of.flat, elementwise=True, api="torch.add"),
    OpKind("adds", "Adds", "vector", of.flat, elementwise=True, api="torch.add (scalar)"),
    OpKind("mul", "Mul", "vector", of.flat, elementwise=True, api="torch.mul"),
    OpKind("muls", "Muls", "vector", of.flat, elementwise=True, api="torch.mul (scalar)"),
    OpKind("div", "RealDiv", "vector", of.flat, elementwise=True, ops_per_element=2, api="torch.div"),
    OpKind("neg", "Neg", "vector", of.flat, elementwise=True, api="torch.neg"),
    OpKind("pow", "Pows", "vector", of.flat, elementwise=True, ops_per_element=2, api="torch.pow"),
    OpKind("rsqrt", "Rsqrt", "vector", of.flat, elementwise=True, ops_per_element=3, api="torch.rsqrt"),
    OpKind("silu", "Swish", "vector", of.flat, elementwise=True, ops_per_element=7, api="torch.nn.functional.silu"),
    OpKind("sigmoid", "Sigmoid", "vector", of.flat, elementwise=True, ops_per_element=6, api="torch.sigmoid"),
    OpKind("cos", "Cos", "vector", of.flat, elementwise=True, ops_per_element=50, api="torch.cos"),
    OpKind("sin", "Sin", "vector", of.flat, elementwise=True, ops_per_element=50, api="torch.sin"),
    OpKind("cast", "Cast", "vector", of.flat, elementwise=True, api="Tensor.to"),
    OpKind(
        "fused_elementwise",
        "AutomaticBufferFusionOp",
        "vector",
        of.flat,
        ops_per_element=2,
        api="made by the graph compiler",
    ),
    # Data movement.
    OpKind("concat", "ConcatD", "vector", of.copies, api="torch.cat"),
    OpKind("slice", "Slice", "vector", of.copies, "inner", api="a strided view, copied by the call that reads it"),
    OpKind("split", "SplitVD", "vector", of.copies, api="torch.split"),
    OpKind("expand", "BroadcastTo", "vector", of.flat, ops_per_element=0, api="Tensor.expand().contiguous()"),
    OpKind("transpose", "Transpose", "vector", of.transpose, api="Tensor.transpose().contiguous()"),
    OpKind("index_add", "InplaceIndexAdd", "vector", of.rows, ops_per_element=1, api="Tensor.index_add_"),
    OpKind("embedding", "GatherV2", "vector", of.gather, api="torch.nn.functional.embedding"),
    OpKind("index_select", "Index", "vector", of.gather, api="Tensor.__getitem__"),
    OpKind("block_gather", "GatherV2", "vector", of.gather, api="Tensor.__getitem__ by block table"),
    OpKind("prefetch", "CMO", "copy", of.prefetch, "npu", api="torch_npu.npu_prefetch (aclrtCmoAsync)"),
    # Sampling.
    OpKind("argmax", "ArgMaxV2", "vector", of.rows, ops_per_element=2, api="torch.argmax"),
    OpKind("sort", "Sort", "vector", of.rows, ops_per_element=2, api="torch.sort"),
    OpKind(
        "top_k_top_p",
        "ApplyTopKTopPCustom",
        "vector",
        of.rows,
        "npu",
        ops_per_element=4,
        api="torch_npu.npu_top_k_top_p",
    ),
    # Collectives: what ranks exchange.
    OpKind("all_reduce", "hcom_allReduce_", "link", of.collective, "npu", api="torch.distributed.all_reduce"),
    OpKind(
        "all_gather", "hcom_allGather_", "link", of.collective, "npu", api="torch.distributed.all_gather_into_tensor"
    ),
    OpKind(
        "reduce_scatter",
        "hcom_reduceScatter_",
        "link",
        of.collective,
        "npu",
        api="torch.distributed.reduce_scatter_tensor",
    ),
    OpKind("all_to_all", "hcom_alltoallv_", "link", of.collective, "npu", api="torch.distributed.all_to_all_single"),
    OpKind(
        "moe_dispatch",
        "MoeDistributeDispatchV2",
        "link",
        of.exchange,
        "npu",
        api="torch_npu.npu_moe_distribute_dispatch_v2",
    ),
    OpKind(
        "moe_combine",
        "MoeDistributeCombineV2",
        "link",
        of.exchange,
        "npu",
        api="torch_npu.npu_moe_distribute_combine_v2",
    ),
    OpKind("send_recv", "hcom_send_", "link", of.collective, "npu", api="torch.distributed.send / recv"),
    # The host's input preparation, and the graph's parameter update.
    OpKind("prepare", "Prepare", "vector", of.fixed, api="input preparation of the model runner"),
    OpKind("prepare_mask", "PrepareMask", "vector", of.flat, api="attention mask of the model runner"),
    OpKind("prepare_cpu", "PrepareCpu", "ai_cpu", of.fixed, api="input preparation on the AI CPU"),
    OpKind("graph_parameters", "Data", "vector", of.fixed, api="parameter update at the start of a ge_graph replay"),
)
