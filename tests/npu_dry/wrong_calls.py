"""Wrong calls of the experts', the caches' and latent attention's operators, each with what its rule says of it."""

from __future__ import annotations

from typing import Any

import torch

from tests.npu_dry.calls import BF16, CALLS, FP16, FP32, INT32, MANY, MORE_CALLS, counts, groups, integers, rand

Call = tuple[tuple[Any, ...], dict[str, Any]]


def changed(call: Call, **changes: Any) -> Call:
    """A right call with arguments changed: by place (a0, a1, ...) or by name; None drops one."""
    args, kwargs = list(call[0]), dict(call[1])
    for key, value in changes.items():
        if key[0] == "a" and key[1:].isdigit():
            args[int(key[1:])] = value
        elif value is None:
            kwargs.pop(key)
        else:
            kwargs[key] = value
    return tuple(args), kwargs


def wrong(name: str, says: str, **changes: Any) -> tuple[str, Call, str]:
    return name, changed(CALLS[name], **changes), says


def other(case: str, says: str, **changes: Any) -> tuple[str, Call, str]:
    """A changed call of MORE_CALLS."""
    name, args, kwargs = MORE_CALLS[case]
    return name, changed((args, kwargs), **changes), says


QKV, KV, GATE = "npu_qkv_rms_norm_rope_cache", "npu_kv_rmsnorm_rope_cache_v2", "npu_moe_gating_top_k"
INIT, BACK, GROUPED = "npu_moe_init_routing_v2", "npu_moe_finalize_routing", "npu_grouped_matmul"
MANY_IDS = torch.zeros(513, 2, dtype=INT32)
SEND, FETCH = "npu_moe_distribute_dispatch_v2", "npu_moe_distribute_combine_v2"
TURN, FFN, SWIGLU = "npu_transpose_batchmatmul", "npu_ffn", "npu_dequant_swiglu_quant"
V2, MATMUL = "npu_fused_infer_attention_score_v2", "npu_quant_matmul"

