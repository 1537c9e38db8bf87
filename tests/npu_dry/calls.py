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
        "actual_seq_lengths_kv": [130, 20], "block_table": table, "block_size": 128, "num_heads": 4,
        "num_key_value_heads": 2, "scale": 0.1, "input_layout": "BSND", "sparse_mode": 3 if queries > 1 else 0,
        **({"atten_mask": mask, "actual_seq_lengths": [queries, queries - 1]} if queries > 1 else {}), **more,
    }  # fmt: skip


ONE, MANY = attention(1), attention(3)
INT8_CACHE = (rand(2, 1, 4, 128), integers(3, 128, 256), integers(3, 128, 256))
SCALES = {mode: rand(*shape, dtype=dtype) for mode, shape, dtype in (
    (0, (1, 2, 128), BF16), (4, (3, 128), torch.float32), (5, (3, 2, 128), torch.float32))}  # fmt: skip
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
MORE_CALLS = {
    "several queries": ("npu_fused_infer_attention_score", *MANY),
    **{f"int8 mode {mode}": ("npu_fused_infer_attention_score", INT8_CACHE, {
        **ONE[1], "key_antiquant_scale": scale, "value_antiquant_scale": scale, "key_antiquant_mode": mode,
        "value_antiquant_mode": mode}) for mode, scale in SCALES.items()},
    "int4": ("npu_weight_quant_batchmatmul", (rand(3, 64), integers(64, 4, dtype=INT32), rand(32)), {}),
    "int8 all-reduce": ("npu_mm_all_reduce_base", (integers(3, 64), integers(64, 32), "group"), {
        "dequant_scale": rand(32), "pertoken_scale": rand(3, dtype=torch.float32)}),
}  # fmt: skip
