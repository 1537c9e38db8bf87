"""Latent attention (MLA): over the paged latent rows as they lie, or over heads unpacked from them.

Both ways are npu_fused_infer_attention_score_v2 in layout TND: absorbed with the rotated part as query_rope and
key_rope, unpacked with heads of 192 dimensions for queries and keys and 128 for values, as its documentation has them.
"""

from __future__ import annotations

from itertools import accumulate

import torch
import torch.nn.functional as F

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.mla import latent_of, new_or_seen, own_keys, part_of, part_table, placed, scale_of
from device.operators.npu.attention import CAUSAL, NO_MASK, causal_mask
from device.operators.npu.call import call
from device.operators.npu.rules_latent import MAX_TURNED
from device.step.step import Layout, Step
from scenarios.ops.program import Op

#: Rows and batches of npu_transpose_batchmatmul: the first operand is turned, the second lies right, the result is
#: turned back.
TURNED, AS_IT_LIES = [1, 0, 2], [0, 1, 2]


def lengths(layout: Layout) -> dict[str, list[int]]:
    """The arguments of an absorbed attention that follow the step: query ends, and each request's keys."""
    return {"actual_seq_qlen": list(layout.ends), "actual_seq_kvlen": list(layout.keys)}


def _absorbed(op: Op, inputs: Inputs, step: Step) -> Outputs:
    q_latent, q_rotated, latent_cache, rope_cache, table = inputs
    part, item, size = part_of(step, True), latent_of(step), op.attr("block_size")
    assert isinstance(size, int)
    rows, rotary = latent_cache.view(-1, size, item.kv_rank), rope_cache.view(-1, size, item.rope_dim)
    one_query = part.layout.longest_query == 1
    more = {} if one_query else {"atten_mask": causal_mask(q_latent.device)}
    y, _ = call(
        "npu_fused_infer_attention_score_v2",
        q_latent[: len(part.rows)],
        rows,
        rows,
        query_rope=part.of(q_rotated).contiguous(),
        key_rope=rotary,
        **lengths(part.layout),
        block_table=part_table(part, [table]),
        block_size=size,
        num_query_heads=op.attr("heads"),
        num_key_value_heads=1,
        input_layout="TND",
        softmax_scale=scale_of(step),
        sparse_mode=NO_MASK if one_query else CAUSAL,
        **more,
    )
    return (y,)


def _unpacked(op: Op, inputs: Inputs, step: Step) -> Outputs:
    query, keys, values = inputs
    part = part_of(step, False)
    layout = part.layout
    places = [place for own in own_keys(layout) for place in own]
    if places != list(range(len(places))):  # several requests with cached rows: each one's keys side by side
        order = torch.tensor(places, device=keys.device)
        keys, values = keys[order], values[order]
    heads = op.attr("heads")
    y, _ = call(
        "npu_fused_infer_attention_score_v2",
        query,
        keys,
        values,
        actual_seq_qlen=list(layout.ends),
        actual_seq_kvlen=list(accumulate(layout.keys)),
        num_query_heads=heads,
        num_key_value_heads=heads,
        input_layout="TND",
        softmax_scale=scale_of(step),
        sparse_mode=CAUSAL,
        atten_mask=causal_mask(query.device),
    )
    return (placed(op, y, part, step),)


def _absorb_k(_: Op, inputs: Inputs, step: Step) -> Outputs:
    q, w = inputs
    return (torch.matmul(part_of(step, True).of(q).transpose(0, 1), w),)


def _absorb_v(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Latent rows by token x W_UV [heads, rank, v_dim], back in the order of tokens."""
    mixed, w = inputs
    y = call("npu_transpose_batchmatmul", mixed, w, perm_x1=TURNED, perm_x2=AS_IT_LIES, perm_y=TURNED)
    return (placed(op, y, part_of(step, True), step),)


def _absorb_v_in_pieces(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """The same of more heads than the call turns."""
    mixed, w = inputs
    return (placed(op, torch.matmul(mixed.transpose(0, 1), w).transpose(0, 1), part_of(step, True), step),)


def _cache_read(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """What the requests that unpack have in the cache from before, request by request, by npu_gather_pa_kv_cache."""
    latent, rotary, table = inputs
    part = part_of(step, False)
    lengths = torch.tensor(part.layout.contexts, dtype=torch.int32, device=latent.device)
    out = [x.new_empty((sum(part.layout.contexts), *x.shape[2:])) for x in (latent, rotary)]
    call("npu_gather_pa_kv_cache", latent, rotary, part_table(part, [table]), lengths, *out)
    return out[0].squeeze(1), out[1]


def _unpack(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (F.linear(new_or_seen(op, inputs[0], step), inputs[1]),)


def _kv_norm_rope_cache(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Norm of the latent row, rotation of the pairs next to it, both into their pools; given out too where a prefill
    unpacks them."""
    packed, gamma, cos, sin, slots, latent_pool, rope_pool = inputs
    item, tokens = latent_of(step), packed.shape[0]
    assert step.model is not None
    rows = packed[:, -item.row :].contiguous().view(tokens, 1, 1, item.row)
    angles = (x.view(tokens, 1, 1, item.rope_dim) for x in (cos, sin))
    rotary, row = call(
        "npu_kv_rmsnorm_rope_cache_v2",
        rows,
        gamma,
        *angles,
        slots,
        rope_pool,
        latent_pool,
        epsilon=step.model.norm_eps,
        cache_mode="PA_BNSD",
        is_output_kv=len(op.outputs) > 2,
    )
    result = {"kv_normed": row.reshape(tokens, item.kv_rank), "k_rotated": rotary.reshape(tokens, 1, item.rope_dim)}
    return latent_pool, rope_pool, *(result[t.name] for t in op.outputs[2:])


def _interleave_rope(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """Rotates neighbours; the first of all pairs come to lie in the lower half."""
    x, cos, sin = inputs
    rotary = call("npu_interleave_rope", x.unsqueeze(2), *(a.view(a.shape[0], 1, 1, a.shape[1]) for a in (cos, sin)))
    return (rotary.squeeze(2),)


KERNELS = {
    "transpose_batch_matmul": Kernel(_absorb_v, "fused", raw=True),
    "cache_read": Kernel(_cache_read, "fused", raw=True),
    "kv_norm_rope_cache": Kernel(_kv_norm_rope_cache, "fused", raw=True),
    "interleave_rope": Kernel(_interleave_rope, "fused"),
}
#: Ops of a general kind that latent attention means in its own way, by name.
NAMED = {
    "absorb_k": Kernel(_absorb_k, raw=True),
    "kv_b_proj": Kernel(_unpack, raw=True),
    "attention": Kernel(_absorbed, "fused", raw=True),
    "prefill_attention": Kernel(_unpacked, "fused", raw=True),
}
_IN_PIECES = Kernel(_absorb_v_in_pieces, "composed", raw=True)


def turned_back(op: Op) -> Kernel:
    """How `op`, the product with W_UV, is computed: by one call where its operand is small enough to be turned."""
    heads, rank, _ = op.inputs[1].shape
    return KERNELS["transpose_batch_matmul"] if heads * rank < MAX_TURNED else _IN_PIECES
