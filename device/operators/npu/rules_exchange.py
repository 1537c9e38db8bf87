"""The rules of the calls that send tokens to the ranks of their experts and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from device.operators.npu.needs import HALF, need, typed

#: Of npu_moe_distribute_dispatch_v2 and _combine_v2, the narrower of what their documents say for Atlas A3: tokens of a
#: rank, experts of a token, experts and ranks at most, elements of a row. Atlas A2 takes 16 ranks and more only.
MAX_TOKENS, MAX_TOKEN_EXPERTS, MAX_SENT_EXPERTS, MAX_RANKS = 512, 16, 512, 384
MIN_ROW, MAX_ROW = 1024, 7168
#: Numbers that the call keeps of each row for its way back.
ORIGIN = 128


def _sent(name: str, ids: Any, hidden: int, group: str, ranks: int, rank: int, experts: int, mask: Any) -> None:
    """What both calls ask of who sends to whom. ids [tokens, k]. mask: of the tokens, None where all are sent."""
    typed(f"{name}: expert_ids", ids, torch.int32)
    need(len(ids.shape) == 2, f"{name}: expert_ids has {len(ids.shape)} dimensions, not 2")
    tokens, k = ids.shape
    need(0 < tokens <= MAX_TOKENS, f"{name}: {tokens} tokens of a rank, at most {MAX_TOKENS}")
    need(0 < k <= min(experts, MAX_TOKEN_EXPERTS), f"{name}: {k} experts of a token, at most {MAX_TOKEN_EXPERTS}")
    need(MIN_ROW <= hidden <= MAX_ROW, f"{name}: rows of {hidden} elements; {MIN_ROW} to {MAX_ROW} are taken")
    need(0 < len(group) < 128, f"{name}: the name of the HCCL group is missing")
    need(2 <= ranks <= MAX_RANKS and 0 <= rank < ranks, f"{name}: rank {rank} of {ranks}; 2 to {MAX_RANKS} are taken")
    need(experts <= MAX_SENT_EXPERTS, f"{name}: {experts} experts, at most {MAX_SENT_EXPERTS}")
    need(experts % ranks == 0, f"{name}: {experts} experts on {ranks} ranks")
    if mask is not None:
        typed(f"{name}: x_active_mask", mask, torch.bool)
        need(tuple(mask.shape) == (tokens,), f"{name}: a mask of {list(mask.shape)} for {tokens} tokens")


def moe_distribute_dispatch_v2(
    x: Any,
    expert_ids: Any,
    group_ep: str,
    ep_world_size: int,
    ep_rank_id: int,
    moe_expert_num: int,
    *,
    x_active_mask: Any = None,
    quant_mode: int = 0,
    expert_token_nums_type: int = 1,
) -> None:
    name = "npu_moe_distribute_dispatch_v2"
    typed(f"{name}: x", x, *HALF)
    need(
        len(x.shape) == 2 and x.shape[0] == expert_ids.shape[0],
        f"{name}: x {list(x.shape)} for {list(expert_ids.shape)} choices",
    )
    need(quant_mode in (0, 2), f"{name}: quant_mode {quant_mode}; 0 and 2 are taken")
    need(expert_token_nums_type == 1, f"{name}: expert_token_nums_type {expert_token_nums_type}; counts are 1")
    _sent(
        name=name,
        ids=expert_ids,
        hidden=x.shape[1],
        group=group_ep,
        ranks=ep_world_size,
        rank=ep_rank_id,
        experts=moe_expert_num,
        mask=x_active_mask,
    )


def moe_distribute_combine_v2(
    expand_x: Any,
    expert_ids: Any,
    assist_info_for_combine: Any,
    ep_send_counts: Any,
    expert_scales: Any,
    group_ep: str,
    ep_world_size: int,
    ep_rank_id: int,
    moe_expert_num: int,
    *,
    x_active_mask: Any = None,
) -> None:
    name = "npu_moe_distribute_combine_v2"
    typed(f"{name}: rows", expand_x, *HALF)
    tokens, k = expert_ids.shape
    room = tokens * ep_world_size * min(moe_expert_num // ep_world_size, k)
    need(
        len(expand_x.shape) == 2 and expand_x.shape[0] >= room,
        f"{name}: {expand_x.shape[0]} rows, room for {room} is needed",
    )
    typed(f"{name}: weights", expert_scales, torch.float32)
    need(
        tuple(expert_scales.shape) == (tokens, k),
        f"{name}: {list(expert_scales.shape)} weights for {[tokens, k]} choices",
    )
    for what, t in (("origins", assist_info_for_combine), ("counts", ep_send_counts)):
        typed(f"{name}: {what}", t, torch.int32)
    need(
        assist_info_for_combine.shape[0] >= room * 128, f"{name}: origins of {assist_info_for_combine.shape[0]} numbers"
    )
    need(ep_send_counts.shape[0] >= moe_expert_num, f"{name}: {ep_send_counts.shape[0]} counts for {moe_expert_num}")
    _sent(
        name=name,
        ids=expert_ids,
        hidden=expand_x.shape[1],
        group=group_ep,
        ranks=ep_world_size,
        rank=ep_rank_id,
        experts=moe_expert_num,
        mask=x_active_mask,
    )


RULES: dict[str, Callable[..., None]] = {
    "npu_moe_distribute_dispatch_v2": moe_distribute_dispatch_v2,
    "npu_moe_distribute_combine_v2": moe_distribute_combine_v2,
}
