"""Every operation kind once: what the profiler calls it, which cores run it, and what work it asks for.

A `Work` counts flops and bytes only; times are the simulator's business. Adding a kind: one row in `CATALOGUE`, a
plain-torch reference in `device/operators`, and its fused call where a backend has one.
"""

from __future__ import annotations

from collections.abc import Callable

from scenarios.ops import attention_work as attention
from scenarios.ops import compressed_work as compressed
from scenarios.ops import link_work as link
from scenarios.ops import move_work as move
from scenarios.ops import product_work as product
from scenarios.ops import state_work as state
from scenarios.ops import vector_work as vector
from scenarios.ops.families import Family, family_of_type
from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import Op
from scenarios.ops.work import Work


def work_of(op: Op) -> Work:
    """The work of `op`; KeyError names the kinds that exist where its kind is unknown."""
    try:
        kind = CATALOGUE[op.kind]
    except KeyError:
        raise KeyError(f"unknown op kind {op.kind!r}; the catalogue has {', '.join(sorted(CATALOGUE))}") from None
    work, variant = kind.work(op, kind), VARIANTS.get((op.kind, op.op_type))
    return variant(op, work) if variant else work


def kind_of(op: Op) -> OpKind:
    """The catalogue's entry of `op`; KeyError where there is none."""
    return CATALOGUE[op.kind]


def params_name(name: str) -> str:
    """The set of a hardware profile's numbers that prices a kernel called `name`: a kind of the catalogue, or a set."""
    kind = CATALOGUE.get(name)
    return (kind.params or name) if kind else name


def family_of(name: str) -> Family:
    """The family of a kernel called `name`: a kind of the catalogue, or a set of kernel parameters."""
    kind = CATALOGUE.get(name)
    return kind.family if kind else family_of_type(name)


def op_type_of(op: Op, device: str = "npu") -> str:
    """The name that CANN's profiler prints for `op`; its kind on a device that is no NPU."""
    return (op.op_type or CATALOGUE[op.kind].op_type) if device == "npu" else op.kind


def _table(*kinds: OpKind) -> dict[str, OpKind]:
    return {kind.name: kind for kind in kinds}


#: Work of kernels that a stack runs in place of a kind's own: (kind, profiler's name) -> (op, the kind's work) -> Work.
VARIANTS: dict[tuple[str, str], Callable[[Op, Work], Work]] = {
    ("rms_norm", "InplaceAddRmsNorm"): vector.norm_through_add,
    ("kv_cache_write", "Scatter"): move.scattered,
}

