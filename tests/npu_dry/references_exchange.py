"""CPU kernels of the calls that send tokens to the ranks of their experts and back, over whatever joins the ranks.

A group is found by the name that the call is given: of torch's own groups, or of what `JOINED` says. A name that nobody
has joined stands for ranks that all do the same, so that schemas and shapes can be held against one process.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

#: Groups of gloo by the name that a call is given, where that is not torch's.
JOINED: dict[str, dist.ProcessGroup] = {}
#: Numbers that are kept of each row: rank, token and place among its choices; the rest is unused.
ORIGIN = 128


def _of_all(x: torch.Tensor, name: str, ranks: int) -> torch.Tensor:
    """[ranks, *x.shape]: what each rank calls with."""
    group = JOINED.get(name)
    if group is None and dist.is_initialized() and dist.get_backend() == "gloo":
        group = dist.distributed_c10d._resolve_process_group(name)
    if group is None:
        return x.unsqueeze(0).expand(ranks, *x.shape)
    out = [torch.empty_like(x) for _ in range(ranks)]
    dist.all_gather(out, x.contiguous(), group=group)
    return torch.stack(out)


def moe_distribute_dispatch_v2(
    x,
    expert_ids,
    group_ep,
    ep_world_size,
    ep_rank_id,
    moe_expert_num,
    *,
    scales=None,
    x_active_mask=None,
    expert_scales=None,
    elastic_info=None,
    performance_info=None,
    group_tp="",
    tp_world_size=0,
    tp_rank_id=0,
    expert_shard_type=0,
    shared_expert_num=1,
    shared_expert_rank_num=0,
    quant_mode=0,
    global_bs=0,
    expert_token_nums_type=1,
    comm_alg="",
    zero_expert_num=0,
    copy_expert_num=0,
    const_expert_num=0,
    y_dtype=None,
    x_dtype=None,
    scales_dtype=None,
):
    """Rows by expert, of one expert by rank, of one rank by token; counts of each expert, and sums up to each rank."""
    assert (scales, group_tp, tp_world_size, shared_expert_rank_num, global_bs, comm_alg) == (None, "", 0, 0, 0, "")
    assert expert_token_nums_type == 1
    (tokens, k), held = expert_ids.shape, moe_expert_num // ep_world_size
    mask = torch.ones(tokens, dtype=torch.bool) if x_active_mask is None else x_active_mask
    every_x, every_ids, sent = (_of_all(t, group_ep, ep_world_size) for t in (x, expert_ids, mask.to(torch.uint8)))
    room = tokens * ep_world_size * min(held, k)
    rows, origins = torch.full((room, x.shape[1]), float("nan")), torch.zeros(max(tokens * k, room * ORIGIN)).int()
    counts, received, at = [], [], 0
    for expert in range(ep_rank_id * held, (ep_rank_id + 1) * held):
        before = at
        for rank in range(ep_world_size):
            for token, choice in (every_ids[rank] == expert).nonzero().tolist():
                if sent[rank, token]:
                    rows[at], at = every_x[rank, token].float(), at + 1
                    origins[(at - 1) * ORIGIN : (at - 1) * ORIGIN + 3] = torch.tensor((rank, token, choice))
            received.append(at)
        counts.append(at - before)
    out, row_scales = rows.to(x.dtype), torch.full((room,), float("nan"))
    if quant_mode == 2:
        real = rows[:at].to(x.dtype).float()
        row_scales[:at] = (real.abs().amax(-1) / 127).clamp_min(1e-12)
        out = torch.full((room, x.shape[1]), 99, dtype=torch.int8)
        out[:at] = (real / row_scales[:at].unsqueeze(-1)).round().clamp(-128, 127).to(torch.int8)
    result = (out, row_scales, origins, torch.tensor(counts), torch.tensor(received, dtype=torch.int32))
    return (*result, torch.zeros(tp_world_size, dtype=torch.int32), torch.zeros(0))


def moe_distribute_combine_v2(
    expand_x,
    expert_ids,
    assist_info_for_combine,
    ep_send_counts,
    expert_scales,
    group_ep,
    ep_world_size,
    ep_rank_id,
    moe_expert_num,
    *,
    tp_send_counts=None,
    x_active_mask=None,
    expand_scales=None,
    shared_expert_x=None,
    elastic_info=None,
    ori_x=None,
    const_expert_alpha_1=None,
    const_expert_alpha_2=None,
    const_expert_v=None,
    performance_info=None,
    group_tp="",
    tp_world_size=0,
    tp_rank_id=0,
    expert_shard_type=0,
    shared_expert_num=1,
    shared_expert_rank_num=0,
    global_bs=0,
    comm_quant_mode=0,
    comm_alg="",
    zero_expert_num=0,
    copy_expert_num=0,
    const_expert_num=0,
):
    """Each row to the rank and token that it came from, times the weight of its choice; nothing of padding."""
    assert (group_tp, tp_world_size, shared_expert_rank_num, global_bs, comm_quant_mode) == ("", 0, 0, 0, 0)
    origins = assist_info_for_combine[: expand_x.shape[0] * ORIGIN].contiguous()
    sent = (expand_x, origins, ep_send_counts[-1:])
    rows, every_origin, ends = (_of_all(t, group_ep, ep_world_size) for t in sent)
    out = torch.zeros(expert_ids.shape[0], expand_x.shape[1], dtype=torch.float64)
    for rank in range(ep_world_size):
        for at in range(int(ends[rank, 0])):
            whose, token, choice = every_origin[rank, at * ORIGIN : at * ORIGIN + 3].tolist()
            if whose == ep_rank_id:
                out[token] += expert_scales[token, choice].double() * rows[rank, at].double()
    return out.to(expand_x.dtype)


KERNELS = {
    "npu_moe_distribute_dispatch_v2": moe_distribute_dispatch_v2,
    "npu_moe_distribute_combine_v2": moe_distribute_combine_v2,
}
