"""Latent attention (MLA) over one latent row per token: absorbed for requests of few new tokens, unpacked for the
others.

The requests of a step may come in any order, so each way picks its own rows of q and of the new latent rows by the
layout, and puts what it computes where these rows lie in `attended`. Sums are made in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from device.operators.attention import by_request, by_token, cached, numbers, visible_keys
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.kv import put
from device.operators.norms import rms_norm, rotate
from device.step.rotary import latent_scale
from device.step.step import Layout, Step
from scenarios.lowering.mla import DECODE_QUERY
from scenarios.models.model import Latent
from scenarios.ops.program import Op


@dataclass(frozen=True, slots=True)
class Part:
    """The requests that attend in one of the two ways: their layout, their places among all, their rows."""

    layout: Layout
    requests: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def run(self) -> slice | None:
        """The rows as one run, None where others lie between them."""
        first, count = self.rows[0], len(self.rows)
        return slice(first, first + count) if self.rows == tuple(range(first, first + count)) else None

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """These rows of `x`: a view where they are one run, so that a captured step takes nothing from the host."""
        return x[numbers(self.rows, x.device) if self.run is None else self.run]


def part_of(step: Step, absorbed: bool) -> Part:
    """The requests with at most DECODE_QUERY new tokens, or those with more. Of sparse attention all are absorbed."""
    whole = step.layout
    most = DECODE_QUERY if latent_of(step).index is None else max(whole.queries)
    requests = tuple(i for i, query in enumerate(whole.queries) if (query <= most) == absorbed)
    starts = [0, *accumulate(whole.queries)]
    rows = tuple(row for i in requests for row in range(starts[i], starts[i + 1]))
    if len(requests) == len(whole.queries):  # as it is: a compiled step knows its lengths
        return Part(replace(whole, rows=len(rows)), requests, rows)

    def mine(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[i] for i in requests)

    queries, contexts = mine(whole.queries), mine(whole.contexts)
    return Part(Layout(mine(whole.requests), mine(whole.cache_rows), queries, contexts, len(rows)), requests, rows)


def latent_of(step: Step) -> Latent:
    """The sizes of the step's latent attention."""
    assert step.model is not None
    assert step.model.latent is not None
    return step.model.latent


def scale_of(step: Step) -> float:
    """Of the scores."""
    assert step.model is not None
    return latent_scale(step.model)


#: (q, k, v, the layout of their requests, the scale of the scores) -> what is attended.
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Layout, float], torch.Tensor]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: Layout, scale: float) -> torch.Tensor:
    """softmax(q k scale) v in float32: all [requests, heads, longest, dim]."""
    scores = q.float() @ k.float().transpose(-1, -2) * scale  # one head of k and v may serve all of q
    return torch.softmax(scores.masked_fill(~visible_keys(layout, q.device), float("-inf")), -1) @ v.float()


def placed(op: Op, values: torch.Tensor, part: Part, step: Step) -> torch.Tensor:
    """`attended` [rows, heads v_dim] with `values` in the rows of `part`. The absorbed way comes first and clears what
    the layer before has left."""
    flat, rows = values.flatten(1), step.layout.rows
    if len(part.requests) == len(step.layout.requests):  # no others: what is missing is padding
        return flat if rows == len(flat) else torch.cat((flat, flat.new_zeros((rows - len(flat), flat.shape[-1]))))
    absorbed = part.layout.longest_query <= DECODE_QUERY  # of sparse attention there are no others
    whole = flat.new_zeros((rows, flat.shape[-1])) if absorbed else step.values[op.out.name]
    whole[numbers(part.rows, flat.device) if part.run is None else part.run] = flat
    return whole


def _absorb_k(_: Op, inputs: Inputs, step: Step) -> Outputs:
    """q_nope by token x W_UK [heads, nope, rank] -> [heads, tokens, rank]."""
    q, w = inputs
    picked = part_of(step, True).of(q)
    return ((picked.transpose(0, 1).float() @ w.float()).to(q.dtype),)