# fmt: off
CATALOGUE: dict[str, OpKind] = _table(
    # Matrix products. Only these have "matmul" in their name.
    OpKind("matmul", "MatMulV2", "cube", product.matmul, "matmul", api="torch.nn.functional.linear", family="matmul",
           dense=True),
    OpKind("batch_matmul", "BatchMatMulV2", "cube", product.matmul, "matmul", api="torch.matmul", family="matmul",
           over_cache="growing"),
    OpKind("quant_matmul", "QuantBatchMatmulV3", "mix", product.matmul, "npu", api="torch_npu.npu_quant_matmul",
           family="matmul", switch="weights", dense=True),
    OpKind("weight_quant_matmul", "WeightQuantBatchMatmulV2", "mix", product.matmul, "npu",
           api="torch_npu.npu_weight_quant_batchmatmul", family="matmul", switch="weights", dense=True),
    OpKind("matmul_all_reduce", "MatmulAllReduce", "mix", product.matmul_all_reduce, "npu",
           api="torch_npu.npu_mm_all_reduce_base", family="matmul", switch="fusion.matmul_all_reduce", exchanges="sums",
           torch_kernel="none"),
    OpKind("transpose_batch_matmul", "TransposeBatchMatMul", "cube", product.matmul, "npu",
           api="torch_npu.npu_transpose_batchmatmul", family="matmul", switch="fusion.attention", over_cache="fixed"),
    OpKind("grouped_matmul", "GroupedMatmul", "cube", product.grouped_matmul, "npu", api="torch_npu.npu_grouped_matmul",
           routed=True, family="matmul", switch="fusion.grouped_matmul", reads_choice=True, as_mix=True),
    OpKind("quant_grouped_matmul", "GroupedMatmul", "mix", product.grouped_matmul, "npu",
           api="torch_npu.npu_grouped_matmul (scale, per_token_scale)", routed=True, family="matmul", switch="weights",
           params="grouped_matmul", reads_choice=True),
    # Matrix products and what lies between them, in one kernel.
    OpKind("ffn", "FFN", "mix", product.ffn, "npu", ops_per_element=5, api="torch_npu.npu_ffn", family="matmul",
           switch="fusion.ffn", torch_kernel="none"),
    # Attention. Only this has "attention" in its name.
    OpKind("attention", "FusedInferAttentionScore", "mix", attention.attention, "npu",
           api="torch_npu.npu_fused_infer_attention_score", family="attention", part="attention",
           switch="fusion.attention", over_cache="fixed"),
    OpKind("lightning_indexer", "LightningIndexer", "mix", attention.lightning_indexer, "npu",
           api="torch_npu.npu_lightning_indexer", part="attention", over_cache="fixed"),
    # Compressed keys next to a window, and a residual of several streams (DeepSeek-V4; kernels of vLLM-Ascend's own).
    OpKind("sparse_attn_sharedkv", "SparseAttnSharedkv", "mix", compressed.shared_kv_attention, "npu",
           api="npu_sparse_attn_sharedkv (vLLM-Ascend)", part="attention", over_cache="fixed"),
    OpKind("lightning_indexer_quant", "QuantLightningIndexer", "mix", compressed.quant_lightning_indexer, "npu",
           api="npu_vllm_quant_lightning_indexer (vLLM-Ascend)", part="attention"),
    OpKind("compressor", "Compressor", "mix", compressed.compressor, "npu", api="compressor (vLLM-Ascend)",
           part="attention"),
    OpKind("compressor_metadata", "CompressorMetadata", "vector", vector.fixed, "npu",
           api="compressor_metadata (vLLM-Ascend)", part="attention"),
    OpKind("compressed_write", "ScatterNdUpdateV2", "vector", compressed.row_write, "npu",
           api="npu_scatter_nd_update_v2 (vLLM-Ascend)", part="cache", params="kv_cache_write"),
    OpKind("partial_rotary_mul", "InplacePartialRotaryMul", "vector", compressed.partial_rotary, "npu",
           ops_per_element=4, api="inplace_partial_rotary_mul (vLLM-Ascend)", params="rope"),
    OpKind("hc_pre", "HcPre", "mix", compressed.mixed_streams, "npu", ops_per_element=4,
           api="npu_hc_pre_v2 (vLLM-Ascend)", params="row_wise"),
    OpKind("hc_post", "HcPost", "vector", compressed.mixed_streams, "npu", ops_per_element=8,
           api="npu_hc_post (vLLM-Ascend)", params="row_wise"),
    # A state in place of keys and values: gated delta rule.
    OpKind("causal_conv1d", "CausalConv1d", "vector", state.causal_conv1d, "npu", api="npu_causal_conv1d",
           part="attention", params="row_wise"),
    OpKind("gdn_gating", "fused_gdn_gating_kernel", "vector", vector.flat, "npu", ops_per_element=60,
           api="fused_gdn_gating (Triton)", part="attention", params="elementwise"),
    OpKind("l2_norm", "l2norm_fwd_kernel", "vector", vector.rows, "npu", ops_per_element=4, api="l2norm_fwd (Triton)",
           part="norm", params="row_wise"),
    OpKind("gated_delta_rule", "RecurrentGatedDeltaRule", "vector", state.recurrent_rule, "npu",
           api="npu_recurrent_gated_delta_rule", part="attention", params="row_wise", token_by_token=True),
    OpKind("chunk_gated_delta_rule", "ChunkGatedDeltaRule", "mix", state.chunked_rule, "npu",
           api="torch_npu.npu_chunk_gated_delta_rule", part="attention", params="attention"),
    OpKind("selective_state_update", "selective_state_update_kernel", "vector", state.recurrent_rule, "npu",
           api="selective_state_update (Triton)", part="attention", params="row_wise", token_by_token=True),
    OpKind("mamba_chunk_scan", "mamba_chunk_scan_combined", "mix", state.chunked_scan, "npu",
           api="mamba_chunk_scan_combined (Triton, several kernels)", part="attention", params="attention"),
    OpKind("gated_rms_norm", "RmsNormGated", "vector", vector.rows, "npu", ops_per_element=12,
           api="RMSNormGated (Triton)", part="norm", params="row_wise"),
    # Normalisation, one row per token or a head.
    OpKind("rms_norm", "RmsNorm", "vector", vector.rows, "npu", ops_per_element=4, api="torch_npu.npu_rms_norm",
           part="norm", switch="fusion.rms_norm", twin=True),
    OpKind("add_rms_norm", "AddRmsNorm", "vector", vector.rows, "npu", ops_per_element=5,
           api="torch_npu.npu_add_rms_norm", part="norm", switch="fusion.add_rms_norm", torch_kernel="compiled"),
    OpKind("add_rms_norm_dynamic_quant", "AddRmsNormDynamicQuant", "vector", vector.rows, "npu", ops_per_element=9,
           api="torch_npu.npu_add_rms_norm_dynamic_quant", part="norm", switch="fusion.add_rms_norm_quant",
           torch_kernel="compiled"),
    OpKind("layer_norm", "LayerNormV3", "vector", vector.rows, ops_per_element=6, api="torch.nn.functional.layer_norm",
           part="norm", params="row_wise"),
    OpKind("reduce_mean", "ReduceMean", "vector", vector.rows, ops_per_element=1, api="torch.mean", part="norm",
           reduces_rows=True, params="reduce"),
    OpKind("softmax", "SoftmaxV2", "vector", vector.rows, ops_per_element=5, api="torch.softmax", part="attention"),
    # Quantisation.
    OpKind("dynamic_quant", "DynamicQuant", "vector", vector.rows, "npu", ops_per_element=4,
           api="torch_npu.npu_dynamic_quant", switch="weights"),
    OpKind("static_quant", "AscendQuantV2", "vector", vector.flat, "npu", ops_per_element=3,
           api="torch_npu.npu_quantize", switch="kv.dtype"),
    # Rotary embedding, activation, cache.
    OpKind("rope", "ApplyRotaryPosEmb", "vector", vector.rope, "npu", ops_per_element=4,
           api="torch_npu.npu_apply_rotary_pos_emb", switch="fusion.rope", torch_kernel="compiled"),
    OpKind("swiglu", "SwiGlu", "vector", vector.swiglu, "npu", ops_per_element=5, api="torch_npu.npu_swiglu",
           switch="fusion.swiglu", torch_kernel="compiled"),
    OpKind("dequant_swiglu_quant", "DequantSwigluQuant", "vector", vector.dequant_swiglu_quant, "npu",
           ops_per_element=11, api="torch_npu.npu_dequant_swiglu_quant", switch="fusion.swiglu_quant",
           torch_kernel="compiled"),
    OpKind("kv_cache_write", "ScatterNdUpdate", "vector", move.cache_write, "npu",
           api="torch_npu.npu_scatter_nd_update_ / npu_scatter_pa_kv_cache", part="cache", switch="kv.layout"),
    OpKind("qkv_norm_rope_cache", "QkvRmsNormRopeCache", "vector", vector.qkv_norm_rope_cache, "npu", ops_per_element=8,
           api="torch_npu.npu_qkv_rms_norm_rope_cache", part="cache", switch="fusion.qkv_norm_rope_cache",
           torch_kernel="compiled"),
    OpKind("split_qkv_norm_rope", "split_qkv_rmsnorm_rope_kernel", "vector", vector.token_rows, "npu",
           ops_per_element=8, api="vLLM-Ascend's Triton kernel; its parts one after the other",
           params="triton_qkv_norm_rope"),
    OpKind("kv_norm_rope_cache", "KvRmsNormRopeCache", "vector", vector.token_rows, "npu", ops_per_element=6,
           api="torch_npu.npu_kv_rmsnorm_rope_cache", part="cache", switch="fusion.qkv_norm_rope_cache"),
    OpKind("interleave_rope", "InterleaveRope", "vector", vector.token_rows, "npu", ops_per_element=4,
           api="torch_npu.npu_interleave_rope", switch="fusion.qkv_norm_rope_cache"),
    OpKind("cache_read", "PagedCacheLoadNdKernel", "vector", move.cache_read, "npu", api="paged cache load of MLA",
           part="cache", switch="kv.layout", params="kv_cache_read", over_cache="fixed"),
    # Experts: who goes where.
    OpKind("moe_gating_top_k", "MoeGatingTopK", "vector", vector.rows, "npu", ops_per_element=4,
           api="torch_npu.npu_moe_gating_top_k", part="experts", switch="fusion.moe_routing"),
    OpKind("moe_init_routing", "MoeInitRoutingV2", "vector", move.gather, "npu",
           api="torch_npu.npu_moe_init_routing_v2", part="experts", switch="fusion.grouped_matmul", params="gather",
           reads_choice=True, as_mix=True),
    OpKind("moe_re_routing", "MoeReRouting", "vector", move.gather, "npu", api="torch_npu.npu_moe_re_routing",
           part="experts", params="gather", exchanges="tokens"),
    OpKind("moe_finalize_routing", "MoeFinalizeRoutingV2", "vector", vector.rows, "npu", ops_per_element=2,
           api="torch_npu.npu_moe_finalize_routing", part="experts", switch="fusion.grouped_matmul", params="row_wise",
           reads_choice=True),
    # Elementwise primitives: a graph compiler fuses runs of these.
    OpKind("add", "Add", "vector", vector.flat, elementwise=True, api="torch.add", params="elementwise"),
    OpKind("adds", "Adds", "vector", vector.flat, elementwise=True, api="torch.add (scalar)", params="elementwise"),
    OpKind("mul", "Mul", "vector", vector.flat, elementwise=True, api="torch.mul", params="elementwise"),
    OpKind("muls", "Muls", "vector", vector.flat, elementwise=True, api="torch.mul (scalar)", params="elementwise"),
    OpKind("div", "RealDiv", "vector", vector.flat, elementwise=True, ops_per_element=2, api="torch.div",
           params="elementwise"),
    OpKind("neg", "Neg", "vector", vector.flat, elementwise=True, api="torch.neg", params="elementwise"),
    OpKind("pow", "Pows", "vector", vector.flat, elementwise=True, ops_per_element=2, api="torch.pow", part="norm",
           params="elementwise"),
    OpKind("rsqrt", "Rsqrt", "vector", vector.flat, elementwise=True, ops_per_element=3, api="torch.rsqrt", part="norm",
           params="elementwise"),
    OpKind("silu", "Swish", "vector", vector.flat, elementwise=True, ops_per_element=7, api="torch.nn.functional.silu",
           params="elementwise"),
    OpKind("sigmoid", "Sigmoid", "vector", vector.flat, elementwise=True, ops_per_element=6, api="torch.sigmoid",
           params="elementwise"),
    OpKind("gelu", "Gelu", "vector", vector.flat, elementwise=True, ops_per_element=15,
           api="torch.nn.functional.gelu (tanh)", params="elementwise"),
    OpKind("softplus", "SoftplusV2", "vector", vector.flat, elementwise=True, ops_per_element=12,
           api="torch.nn.functional.softplus", params="elementwise"),
    OpKind("sqrt", "Sqrt", "vector", vector.flat, elementwise=True, ops_per_element=3, api="torch.sqrt",
           params="elementwise"),
    OpKind("tanh", "Tanh", "vector", vector.flat, elementwise=True, ops_per_element=10, api="torch.tanh",
           params="elementwise"),
    OpKind("relu", "Relu", "vector", vector.flat, elementwise=True, api="torch.relu", params="elementwise"),
    OpKind("clamp", "ClipByValueV2", "vector", vector.flat, elementwise=True, ops_per_element=2, api="torch.clamp",
           params="elementwise"),
    OpKind("expm1", "Expm1", "vector", vector.flat, elementwise=True, ops_per_element=10, api="torch.expm1",
           params="elementwise"),
    OpKind("where", "SelectV2", "vector", vector.flat, elementwise=True, ops_per_element=2,
           api="torch.where(x > 0, a, b)", params="elementwise"),
    OpKind("cos", "Cos", "vector", vector.flat, elementwise=True, ops_per_element=50, api="torch.cos",
           params="elementwise"),
    OpKind("sin", "Sin", "vector", vector.flat, elementwise=True, ops_per_element=50, api="torch.sin",
           params="elementwise"),
    OpKind("cast", "Cast", "vector", vector.flat, elementwise=True, api="Tensor.to", params="elementwise"),
    OpKind("fused_elementwise", "AutomaticBufferFusionOp", "vector", vector.flat, ops_per_element=2,
           api="made by the graph compiler", params="elementwise"),
    # Data movement.
    OpKind("concat", "ConcatD", "vector", move.copies, api="torch.cat", params="slice"),
    OpKind("slice", "Slice", "vector", move.copies, "inner", api="a strided view, copied by the call that reads it"),
    OpKind("split", "SplitVD", "vector", move.copies, api="torch.split", params="slice"),
    OpKind("expand", "BroadcastTo", "vector", vector.flat, ops_per_element=0, api="Tensor.expand().contiguous()",
           over_cache="growing"),
    OpKind("transpose", "Transpose", "vector", move.transpose, api="Tensor.transpose().contiguous()",
           over_cache="fixed"),
    OpKind("index_add", "InplaceIndexAdd", "vector", vector.rows, ops_per_element=1, api="Tensor.index_add_",
           params="row_wise"),
    OpKind("embedding", "GatherV2", "vector", move.gather, api="torch.nn.functional.embedding", params="gather",
           picks_rows=True),
    OpKind("index_select", "Index", "vector", move.gather, api="Tensor.__getitem__", params="gather", picks_rows=True),
    OpKind("block_gather", "GatherV2", "vector", move.gather, api="Tensor.__getitem__ by block table", part="cache",
           params="gather", picks_rows=True, over_cache="growing"),
    OpKind("prefetch", "CMO", "copy", move.prefetch, "npu", api="torch_npu.npu_prefetch (aclrtCmoAsync)", part="cache",
           switch="overlap.prefetch"),
    # Sampling.
    OpKind("argmax", "ArgMaxV2", "vector", vector.rows, ops_per_element=2, api="torch.argmax"),
    OpKind("sort", "Sort", "vector", vector.rows, ops_per_element=2, api="torch.sort"),
    OpKind("top_k_top_p", "ApplyTopKTopPCustom", "vector", vector.rows, "npu", ops_per_element=4,
           api="torch_npu.npu_top_k_top_p"),
    # Collectives: what ranks exchange.
    OpKind("all_reduce", "hcom_allReduce_", "link", link.collective, "collective", api="torch.distributed.all_reduce",
           exchanges="sums"),
    OpKind("all_gather", "hcom_allGather_", "link", link.collective, "collective",
           api="torch.distributed.all_gather_into_tensor", exchanges="shares"),
    OpKind("reduce_scatter", "hcom_reduceScatter_", "link", link.collective, "collective",
           api="torch.distributed.reduce_scatter_tensor", exchanges="shares of sums"),
    OpKind("all_to_all", "hcom_alltoallv_", "link", link.collective, "collective",
           api="torch.distributed.all_to_all_single", exchanges="tokens"),
    OpKind("moe_dispatch", "MoeDistributeDispatchV2", "link", link.exchange, "npu",
           api="torch_npu.npu_moe_distribute_dispatch_v2", part="experts", switch="fusion.moe_dispatch",
           exchanges="tokens", torch_kernel="none", quantises_sent=True),
    OpKind("moe_combine", "MoeDistributeCombineV2", "link", link.exchange, "npu",
           api="torch_npu.npu_moe_distribute_combine_v2", part="experts", switch="fusion.moe_dispatch",
           exchanges="tokens", torch_kernel="none"),
    OpKind("send_recv", "hcom_send_", "link", link.collective, "collective", api="torch.distributed.send / recv",
           exchanges="stages"),
    # The host's input preparation, and the graph's parameter update.
    OpKind("prepare", "Prepare", "vector", vector.fixed, api="input preparation of the model runner"),
    OpKind("prepare_mask", "PrepareMask", "vector", vector.flat, api="attention mask of the model runner",
           params="elementwise"),
    OpKind("prepare_cpu", "PrepareCpu", "ai_cpu", vector.fixed, api="input preparation on the AI CPU"),
    OpKind("graph_parameters", "Data", "vector", vector.fixed, api="parameter update at the start of a ge_graph replay",
           part="graph"),
)
# fmt: on
