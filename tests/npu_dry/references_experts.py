"""CPU kernels of the experts' calls and of those between two products, written from torch_npu's documentation."""

from __future__ import annotations

import torch


def moe_gating_top_k(
    x,
    k,
    *,
    bias=None,
    input_ids=None,
    tid2eid=None,
    k_group=1,
    group_count=1,
    group_select_mode=0,
    renorm=0,
    norm_type=0,
    out_flag=False,
    routed_scaling_factor=1.0,
    eps=1e-20,
):
    """Sigmoid, bias, groups by their best two, the best k of these; the scores without bias, divided by their sum."""
    assert (norm_type, renorm, group_select_mode) == (1, 0, 1)
    scores = torch.sigmoid(x.float())
    ranked = scores if bias is None else scores + bias.float()
    y, chosen = [], []
    for row, rank in zip(scores.tolist(), ranked.tolist(), strict=True):
        size = len(row) // group_count
        groups = [range(g * size, (g + 1) * size) for g in range(group_count)]
        groups.sort(key=lambda group, rank=rank: -sum(sorted((rank[i] for i in group), reverse=True)[:2]))
        open_ = sorted((i for group in groups[:k_group] for i in group), key=lambda i, rank=rank: (-rank[i], i))[:k]
        total = sum(row[i] for i in open_) + eps
        y.append([row[i] / total * routed_scaling_factor for i in open_])
        chosen.append(open_)
    return torch.tensor(y).to(x.dtype), torch.tensor(chosen, dtype=torch.int32), scores


def moe_gating_top_k_softmax(x, finished=None, k=1):
    """Softmax, then the best k, not divided by anything; the third counts rows column by column."""
    assert finished is None
    y, chosen = torch.softmax(x.float(), -1).topk(k, -1)
    rows = torch.arange(x.shape[0] * k, dtype=torch.int32).view(k, x.shape[0]).T.contiguous()
    return y.to(x.dtype), chosen.to(torch.int32), rows


