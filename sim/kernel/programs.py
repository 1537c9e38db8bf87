"""Which kernel program of the hardware profile runs each kind of the catalogue.

Many kinds share a program because they differ in nothing that takes time: an Add and a Mul are the same pipeline.
"""

from __future__ import annotations

#: Kinds that are not a program's own name.
PROGRAM_OF: dict[str, str] = {
    **dict.fromkeys(
        ("add", "adds", "sub", "mul", "muls", "div", "neg", "pow", "rsqrt", "silu", "sigmoid", "cos", "sin", "cast",
         "exp", "log", "fused_elementwise", "prepare_mask"),
        "elementwise",
    ),
    **dict.fromkeys(("slice", "split", "concat"), "slice"),
    **dict.fromkeys(("embedding", "index_select", "block_gather"), "gather"),
    **dict.fromkeys(("moe_init_routing", "moe_re_routing"), "gather"),
    **dict.fromkeys(("reduce_mean", "moe_finalize_routing", "index_add"), "row_wise"),
    "cache_read": "kv_cache_read",
    "quant_grouped_matmul": "grouped_matmul",
}  # fmt: skip
