"""The rules of the experts' calls: choice, permutation, grouped products, the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from device.operators.npu.needs import FLOATS, HALF, MAX_INNER, need, same_type, typed

#: Experts that the choice takes at most, and the most groups of a grouped product.
MAX_EXPERTS, MAX_GROUPS = 2048, 1024
#: Experts of one token that the softmax choice takes at most.
MAX_CHOSEN = 1024
#: Experts of a group are padded to this many.
GROUP_UNIT = 32


def moe_gating_top_k(
    x: Any,
    k: int,
    *,
    bias: Any = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    norm_type: int = 0,
) -> None:
    name = "npu_moe_gating_top_k"
    typed(f"{name}: x", x, *FLOATS)
    need(len(x.shape) == 2, f"{name}: x has {len(x.shape)} dimensions, not 2")
    experts = x.shape[1]
    need(experts <= MAX_EXPERTS, f"{name}: {experts} experts, at most {MAX_EXPERTS}")
    need(norm_type == 1, f"{name}: norm_type {norm_type}; whether softmax is divided by its sum is not documented")
    need(group_count > 0 and experts % group_count == 0, f"{name}: {experts} experts in {group_count} groups")
    held = experts // group_count
    need(held > 2, f"{name}: groups of {held} experts; more than 2 are needed")
    padded = -(-held // GROUP_UNIT) * GROUP_UNIT * group_count
    need(padded <= MAX_EXPERTS, f"{name}: {group_count} groups of {held} experts, padded {padded}: over {MAX_EXPERTS}")
    need(1 <= k_group <= group_count, f"{name}: {k_group} groups kept of {group_count}")
    need(1 <= k <= held * k_group, f"{name}: {k} experts of a token, of {held * k_group} in its groups")
    need(
        group_select_mode == 1, f"{name}: group_select_mode {group_select_mode}; sigmoid groups go by their best two: 1"
    )
    if bias is not None:
        same_type(f"{name}: x and bias", x, bias)
        need(tuple(bias.shape) == (experts,), f"{name}: a bias of {list(bias.shape)} for {experts} experts")


def moe_gating_top_k_softmax(x: Any, finished: Any = None, k: int = 1) -> None:
    name = "npu_moe_gating_top_k_softmax"
    typed(f"{name}: x", x, *FLOATS)
    need(len(x.shape) in (2, 3), f"{name}: x has {len(x.shape)} dimensions, not 2 or 3")
    need(0 < k <= min(x.shape[-1], MAX_CHOSEN), f"{name}: {k} of {x.shape[-1]} experts, at most {MAX_CHOSEN}")


def moe_init_routing_v2(
    x: Any,
    expert_idx: Any,
    *,
    active_num: int = -1,
    expert_num: int = -1,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = -1,
    active_expert_range: Any = (),
    row_idx_type: int = 0,
) -> None:
    name = "npu_moe_init_routing_v2"
    typed(f"{name}: x", x, *FLOATS, torch.int8)
    typed(f"{name}: expert_idx", expert_idx, torch.int32)
    need(len(x.shape) == len(expert_idx.shape) == 2, f"{name}: both inputs have 2 dimensions")
    need(x.shape[0] == expert_idx.shape[0], f"{name}: {expert_idx.shape[0]} choices for {x.shape[0]} rows")
    need(0 < expert_num <= 10240, f"{name}: expert_num {expert_num}; it must be given, at most 10240")
    need(len(active_expert_range) == 2, f"{name}: active_expert_range must name the first expert and the end")
    first, end = active_expert_range
    need(0 <= first < end <= expert_num, f"{name}: experts {first} to {end} of {expert_num}")
    need(expert_tokens_num_flag, f"{name}: expert_tokens_num_flag is off; the products need the counts")
    need(expert_tokens_num_type == 1, f"{name}: expert_tokens_num_type {expert_tokens_num_type}; counts are 1")
    need(row_idx_type == 0, f"{name}: row_idx_type {row_idx_type}; the way back reads places by choice: 0")
    need(
        active_num in (-1, 0, expert_idx.shape[0] * expert_idx.shape[1]), f"{name}: active_num {active_num} drops rows"
    )
    need(quant_mode == -1, f"{name}: quant_mode {quant_mode}; these rows are quantised by their own call: -1")


def moe_finalize_routing(
    rows: Any, skip1: Any, skip2: Any, bias: Any, scales: Any, places: Any, experts: Any, *, drop_pad_mode: int = 0
) -> None:
    name = "npu_moe_finalize_routing"
    typed(f"{name}: rows", rows, *FLOATS)
    need(scales is not None and len(scales.shape) == 2, f"{name}: the weights must be given, [rows, k]")
    same_type(f"{name}: rows and weights", rows, scales)
    typed(f"{name}: places", places, torch.int32)
    chosen = scales.shape[0] * scales.shape[1]
    need(tuple(places.shape) == (chosen,), f"{name}: {list(places.shape)} places for {chosen} choices")
    need(rows.shape[0] == chosen, f"{name}: {rows.shape[0]} rows for {chosen} choices")
    need(drop_pad_mode == 2, f"{name}: drop_pad_mode {drop_pad_mode}; places lie token by token here: 2")


def grouped_matmul(
    x: Any,
    weight: Any,
    *,
    scale: Any = None,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    per_token_scale: Any = None,
    group_list: Any = None,
    split_item: int = 0,
    group_type: Any = None,
    group_list_type: int = 0,
    output_dtype: Any = None,
) -> None:
    name = "npu_grouped_matmul"
    need(len(x) == len(weight) == 1, f"{name}: the adapter hands over one tensor of rows and one of weights")
    (rows,), (w,) = x, weight
    need(len(rows.shape) == 2 and len(w.shape) == 3, f"{name}: rows of 2 dimensions and weights of 3")
    need(split_item in (2, 3), f"{name}: split_item {split_item}; one tensor comes out of 2 and 3")
    need(group_type == 0, f"{name}: group_type {group_type}; the rows are grouped: 0")
    need(group_list is not None, f"{name}: the rows of each expert are missing")
    typed(f"{name}: group_list", group_list, torch.int64)
    need(group_list_type == 1, f"{name}: group_list_type {group_list_type}; these are counts: 1")
    need(tuple(group_list.shape) == (w.shape[0],), f"{name}: {list(group_list.shape)} counts for {w.shape[0]} experts")
    need(1 < w.shape[0] <= MAX_GROUPS, f"{name}: {w.shape[0]} experts; 2 to {MAX_GROUPS} are taken")
    need(w.shape[1] == rows.shape[1], f"{name}: rows of {rows.shape[1]} times weights of {w.shape[1]} inputs")
    outputs = w.shape[2] * (8 if w.dtype == torch.int32 else 1)
    for what, size in (("k", rows.shape[1]), ("n", outputs)):
        need(size <= MAX_INNER, f"{name}: {what} is {size}, at most {MAX_INNER}")
    scales = (w.shape[0], outputs)
    if rows.dtype == torch.int8:
        _quantised(
            name=name, rows=rows, w=w, scale=scale, per_token=per_token_scale, output_dtype=output_dtype, scales=scales
        )
        return
    typed(f"{name}: rows", rows, *FLOATS)
    if w.dtype in (torch.int8, torch.int32):
        typed(f"{name}: rows beside integers", rows, *HALF)
        for what, t in (("antiquant_scale", antiquant_scale), ("antiquant_offset", antiquant_offset)):
            need(t is not None, f"{name}: integer weights need {what}")
            same_type(f"{name}: rows and {what}", rows, t[0])
            need(tuple(t[0].shape) == scales, f"{name}: {what} of {list(t[0].shape)}, not {list(scales)}")
    else:
        same_type(f"{name}: rows and weights", rows, w)


def _quantised(
    name: str, rows: Any, w: Any, scale: Any, per_token: Any, output_dtype: Any, scales: tuple[int, int]
) -> None:
    typed(f"{name}: weights beside INT8 rows", w, torch.int8)
    if output_dtype == torch.int32:
        need(scale is None and per_token is None, f"{name}: bare sums come without scales")
        return
    need(output_dtype in HALF, f"{name}: output_dtype must be given: float16, bfloat16 or int32")
    need(scale is not None and per_token is not None, f"{name}: INT8 rows need scale and per_token_scale")
    typed(f"{name}: scale", scale[0], torch.bfloat16 if output_dtype == torch.bfloat16 else torch.float32)
    need(tuple(scale[0].shape) == scales, f"{name}: scale of {list(scale[0].shape)}, not {list(scales)}")
    typed(f"{name}: per_token_scale", per_token[0], torch.float32)
    need(tuple(per_token[0].shape) == (rows.shape[0],), f"{name}: {list(per_token[0].shape)} token scales")


RULES: dict[str, Callable[..., None]] = {
    "npu_moe_gating_top_k": moe_gating_top_k,
    "npu_moe_gating_top_k_softmax": moe_gating_top_k_softmax,
    "npu_moe_init_routing_v2": moe_init_routing_v2,
    "npu_moe_finalize_routing": moe_finalize_routing,
    "npu_grouped_matmul": grouped_matmul,
}
