"""The torch_npu calls that a Program asks for, told from its ops alone."""

from __future__ import annotations

from scenarios.ops.program import Op, Program

#: The call of each kind; a kind with two of them is reported by the rest of the op.
CALL_OF = {
    "rms_norm": "npu_rms_norm", "add_rms_norm": "npu_add_rms_norm", "rope": "npu_apply_rotary_pos_emb",
    "swiglu": "npu_swiglu", "add_rms_norm_dynamic_quant": "npu_add_rms_norm_dynamic_quant",
    "dynamic_quant": "npu_dynamic_quant", "static_quant": "npu_quantize", "quant_matmul": "npu_quant_matmul",
    "weight_quant_matmul": "npu_weight_quant_batchmatmul", "prefetch": "npu_prefetch", "ffn": "npu_ffn",
    "moe_init_routing": "npu_moe_init_routing_v2", "moe_finalize_routing": "npu_moe_finalize_routing",
    "grouped_matmul": "npu_grouped_matmul", "quant_grouped_matmul": "npu_grouped_matmul",
    "transpose_batch_matmul": "npu_transpose_batchmatmul", "cache_read": "npu_gather_pa_kv_cache",
    "kv_norm_rope_cache": "npu_kv_rmsnorm_rope_cache_v2", "interleave_rope": "npu_interleave_rope",
    "qkv_norm_rope_cache": "npu_qkv_rms_norm_rope_cache", "dequant_swiglu_quant": "npu_dequant_swiglu_quant",
}  # fmt: skip
V1, V2 = "npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2"


def call_of(op: Op, longest_query: int) -> str | None:
    """The call that `op` makes, None for one of torch's own."""
    match op.kind:
        case "kv_cache_write":
            both = sum(t.role == "activation" for t in op.inputs) == 2
            return "npu_scatter_pa_kv_cache" if both else "npu_scatter_nd_update_"
        case "attention":
            latent = op.attr("latent", False) or op.name == "prefill_attention"
            sinks = any(t.role == "weight" for t in op.inputs)
            tnd = op.attr("block_size") and (op.attr("head_dim") == 128 or sinks) and op.inputs[1].dtype != "int8"
            nz = op.inputs[1].format == "nz" and op.inputs[1].dtype == "int8" and longest_query <= 16
            return V2 if latent or tnd or nz else V1
        case "moe_gating_top_k":  # a bias goes with a sigmoid
            return "npu_moe_gating_top_k" if len(op.inputs) > 1 else "npu_moe_gating_top_k_softmax"
    return CALL_OF.get(op.kind)


#: What a fused cache write of 16 bits makes, norm by norm.
IN_CALLS = ("npu_rms_norm", "npu_rms_norm", "npu_apply_rotary_pos_emb", "npu_scatter_pa_kv_cache")


def calls_of(program: Program) -> list[str]:
    """All calls in order."""
    longest = max(group.query for group in program.batch.groups)
    ops = (op for issued in program for op in issued.op.parts or (issued.op,))
    calls: list[str] = []
    for op in ops:
        if op.kind == "qkv_norm_rope_cache" and op.inputs[-1].dtype != "int8":
            calls += IN_CALLS
        elif call := call_of(op, longest):
            calls.append(call)
    return calls