WRONG: dict[str, tuple[str, Call, str]] = {
    # npu_ffn
    "a gate in bf16": (FFN, ((rand(3, 64), rand(64, 96), rand(48, 64), "swiglu"), {"inner_precise": 1}), "is bfloat16"),
    "another gate": wrong(FFN, "the adapter asks for swiglu", a3="geglu"),
    "high precision with a gate": wrong(FFN, "only the high-performance form", inner_precise=0),
    "a gate of the wrong width": wrong(FFN, "it takes twice as many", a2=rand(32, 64, dtype=FP16)),
    "rows of an ffn": wrong(FFN, "rows of 32 times a weight of 64", a0=rand(3, 32, dtype=FP16)),
    "an ffn that changes its width": wrong(FFN, "they must be alike", a2=rand(48, 32, dtype=FP16)),
    "experts with a gate": wrong(FFN, "no groups of experts", a1=rand(2, 64, 96, dtype=FP16)),
    # npu_dequant_swiglu_quant
    "the gate right": wrong(SWIGLU, "activate_left is off", activate_left=False),
    "one scale for all": wrong(SWIGLU, "quant_mode 0", quant_mode=0),
    "no scale of the weights": wrong(SWIGLU, "need both their scales", weight_scale=None),
    "a flat scale of the weights": wrong(SWIGLU, "not \\[1, 128\\]", weight_scale=rand(128, dtype=FP32)),
    "16-bit scales of the weights": wrong(SWIGLU, "weight_scale is bfloat16", weight_scale=rand(1, 128)),
    "token scales in a column": wrong(SWIGLU, "token scales for 5 rows", activation_scale=rand(5, 1, dtype=FP32)),
    "sums in float": wrong(SWIGLU, "x is float32", a0=rand(5, 128, dtype=FP32)),
    "odd sums": wrong(SWIGLU, "127 columns", a0=integers(5, 127, dtype=INT32)),
    "groups of 72 columns": other(
        "groups of a quantised gate", "multiples of 64", a0=integers(5, 144, dtype=INT32),
        weight_scale=rand(3, 144, dtype=FP32)),
    "groups in int32": other("groups of a quantised gate", "group_index is int32", group_index=counts(2, 0, 3).int()),
    # npu_qkv_rms_norm_rope_cache
    "16-bit blocks": wrong(QKV, "k_cache is bfloat16", a7=rand(3, 8, 128, 16), a8=rand(3, 8, 128, 16)),
    "plain blocks": wrong(QKV, "blocks are \\[4, 32\\]", a7=integers(3, 128, 1, 128)),
    "another cache mode": wrong(QKV, "it writes PA_NZ", cache_mode="PA"),
    "no scale of the keys": wrong(QKV, "needs its scale", k_scale=None),
    "16-bit scales of the keys": wrong(QKV, "scale of k_cache is bfloat16", k_scale=rand(1, 128)),
    "flat scales of the keys": wrong(QKV, "the scale of k_cache is \\[128\\]", k_scale=rand(128, dtype=FP32)),
    "heads of 64": wrong(QKV, "head dimension 64", a9=[2, 1, 8, 64]),
    "heads that do not add up": wrong(QKV, "qkv_size has 4 heads, head_nums 5", a10=[3, 1, 1]),
    "rows that do not add up": wrong(QKV, "3 x 1 of 2 rows", a9=[3, 1, 4, 128]),
    "gamma of a query": wrong(QKV, "q_gamma has \\[64\\]", a1=rand(64)),
    "angles of fewer rows": wrong(QKV, "cos is \\[1, 128\\]", a3=rand(1, 128)),
    "slots in int32": wrong(QKV, "index is int32", a5=counts(5, 200).int()),
    "too few slots": wrong(QKV, "slots for 2 tokens", a5=counts(5)),
    "a short q_out": wrong(QKV, "q_out is \\[2, 128\\]", a6=rand(2, 128)),
    # npu_kv_rmsnorm_rope_cache_v2
    "a latent row of 320": wrong(KV, "it takes 576", a0=rand(2, 1, 1, 320), a1=rand(256)),
    "several latent heads": wrong(KV, "not \\[batch, 1, tokens, row\\]", a0=rand(2, 4, 1, 576)),
    "gamma of a latent row": wrong(KV, "the row 512", a1=rand(576)),
    "angles of a head": wrong(KV, "cos is \\[2, 1, 1, 32\\]", a2=rand(2, 1, 1, 32)),
    "caches changed places": wrong(KV, "a token of k_cache", a5=rand(3, 128, 1, 512), a6=rand(3, 128, 1, 64)),
    "other blocks": wrong(KV, "other blocks", a6=rand(4, 128, 1, 512)),
    "latent blocks in NZ": wrong(KV, "cache_mode PA_NZ; these are plain", cache_mode="PA_NZ"),
    "latent slots by request": wrong(KV, "slots for 2 tokens", a4=counts(5, 200).view(2, 1)),
    "latent slots in int32": wrong(KV, "index is int32", a4=counts(5, 200).int()),
    "caches of another type": wrong(KV, "one type", a5=rand(3, 128, 1, 64, dtype=FP16)),
    # npu_interleave_rope
    "rotated heads of 128": wrong("npu_interleave_rope", "it takes 64", a0=rand(3, 4, 1, 128)),
    "rotated rows": wrong("npu_interleave_rope", "cos has 2 rows, x 3", a1=rand(2, 1, 1, 64)),
    "heads of the angles": wrong("npu_interleave_rope", "cos has 4 heads", a1=rand(3, 4, 1, 64)),
    "angles in float32": wrong("npu_interleave_rope", "one type", a1=rand(3, 1, 1, 64, dtype=FP32)),
    "three dimensions": wrong("npu_interleave_rope", "x has 3 dimensions", a0=rand(3, 4, 64)),
    # npu_transpose_batchmatmul
    "128 heads to turn": wrong(TURN, "128 x 512 to turn", a0=rand(3, 128, 512), a1=rand(128, 512, 128)),
    "values of 96": wrong(TURN, "n is 96; multiples of 128", a1=rand(4, 512, 96)),
    "rank 64": wrong(TURN, "k is 64", a0=rand(3, 4, 64), a1=rand(4, 64, 128)),
    "not turned": wrong(TURN, "turns its first operand", a0=rand(4, 3, 512), perm_x1=[0, 1, 2]),
    "other batches": wrong(TURN, "4 batches times 2", a1=rand(2, 512, 128)),
    "other inner sizes": wrong(TURN, "times a weight of 256", a1=rand(4, 256, 128)),
    "types of a batch": wrong(TURN, "one type", a1=rand(4, 512, 128, dtype=FP16)),
    # npu_moe_gating_top_k and its softmax
    "softmax with groups": wrong(GATE, "norm_type 0", norm_type=0),
    "groups of two": wrong(GATE, "groups of 2 experts", a0=rand(3, 8), bias=rand(8)),
    "uneven groups": wrong(GATE, "12 experts in 5 groups", group_count=5),
    "too many kept groups": wrong(GATE, "5 groups kept of 4", k_group=5),
    "more than its groups hold": wrong(GATE, "7 experts of a token, of 6", a1=7),
    "groups by their best one": wrong(GATE, "best two: 1", group_select_mode=0),
    "a bias in float32": wrong(GATE, "x and bias: all of one type", bias=rand(12, dtype=FP32)),
    "a short bias": wrong(GATE, "a bias of \\[8\\] for 12", bias=rand(8)),
    "2049 experts": wrong(GATE, "at most 2048", a0=rand(3, 2049), bias=rand(2049), group_count=1, k_group=1),
    "padded groups": wrong(GATE, "padded 4096", a0=rand(3, 512), bias=rand(512), group_count=128, k_group=64),
    "more than all experts": wrong("npu_moe_gating_top_k_softmax", "13 of 12", a2=13),
    "integer scores": wrong("npu_moe_gating_top_k_softmax", "x is int8", a0=integers(3, 12)),
    # npu_moe_init_routing_v2 and npu_moe_finalize_routing
    "choices in int64": wrong(INIT, "expert_idx is int64", a1=torch.tensor([[0, 2], [2, 1], [0, 1]])),
    "counts not asked for": wrong(INIT, "the products need the counts", expert_tokens_num_flag=False),
    "sums instead of counts": wrong(INIT, "counts are 1", expert_tokens_num_type=0),
    "places by row": wrong(INIT, "reads places by choice", row_idx_type=1),
    "rows that are dropped": wrong(INIT, "drops rows", active_num=4),
    "experts that are none": wrong(INIT, "experts 2 to 4 of 3", active_expert_range=[2, 4]),
    "experts from nowhere": wrong(INIT, "must name the first expert", active_expert_range=None),
    # npu_moe_distribute_dispatch_v2 and npu_moe_distribute_combine_v2
    "tokens of narrow rows": wrong(SEND, "rows of 64 elements", a0=rand(3, 64)),
    "more tokens than are sent": wrong(SEND, "513 tokens of a rank", a0=rand(513, 1024), a1=MANY_IDS),
    "tokens to nobody": wrong(SEND, "4 experts on 3 ranks", a3=3),
    "a group without a name": wrong(SEND, "the name of the HCCL group", a2=""),
    "INT8 tokens": wrong(SEND, "x is int8", a0=integers(3, 1024)),
    "quantised by a constant": wrong(SEND, "quant_mode 1", quant_mode=1),
    "sums of what is sent": wrong(SEND, "counts are 1", expert_token_nums_type=0),
    "a mask of numbers": wrong(SEND, "x_active_mask is int32", x_active_mask=torch.ones(3, dtype=INT32)),
    "a mask of other tokens": wrong(SEND, "a mask of", x_active_mask=torch.ones(2, dtype=torch.bool)),
    "fewer rows than could have come": wrong(FETCH, "11 rows, room for 12", a0=rand(11, 1024)),
    "weights in bf16": wrong(FETCH, "weights is bfloat16", a4=rand(3, 2)),
    "weights of other choices": wrong(FETCH, "weights for", a4=rand(3, 1, dtype=FP32)),
    "origins of other rows": wrong(FETCH, "origins of 128 numbers", a2=torch.zeros(128, dtype=INT32)),
    "counts of other ranks": wrong(FETCH, "3 counts for 4", a3=torch.zeros(3, dtype=INT32)),
    "experts left out": wrong(INIT, "it must be given", expert_num=None),
    "quantised on the way": wrong(INIT, "quant_mode 1", quant_mode=1),
    "weights in float32": wrong(BACK, "rows and weights: all of one type", a4=rand(3, 2, dtype=FP32)),
    "places choice by choice": wrong(BACK, "token by token here: 2", drop_pad_mode=0),
    "places in int64": wrong(BACK, "places is int64", a5=torch.tensor([0, 4, 5, 2, 1, 3])),
    "too few places": wrong(BACK, "places for 6 choices", a5=torch.tensor([0, 1], dtype=INT32)),
    "too few rows": wrong(BACK, "4 rows for 6 choices", a0=rand(4, 64)),
    # npu_grouped_matmul
    "several tensors out": wrong(GROUPED, "split_item 0", split_item=0),
    "no counts": wrong(GROUPED, "rows of each expert are missing", group_list=None),
    "counts in int32": wrong(GROUPED, "group_list is int32", group_list=counts(2, 0, 3).int()),
    "sums": wrong(GROUPED, "these are counts: 1", group_list_type=0),
    "counts of other experts": wrong(GROUPED, "counts for 3 experts", group_list=counts(2, 3)),
    "one expert": (GROUPED, groups(rand(5, 64), rand(1, 64, 32), group_list=counts(5)), "1 experts; 2 to 1024"),
    "inputs of an expert": (GROUPED, groups(rand(5, 64), rand(3, 32, 32)), "rows of 64 times weights of 32"),
    "types of an expert": (GROUPED, groups(rand(5, 64), rand(3, 64, 32, dtype=FP16)), "one type"),
    "no offset": (GROUPED, groups(rand(5, 64), integers(3, 64, 32), antiquant_scale=[rand(3, 32)]), "antiquant_offset"),
    "scales of experts in float32": (
        GROUPED,
        groups(rand(5, 64), integers(3, 64, 32), antiquant_scale=[rand(3, 32, dtype=FP32)],
               antiquant_offset=[rand(3, 32)]), "one type"),
    "no scales of the rows": (
        GROUPED, groups(integers(5, 64), integers(3, 64, 32), scale=[rand(3, 32)], output_dtype=BF16),
        "need scale and per_token_scale"),
    "a float32 scale for bf16": other("int8 experts", "scale is float32", scale=[rand(3, 32, dtype=FP32)]),
    "INT4 beside INT8 rows": (
        GROUPED,
        groups(integers(5, 64), integers(3, 64, 4, dtype=INT32), scale=[rand(3, 32)],
               per_token_scale=[rand(5, dtype=FP32)], output_dtype=BF16), "weights beside INT8 rows is int32"),
    # npu_quant_matmul with INT4 weights
    "INT4 without its offset": other("int4 beside int8", "without it the sum is off", offset=None),
    "INT4 with another group": other("int4 beside int8", "want \\[0, 0, 256\\]", group_sizes=[0, 0, 128]),
    "INT4 with INT8 out": other("int4 beside int8", "float16 or bfloat16", output_dtype=None),
    "INT4 without token scales": other("int4 beside int8", "need pertoken_scale", pertoken_scale=None),
    "INT4 with a bias": other("int4 beside int8", "no bias beside INT4", bias=integers(32, dtype=INT32)),
    "offset of INT8": wrong(MATMUL, "belong to INT4", offset=rand(32, dtype=FP32)),
    # npu_fused_infer_attention_score_v2: bands and sinks
    "a band without its width": wrong(V2, "a band of \\(2147483647", sparse_mode=4),
    "a band that looks ahead": wrong(V2, "a band of \\(3, 2\\)", sparse_mode=4, pre_tokens=3, next_tokens=2),
    "a width without a band": wrong(V2, "in sparse_mode 4 alone", pre_tokens=3, next_tokens=0),
    "sinks of other heads": wrong(V2, "sinks of \\[3\\] for 4 heads", learnable_sink=rand(3)),
    "sinks of another type": wrong(V2, "float32", learnable_sink=rand(4, dtype=FP32)),
    "sinks over latent rows": other("latent rows", "sinks over blocks alone", learnable_sink=rand(4)),
    # npu_fused_infer_attention_score_v2 over latent rows, unpacked heads and NZ blocks
    "latent rows without blocks": other("latent rows", "through a block table only", block_table=None),
    "latent blocks of 64": other(
        "latent rows", "take 16 and 128", block_size=64, a1=rand(3, 64, 512), a2=rand(3, 64, 512),
        key_rope=rand(3, 64, 64)),
    "a part alone": other("latent rows", "go together", key_rope=None),
    "several latent keys": other("latent rows", "serves all queries: 1", num_key_value_heads=4),
    "6 heads over latent rows": other(
        "latent rows", "6 heads over a latent row", num_query_heads=6, a0=rand(5, 6, 512), query_rope=rand(5, 6, 64)),
    "latent rows of 256": other(
        "latent rows", "it takes 512", a0=rand(5, 4, 256), a1=rand(3, 128, 256), a2=rand(3, 128, 256)),
    "rotated parts of 32": other("latent rows", "query_rope is \\[5, 4, 32\\]", query_rope=rand(5, 4, 32)),
    "17 latent queries": other(
        "latent rows", "a request of 17 query tokens", a0=rand(19, 4, 512), query_rope=rand(19, 4, 64),
        actual_seq_qlen=[17, 19]),
    "unpacked in fp16": other(
        "unpacked heads", "without a block table is float16",
        **{f"a{i}": x.to(FP16) for i, x in enumerate(MORE_CALLS["unpacked heads"][1])}),
    "unpacked heads of 96": other("unpacked heads", "of \\(96, 96, 128\\)", a0=rand(5, 4, 96), a1=rand(12, 4, 96)),
    "unpacked lengths by request": other("unpacked heads", "the keys end at 7 of 12", actual_seq_kvlen=[5, 7]),
    "more queries than keys": other("unpacked heads", "more query tokens than keys", actual_seq_kvlen=[2, 12]),
    "unpacked keys of other heads": other("unpacked heads", "values \\[12, 2, 128\\]", a2=rand(12, 2, 128)),
    "4 and 1 heads over NZ": other("blocks in NZ", "4 query and 1 key heads", num_query_heads=4, a0=rand(2, 1, 4, 128)),
    "fp16 over NZ": other("blocks in NZ", "over INT8 blocks is float16", a0=rand(2, 1, 10, 128, dtype=FP16)),
    "plain INT8 blocks": other("blocks in NZ", "NZ blocks have 5", a1=integers(3, 128, 128), a2=integers(3, 128, 128)),
    "NZ blocks of 256": other(
        "blocks in NZ", "NZ takes 128 and 512", block_size=256, a1=integers(3, 1, 4, 256, 32),
        a2=integers(3, 1, 4, 256, 32)),
    "NZ scales of a call": other("blocks in NZ", "scales of \\[1, 1, 128\\]", dequant_scale_key=rand(1, 1, 128)),
    "NZ scales in float32": other("blocks in NZ", "scales is float32", dequant_scale_key=rand(1, 128, dtype=FP32)),
    "high precision over NZ": other("blocks in NZ", "high-performance mode, 1", inner_precise=0),
    "17 queries over NZ": other(
        "blocks in NZ", "17 query tokens over NZ", a0=rand(2, 17, 10, 128), actual_seq_qlen=[17, 2], sparse_mode=3,
        atten_mask=MANY[1]["atten_mask"]),
}  # fmt: skip