def moe_init_routing_v2(
    x,
    expert_idx,
    *,
    scale=None,
    offset=None,
    active_num=-1,
    expert_capacity=-1,
    expert_num=-1,
    drop_pad_mode=0,
    expert_tokens_num_type=0,
    expert_tokens_num_flag=False,
    quant_mode=-1,
    active_expert_range=(),
    row_idx_type=0,
    x_dtype=None,
):
    assert (drop_pad_mode, expert_tokens_num_type, expert_tokens_num_flag, quant_mode) == (0, 1, True, -1)
    assert row_idx_type == 0
    first, end = active_expert_range
    choices, k = expert_idx.numel(), expert_idx.shape[1]
    # Behind the rows of the experts that are asked for lies whatever was there; choices of others have no place.
    rows, places, counts, at = _unwritten((choices, x.shape[1]), x.dtype), [-1] * choices, [0] * (end - first), 0
    for expert in range(first, end):
        for choice, chosen in enumerate(expert_idx.flatten().tolist()):
            if chosen == expert:
                places[choice], rows[at], at = at, x[choice // k], at + 1
                counts[expert - first] += 1
    unused = torch.zeros(choices, dtype=torch.float32)
    return rows, torch.tensor(places, dtype=torch.int32), torch.tensor(counts), unused


def moe_finalize_routing(rows, skip1, skip2, bias, scales, places, experts, drop_pad_mode=0, k=1):
    """Mode 2: the places of a token's choices lie side by side; each is one of the rows."""
    assert 0 <= places.min() <= places.max() < rows.shape[0]
    assert (skip1, skip2, bias, experts, drop_pad_mode) == (None, None, None, None, 2)
    tokens, top_k = scales.shape
    out = torch.zeros(tokens, rows.shape[1], dtype=torch.float64)
    for token in range(tokens):
        for choice in range(top_k):
            out[token] += scales[token, choice].double() * rows[places[token * top_k + choice]].double()
    return out.to(rows.dtype)


def grouped_matmul(
    x,
    weight,
    *,
    bias=None,
    scale=None,
    offset=None,
    antiquant_scale=None,
    antiquant_offset=None,
    per_token_scale=None,
    group_list=None,
    activation_input=None,
    activation_quant_scale=None,
    activation_quant_offset=None,
    split_item=0,
    group_type=None,
    group_list_type=0,
    act_type=0,
    tuning_config=None,
    output_dtype=None,
    x_dtype=None,
    weight_dtype=None,
    scale_dtype=None,
    per_token_scale_dtype=None,
):
    assert (len(x), len(weight), split_item, group_type, group_list_type) == (1, 1, 2, 0, 1)
    (rows,), (w,) = x, weight
    counts = group_list.tolist()
    assert sum(counts) <= rows.shape[0]
    from tests.npu_dry.references import scalar_type, unpacked

    whole = unpacked(w) if w.dtype == torch.int32 else w
    dtype = rows.dtype if output_dtype is None else scalar_type(output_dtype)
    out, start = _unwritten((rows.shape[0], whole.shape[2]), torch.float64), 0
    for expert, count in enumerate(counts):
        mine = slice(start, start + count)
        one = whole[expert].double()
        if antiquant_scale:
            one = (one + antiquant_offset[0][expert].double()) * antiquant_scale[0][expert].double()
        y = rows[mine].double() @ one
        if scale:
            y = y * scale[0][expert].double() * per_token_scale[0][mine].double().unsqueeze(-1)
        out[mine], start = y, start + count
    return [out.to(dtype)]


def _unwritten(shape, dtype):
    """What nobody has written: no number, or a large one where there is no such thing."""
    return torch.full(shape, float("nan") if dtype.is_floating_point else 99, dtype=dtype)


def ffn(
    x,
    weight1,
    weight2,
    activation,
    *,
    expert_tokens=None,
    expert_tokens_index=None,
    bias1=None,
    bias2=None,
    scale=None,
    offset=None,
    deq_scale1=None,
    deq_scale2=None,
    antiquant_scale1=None,
    antiquant_scale2=None,
    antiquant_offset1=None,
    antiquant_offset2=None,
    inner_precise=None,
    output_dtype=None,
):
    """The gate is the first half, as of npu_swiglu. What lies between the products is rounded to the type of x."""
    assert (activation, inner_precise) == ("swiglu", 1)
    gate, up = (x.double() @ weight1.double()).to(x.dtype).double().chunk(2, -1)
    return ((gate * torch.sigmoid(gate) * up).to(x.dtype).double() @ weight2.double()).to(x.dtype)


def dequant_swiglu_quant(
    x,
    *,
    weight_scale=None,
    activation_scale=None,
    bias=None,
    quant_scale=None,
    quant_offset=None,
    group_index=None,
    activate_left=False,
    quant_mode=0,
    dst_type=None,
    round_mode=None,
    activate_dim=None,
    swiglu_mode=0,
    clamp_limit=7.0,
    glu_alpha=1.702,
    glu_bias=1.0,
):
    """Integer sums times both scales, SwiGLU with the gate left, INT8 with a scale per row; scales by group of rows."""
    assert (bias, quant_scale, quant_offset, activate_left, quant_mode, swiglu_mode) == (None, None, None, True, 1, 0)
    counts = [x.shape[0]] if group_index is None else group_index.tolist()
    counts[-1] += x.shape[0] - sum(counts)  # rows that are no expert's
    by_row = torch.cat([weight_scale[i : i + 1].expand(count, -1) for i, count in enumerate(counts)])
    gate, up = (x.double() * by_row.double() * activation_scale.double().unsqueeze(-1)).chunk(2, -1)
    y = (gate * torch.sigmoid(gate) * up).float()
    scale = (y.abs().amax(-1) / 127).clamp_min(1e-12)
    return (y / scale.unsqueeze(-1)).round().clamp(-128, 127).to(torch.int8), scale


KERNELS = {
    "npu_moe_gating_top_k": moe_gating_top_k,
    "npu_moe_gating_top_k_softmax": moe_gating_top_k_softmax,
    "npu_moe_init_routing_v2": moe_init_routing_v2,
    "npu_moe_finalize_routing": moe_finalize_routing,
    "npu_grouped_matmul": grouped_matmul,
    "npu_ffn": ffn,
    "npu_dequant_swiglu_quant": dequant_swiglu_quant,
}
