"""One right call of each operator, on small CPU tensors."""

from __future__ import annotations

import torch

BF16, INT8, INT32 = torch.bfloat16, torch.int8, torch.int32


def rand(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def integers(*shape: int, dtype: torch.dtype = INT8, most: int = 7) -> torch.Tensor:
    return torch.randint(-most, most + 1, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def attention(queries: int, **more: object) -> tuple[tuple[torch.Tensor, ...], dict[str, object]]:
    """Two requests of 4 query and 2 key heads; 3 blocks of 128 tokens."""
    mask = torch.ones(2048, 2048, dtype=INT8).triu(1)
    table = torch.tensor([[0, 1], [2, 1]], dtype=INT32)
    return (rand(2, queries, 4, 128), rand(3, 128, 256), rand(3, 128, 256)), {
        "actual_seq_lengths_kv": [130, 20],
        "block_table": table,
        "block_size": 128,
        "num_heads": 4,
        "num_key_value_heads": 2,
        "scale": 0.1,
        "input_layout": "BSND",
        "sparse_mode": 3 if queries > 1 else 0,
        **({"atten_mask": mask, "actual_seq_lengths": [queries, queries - 1]} if queries > 1 else {}),
        **more,
    }


ONE, MANY = attention(1), attention(3)
INT8_CACHE = (rand(2, 1, 4, 128), integers(3, 128, 256), integers(3, 128, 256))
SCALES = {
    mode: rand(*shape, dtype=dtype)
    for mode, shape, dtype in ((0, (1, 2, 128), BF16), (4, (3, 128), torch.float32), (5, (3, 2, 128), torch.float32))
}
CALLS = {
    "npu_rms_norm": ((rand(3, 64), rand(64)), {"epsilon": 1e-6}),
    "npu_add_rms_norm": ((rand(3, 64), rand(3, 64), rand(64)), {"epsilon": 1e-6}),
    "npu_add_rms_norm_dynamic_quant": ((rand(3, 64), rand(3, 64), rand(64)), {"output_mask": [True, False]}),
    "npu_swiglu": ((rand(3, 64),), {"dim": -1}),
    "npu_apply_rotary_pos_emb": (
        (rand(3, 4, 128), rand(3, 2, 128), rand(3, 1, 128), rand(3, 1, 128)), {"layout": "TND", "rotary_mode": "half"}),
    "npu_scatter_pa_kv_cache": (
        (rand(2, 2, 64), rand(2, 2, 64), rand(3, 128, 2, 64), rand(3, 128, 2, 64), torch.tensor([5, 200])),
        {"cache_mode": "Norm"}),
    "_npu_reshape_and_cache": (
        (rand(2, 2, 64), rand(2, 2, 64), rand(3, 128, 2, 64), rand(3, 128, 2, 64), torch.tensor([5, 200], dtype=INT32)),
        {}),
    "npu_scatter_nd_update_": ((rand(384, 128), torch.tensor([[5], [200]]), rand(2, 128)), {}),
    "npu_dynamic_quant": ((rand(3, 64),), {}),
    "npu_quant_matmul": (
        (integers(3, 64), integers(64, 32), rand(32, dtype=torch.float32)),
        {"pertoken_scale": rand(3, dtype=torch.float32), "output_dtype": BF16}),
    "npu_weight_quant_batchmatmul": ((rand(3, 64), integers(64, 32), rand(32)), {}),
    "npu_prefetch": ((rand(3, 64), None, 384), {}),
    "npu_fused_infer_attention_score": ONE,
    "npu_fused_infer_attention_score_v2": (
        (rand(5, 4, 128), rand(3, 128, 256), rand(3, 128, 256)),
        {"actual_seq_qlen": [3, 5], "actual_seq_kvlen": [130, 20], "block_table": ONE[1]["block_table"],
         "block_size": 128, "num_query_heads": 4, "num_key_value_heads": 2, "softmax_scale": 0.1, "sparse_mode": 3,
         "input_layout": "TND", "atten_mask": MANY[1]["atten_mask"]}),
    "npu_mm_all_reduce_base": ((rand(3, 64), rand(64, 32), "group"), {}),
}  # fmt: skip


def counts(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def groups(rows: torch.Tensor, weight: torch.Tensor, **more: object) -> tuple[tuple[object, ...], dict[str, object]]:
    """A grouped product of 5 rows by 3 experts."""
    return ([rows], [weight]), {
        "group_list": counts(2, 0, 3),
        "split_item": 2,
        "group_type": 0,
        "group_list_type": 1,
        **more,
    }


#: Latent rows: two requests of 3 and 2 query tokens, 4 heads, blocks of 128 tokens.
LATENT = (
    (rand(5, 4, 512), rand(3, 128, 512), rand(3, 128, 512)),
    {
        "query_rope": rand(5, 4, 64),
        "key_rope": rand(3, 128, 64),
        "actual_seq_qlen": [3, 5],
        "actual_seq_kvlen": [130, 20],
        "block_table": ONE[1]["block_table"],
        "block_size": 128,
        "num_query_heads": 4,
        "num_key_value_heads": 1,
        "softmax_scale": 0.1,
        "sparse_mode": 3,
        "input_layout": "TND",
        "atten_mask": MANY[1]["atten_mask"],
    },
)
UNPACKED = (
    (rand(5, 4, 192), rand(12, 4, 192), rand(12, 4, 128)),
    {
        "actual_seq_qlen": [3, 5],
        "actual_seq_kvlen": [5, 12],
        "num_query_heads": 4,
        "num_key_value_heads": 4,
        "softmax_scale": 0.1,
        "sparse_mode": 3,
        "input_layout": "TND",
        "atten_mask": MANY[1]["atten_mask"],
    },
)
NZ_SCALE = rand(1, 128).abs()
NZ = (
    (rand(2, 1, 10, 128), integers(3, 1, 4, 128, 32), integers(3, 1, 4, 128, 32)),
    {
        "actual_seq_qlen": [1, 1],
        "actual_seq_kvlen": [130, 20],
        "block_table": ONE[1]["block_table"],
        "block_size": 128,
        "num_query_heads": 10,
        "num_key_value_heads": 1,
        "softmax_scale": 0.1,
        "sparse_mode": 0,
        "input_layout": "BSND",
        "dequant_scale_key": NZ_SCALE,
        "dequant_scale_value": NZ_SCALE,
        "key_quant_mode": 0,
        "value_quant_mode": 0,
        "inner_precise": 1,
    },
)
FP16, FP32 = torch.float16, torch.float32
SLOTS = torch.tensor([5, 200])
SENT_IDS = torch.tensor([[0, 2], [2, 1], [0, 3]], dtype=INT32)
CALLS |= {
    "npu_ffn": (
        (rand(3, 64, dtype=FP16), rand(64, 96, dtype=FP16), rand(48, 64, dtype=FP16), "swiglu"), {"inner_precise": 1}),
    "npu_dequant_swiglu_quant": (
        (integers(5, 128, dtype=INT32),),
        {"weight_scale": rand(1, 128, dtype=FP32), "activation_scale": rand(5, dtype=FP32), "activate_left": True,
         "quant_mode": 1}),
    "npu_qkv_rms_norm_rope_cache": (
        (rand(2, 512), rand(128), rand(128), rand(2, 128), rand(2, 128), SLOTS, rand(2, 256),
         integers(3, 4, 128, 32), integers(3, 4, 128, 32), [2, 1, 4, 128], [2, 1, 1]),
        {"k_scale": rand(1, 128, dtype=FP32), "v_scale": rand(1, 128, dtype=FP32), "epsilon": 1e-6,
         "cache_mode": "PA_NZ"}),
    "npu_moe_gating_top_k": (
        (rand(3, 12), 2), {"bias": rand(12), "k_group": 2, "group_count": 4, "group_select_mode": 1, "norm_type": 1}),
    "npu_moe_gating_top_k_softmax": ((rand(3, 12), None, 2), {}),
    "npu_moe_init_routing_v2": (
        (rand(3, 64), torch.tensor([[0, 2], [2, 1], [0, 1]], dtype=INT32)),
        {"active_num": 6, "expert_num": 3, "expert_tokens_num_type": 1, "expert_tokens_num_flag": True,
         "active_expert_range": [0, 3], "quant_mode": -1, "row_idx_type": 0}),
    "npu_moe_finalize_routing": (
        (rand(6, 64), None, None, None, rand(3, 2), torch.tensor([0, 4, 5, 2, 1, 3], dtype=INT32), None),
        {"drop_pad_mode": 2}),
    "npu_grouped_matmul": groups(rand(5, 64), rand(3, 64, 32)),
    "npu_moe_distribute_dispatch_v2": (
        (rand(3, 1024), SENT_IDS, "group", 2, 1, 4),
        {"x_active_mask": torch.tensor([True, True, False]), "quant_mode": 0, "expert_token_nums_type": 1}),
    "npu_moe_distribute_combine_v2": (
        (rand(12, 1024), SENT_IDS, torch.zeros(12 * 128, dtype=INT32), torch.tensor([0, 2, 2, 4], dtype=INT32),
         rand(3, 2, dtype=FP32), "group", 2, 1, 4), {"x_active_mask": torch.tensor([True, True, False])}),
    "npu_kv_rmsnorm_rope_cache_v2": (
        (rand(2, 1, 1, 576), rand(512), rand(2, 1, 1, 64), rand(2, 1, 1, 64), SLOTS, rand(3, 128, 1, 64),
         rand(3, 128, 1, 512)), {"epsilon": 1e-6, "cache_mode": "PA_BNSD", "is_output_kv": True}),
    "npu_interleave_rope": ((rand(3, 4, 1, 64), rand(3, 1, 1, 64), rand(3, 1, 1, 64)), {}),
    "npu_transpose_batchmatmul": (
        (rand(3, 4, 512), rand(4, 512, 128)), {"perm_x1": [1, 0, 2], "perm_x2": [0, 1, 2], "perm_y": [1, 0, 2]}),
    "npu_gather_pa_kv_cache": (
        (rand(3, 128, 1, 512), rand(3, 128, 1, 64), ONE[1]["block_table"], counts(130, 20).to(INT32),
         rand(150, 1, 512), rand(150, 1, 64)), {}),
}  # fmt: skip
MORE_CALLS = {
    "latent rows": ("npu_fused_infer_attention_score_v2", *LATENT),
    "unpacked heads": ("npu_fused_infer_attention_score_v2", *UNPACKED),
    "blocks in NZ": ("npu_fused_infer_attention_score_v2", *NZ),
    "int4 beside int8": ("npu_quant_matmul", (
        integers(3, 512), integers(512, 4, dtype=INT32), integers(2, 32, dtype=torch.int64)), {
        "offset": rand(32, dtype=FP32), "pertoken_scale": rand(3, 1, dtype=FP32), "output_dtype": BF16,
        "group_sizes": [0, 0, 256]}),
    "int8 experts": ("npu_grouped_matmul", *groups(
        integers(5, 64), integers(3, 64, 32), scale=[rand(3, 32)], per_token_scale=[rand(5, dtype=FP32)],
        output_dtype=BF16)),
    "int8 experts beside bf16": ("npu_grouped_matmul", *groups(
        rand(5, 64), integers(3, 64, 32), antiquant_scale=[rand(3, 32)], antiquant_offset=[rand(3, 32)])),
    "int4 experts beside bf16": ("npu_grouped_matmul", *groups(
        rand(5, 64), integers(3, 64, 4, dtype=INT32), antiquant_scale=[rand(3, 32)], antiquant_offset=[rand(3, 32)])),
    "groups of a quantised gate": ("npu_dequant_swiglu_quant", (integers(5, 128, dtype=INT32),), {
        "weight_scale": rand(3, 128, dtype=FP32), "activation_scale": rand(5, dtype=FP32), "activate_left": True,
        "quant_mode": 1, "group_index": counts(2, 0, 3)}),
    "tokens sent in INT8": ("npu_moe_distribute_dispatch_v2", (rand(3, 1024), SENT_IDS, "group", 2, 1, 4), {
        "quant_mode": 2, "expert_token_nums_type": 1}),
    "several queries": ("npu_fused_infer_attention_score", *MANY),
    **{f"int8 mode {mode}": ("npu_fused_infer_attention_score", INT8_CACHE, {
        **ONE[1], "key_antiquant_scale": scale, "value_antiquant_scale": scale, "key_antiquant_mode": mode,
        "value_antiquant_mode": mode}) for mode, scale in SCALES.items()},
    "int4": ("npu_weight_quant_batchmatmul", (rand(3, 64), integers(64, 4, dtype=INT32), rand(32)), {}),
    "int8 all-reduce": ("npu_mm_all_reduce_base", (integers(3, 64), integers(64, 32), "group"), {
        "dequant_scale": rand(32), "pertoken_scale": rand(3, dtype=torch.float32)}),
}  # fmt: skip
