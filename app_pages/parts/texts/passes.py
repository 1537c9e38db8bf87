"""Optimisations by name where they stand alone, without the heading of a group above them."""

from app_pages.parts.texts import Table

#: By the switch below `optimizations`; {value} is the value meant.
TEXTS: Table = {
    "fusion.rms_norm": ("fused RMSNorm", "融合 RMSNorm"),
    "fusion.add_rms_norm": ("fused Add + RMSNorm", "融合 Add + RMSNorm"),
    "fusion.rope": ("fused RoPE", "融合 RoPE"),
    "fusion.swiglu": ("fused SwiGLU", "融合 SwiGLU"),
    "fusion.attention": ("fused attention", "融合注意力"),
    "fusion.qkv": ("packed QKV", "合并 QKV 投影"),
    "fusion.gate_up": ("packed gate and up", "合并 gate 与 up"),
    "fusion.qkv_norm_rope_cache": ("norm + RoPE + cache write", "归一化 + RoPE + 写缓存"),
    "fusion.moe_routing": ("fused expert routing", "融合专家路由"),
    "fusion.grouped_matmul": ("grouped expert matmul", "专家分组矩阵乘"),
    "fusion.moe_dispatch": ("expert dispatch, combine", "专家分发与合并"),
    "fusion.matmul_all_reduce": ("matmul + all-reduce", "矩阵乘 + 全归约"),
    "fusion.add_rms_norm_quant": ("Add + RMSNorm + quantise", "Add + RMSNorm + 量化"),
    "fusion.swiglu_quant": ("dequantise + SwiGLU + quantise", "反量化 + SwiGLU + 量化"),
    "fusion.ffn": ("whole feed-forward", "整个前馈层融合"),
    "graph": ("graph: {value}", "图模式：{value}"),
    "kv.layout": ("KV cache {value}", "KV 缓存 {value}"),
    "kv.dtype": ("KV cache {value}", "KV 缓存 {value}"),
    "weights": ("weights {value}", "权重 {value}"),
    "weight_format": ("weight layout {value}", "权重布局 {value}"),
    "overlap.streams": ("{value} compute streams", "{value} 条计算流"),
    "overlap.micro_batches": ("{value} micro-batches", "{value} 个微批"),
    "overlap.comm_chunks": ("collectives in {value} pieces", "集合通信分 {value} 片"),
    "overlap.prefetch": ("weights prefetched", "预取权重"),
    "overlap.shared_expert_stream": ("shared expert beside", "共享专家并行流"),
}