def _transpose(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (inputs[0].transpose(0, 1).contiguous(),)


def absorbed(_: Op, inputs: Inputs, step: Step, by: Attend = attend) -> Outputs:
    """The query, in latent terms and rotated, against the latent rows as they lie -> a latent row per head."""
    q_latent, q_rotated, latent_cache, rope_cache, *table = inputs
    part = part_of(step, True)
    query = by_request(torch.cat((q_latent, part.of(q_rotated)), -1), part.layout)
    blocks = part_table(part, table)
    rows = cached(latent_cache, part.layout, blocks).transpose(1, 2)
    keys = torch.cat((rows, cached(rope_cache, part.layout, blocks).transpose(1, 2)), -1)
    mixed = by(query, keys, rows, part.layout, scale_of(step))
    return (by_token(mixed, part.layout).to(q_latent.dtype),)


def part_table(part: Part, table: Inputs) -> torch.Tensor | None:
    """The block table of these requests, None where the cache is not paged."""
    if not table or part.requests == tuple(range(table[0].shape[0])):
        return table[0] if table else None
    return table[0][numbers(part.requests, table[0].device)]


def _absorb_v(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Latent rows by token x W_UV [heads, rank, v_dim], back in the order of tokens."""
    mixed, w = inputs
    values = (mixed.transpose(0, 1).float() @ w.float()).transpose(0, 1).to(mixed.dtype)
    return (placed(op, values, part_of(step, True), step),)


def _cache_read(_: Op, inputs: Inputs, step: Step) -> Outputs:
    """What the requests that unpack have in the cache from before, request by request."""
    *stores, part = *inputs[:2], part_of(step, False)
    table = part_table(part, inputs[2:])
    result = []
    for store in stores:
        seen = cached(store, part.layout, table)
        result.append(torch.cat([seen[i, :context] for i, context in enumerate(part.layout.contexts)]))
    return result[0].squeeze(1), result[1]


def _join_rows(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Rows from the cache, below them the new ones."""
    old, new = inputs[0], part_of(step, False).of(inputs[1])
    return (torch.cat((old.flatten(1), new.flatten(1))).reshape(op.out.shape),)


def new_or_seen(op: Op, x: torch.Tensor, step: Step) -> torch.Tensor:
    """The latent rows that are unpacked: all that are seen, or the new ones of these requests where there are no
    others."""
    return x if op.inputs[0].name.endswith("_seen") else part_of(step, False).of(x)


def _unpack(op: Op, inputs: Inputs, step: Step) -> Outputs:
    x, w = new_or_seen(op, inputs[0], step), inputs[1]
    return ((x.float() @ w.float().T).to(x.dtype),)


def _repeat_rope(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """The rotated part, one for all heads, copied for each."""
    return (new_or_seen(op, inputs[0], step).expand(op.out.shape).contiguous(),)


def _join_query(_: Op, inputs: Inputs, step: Step) -> Outputs:
    return (part_of(step, False).of(torch.cat(tuple(inputs), -1)),)


def own_keys(layout: Layout) -> list[list[int]]:
    """Where the keys of each request lie: those from the cache before all new ones, each request by request."""
    olds, news = [0, *accumulate(layout.contexts)], [sum(layout.contexts)]
    news += [news[0] + end for end in accumulate(layout.queries)]
    return [[*range(olds[i], olds[i + 1]), *range(news[i], news[i + 1])] for i in range(len(layout.requests))]


def unpacked(op: Op, inputs: Inputs, step: Step, by: Attend = attend) -> Outputs:
    """Full heads over unpacked keys."""
    query, keys, values = inputs
    part = part_of(step, False)
    layout, start = part.layout, 0
    out = []
    for own, context, count in zip(own_keys(layout), layout.contexts, layout.queries, strict=True):
        places = numbers(tuple(own), keys.device)
        one = Layout((0,), (0,), (count,), (context,), count)
        q, start = query[start:][:count], start + count
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, keys[places], values[places]))
        out.append(by_token(by(q, k, v, one, scale_of(step)), one))
    return (placed(op, torch.cat(out).to(query.dtype), part, step),)


def _kv_norm_rope_cache(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Norm of the latent row, rotation of its other part, both into their caches; given out too where a prefill unpacks
    them."""
    packed, gamma, cos, sin, slots, latent_pool, rope_pool = inputs
    item = latent_of(step)
    assert step.model is not None
    latent, turning = packed[:, -item.row :].split((item.kv_rank, item.rope_dim), -1)
    row = rms_norm(latent, gamma, step.model.norm_eps)[0]
    rotary = rotate_pairs(turning.unsqueeze(1), cos, sin)
    result = {"kv_normed": row, "k_rotated": rotary}
    pools = put(latent_pool, row, slots), put(rope_pool, rotary.flatten(1), slots)
    return (*pools, *(result[t.name] for t in op.outputs[2:]))


def rotate_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Neighbours of `x` are a pair, as in a checkpoint; the result has the first of all pairs in its lower half. So do
    the fused calls; in unfused ones the weights are reordered instead (device/weights/latent_weights.py)."""
    return rotate(torch.cat((x[..., 0::2], x[..., 1::2]), -1), cos, sin)


def _rotate(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (rotate_pairs(*inputs),)


ABSORBED = Kernel(absorbed, "composed", raw=True)
KERNELS = {
    "transpose": Kernel(_transpose, raw=True),
    "transpose_batch_matmul": Kernel(_absorb_v, "composed", raw=True),
    "cache_read": Kernel(_cache_read, "composed", raw=True),
    "kv_norm_rope_cache": Kernel(_kv_norm_rope_cache, "composed", raw=True),
    "interleave_rope": Kernel(_rotate, "composed"),
}
#: Ops of a general kind that latent attention means in its own way, by name.
NAMED = {
    "absorb_k": Kernel(_absorb_k, raw=True),
    "join_latent": Kernel(_join_rows, raw=True),
    "join_rope": Kernel(_join_rows, raw=True),
    "kv_b_proj": Kernel(_unpack, raw=True),
    "k_pe.repeat": Kernel(_repeat_rope, raw=True),
    "q_join": Kernel(_join_query, raw=True),
    "prefill_attention": Kernel(unpacked, "composed", raw=True),
}
