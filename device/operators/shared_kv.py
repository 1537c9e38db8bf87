"""DeepSeek-V4's attention in plain torch: compressed rows made, chosen and attended to, request by request in float32.

Rows and the compressor's state lie by request; a state holds values and scores of the last tokens, each at its position
modulo their number.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from device.operators.attention import cached
from device.operators.delta import requests_of
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.norms import eps_of, rms_norm, rotate
from device.step.rotary import frequencies
from device.step.step import Layout, Step
from scenarios.ops.counting import whole_number
from scenarios.ops.program import Op


def finished(layout: Layout, ratio: int) -> Iterator[tuple[int, int]]:
    """(request, compressed row) of each window that the step's tokens finish, in order."""
    for number, context, rows in requests_of(layout):
        count = rows.stop - rows.start
        for row in range(context // ratio, (context + count) // ratio):
            yield number, row


def _places(op: Op, _: Inputs, step: Step) -> Outputs:
    """Cosines and sines of the first token of each finished window, and its (request, row); -1 where there is none."""
    ratio, which = whole_number(op, "ratio"), op.attr("angles")
    assert step.model is not None
    assert isinstance(which, str)
    cosines, _sines, slots = op.outputs
    device = next(iter(step.values.values())).device
    places = torch.full(slots.shape, -1, dtype=torch.int32, device=device)
    done = list(finished(step.layout, ratio))
    if done:
        places[: len(done)] = torch.tensor(done, dtype=torch.int32, device=device)
    starts = places[:, 1].clamp(min=0).float() * ratio
    angles = starts.unsqueeze(-1) * frequencies(step.model.turns[which]).to(device)
    doubled, dtype = torch.cat((angles, angles), -1), step.dtypes[cosines.dtype]
    return doubled.cos().to(dtype), doubled.sin().to(dtype), places


def _compressor(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Of each finished window the sum of its tokens' values, weighed element by element by a softmax over their scores,
    normed and turned. Where windows overlap, a token has a part for its own window and one for the next."""
    x, to_values, to_scores, bias, gamma, cos, sin, held = inputs
    ratio, parts = whole_number(op, "ratio"), whole_number(op, "parts")
    width, depth = op.out.shape[-1], held.shape[1]
    values, scores = x.float() @ to_values.float().T, x.float() @ to_scores.float().T
    out = x.new_zeros(op.out.shape)
    at = 0
    for number, context, rows in requests_of(step.layout):
        for offset in range(rows.stop - rows.start):
            position, row = context + offset, rows.start + offset
            held[number, position % depth] = torch.cat((values[row], scores[row] + bias[position % ratio].float()))
            if (position + 1) % ratio:
                continue
            summed = _pooled(held[number], position, ratio, parts, width)
            normed = rms_norm(summed.unsqueeze(0), gamma.float(), eps_of(op))[0]
            turning = cos.shape[-1]
            still, last = normed.split((width - turning, turning), -1)
            last = rotate(last.unsqueeze(1), cos[at : at + 1].float(), sin[at : at + 1].float()).squeeze(1)
            out[at], at = torch.cat((still, last), -1)[0].to(out.dtype), at + 1
    return out, held


def _pooled(held: torch.Tensor, position: int, ratio: int, parts: int, width: int) -> torch.Tensor:
    """The weighed sum of the window that ends at `position`: its own tokens' last part, and the first part of those of
    the window before it, if there is one."""
    depth = held.shape[0]
    windows = [(range(position - ratio + 1, position + 1), parts - 1)]
    if parts > 1 and position >= ratio:
        windows.insert(0, (range(position - 2 * ratio + 1, position - ratio + 1), 0))
    values, scores = [], []
    for tokens, part in windows:
        of = held[[token % depth for token in tokens]].view(len(tokens), 2, parts, width)
        values.append(of[:, 0, part])
        scores.append(of[:, 1, part])
    return (torch.cat(values) * torch.cat(scores).softmax(0)).sum(0)


def _write(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """New rows to (request, row) of the cache; those without a place are dropped."""
    new, cache, places = inputs
    kept = places[:, 0] >= 0
    request, row = places[kept].long().unbind(-1)
    cache[request, row] = new.reshape(len(places), -1)[kept].to(cache.dtype)
    return (cache,)


def _indexer(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """The best compressed rows of each token by sum_heads w relu(q k), [rows, top_k] int32; -1 where it has fewer."""
    query, q_scale, weights, keys, k_scale = inputs
    ratio, top_k = whole_number(op, "ratio"), op.out.shape[1]
    out = torch.full(op.out.shape, -1, dtype=torch.int32, device=query.device)
    for number, context, rows in requests_of(step.layout):
        for row in range(rows.start, rows.stop):
            seen = (context + row - rows.start + 1) // ratio
            products = query[row].float() @ keys[number, :seen].float().T
            scores = torch.relu(products * q_scale[row].float().unsqueeze(-1) * k_scale[number, :seen, 0].float())
            best = (scores * weights[row].float().unsqueeze(-1)).sum(0).topk(min(top_k, seen)).indices
            out[row, : len(best)] = best.to(torch.int32)
    return (out,)


def _attention(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Each token over its window and its compressed rows, keys that are values, with a score of each head for none."""
    query, store, sinks, *rest = inputs
    query, sinks = query.view(-1, *op.inputs[0].shape[1:]), sinks.float()
    window, ratio = whole_number(op, "window"), whole_number(op, "ratio", 0)
    rows_of = rest.pop(0) if ratio else None
    chosen = rest.pop(0) if op.attr("top_k", 0) else None
    near = cached(store, step.layout, rest[0] if rest else None)
    out = torch.zeros_like(query)
    for place, (number, context, rows) in enumerate(requests_of(step.layout)):
        for row in range(rows.start, rows.stop):
            position = context + row - rows.start
            keys = near[place, max(0, position - window + 1) : position + 1, 0].float()
            if rows_of is not None:
                far = rows_of[number, : (position + 1) // ratio].float()
                if chosen is not None:
                    picks = chosen[row]
                    far = far[picks[picks >= 0].long()]
                keys = torch.cat((keys, far))
            scores = query[row].float() @ keys.T * query.shape[-1] ** -0.5
            shares = torch.cat((scores, sinks.unsqueeze(-1)), -1).softmax(-1)[:, :-1]
            out[row] = (shares @ keys).to(out.dtype)
    return (out,)


def _rotary(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """The last dimensions of each head turned, or (attribute back) turned back."""
    x, cos, sin = inputs
    turning = cos.shape[-1]
    still, part = x.split((x.shape[-1] - turning, turning), -1)
    sin = -sin if op.attr("back", False) else sin
    return (torch.cat((still, rotate(part.contiguous(), cos, sin)), -1),)


def _by_group(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """Heads [rows, heads, dim], group by group, x [groups, heads of a group x dim, rank]."""
    heads, weights = inputs
    groups = heads.reshape(op.out.shape[0], len(weights), -1)
    return (torch.einsum("tgk,gkr->tgr", groups.float(), weights.float()).to(heads.dtype),)


KERNELS = {
    "sparse_attn_sharedkv": Kernel(_attention, "composed", raw=True),
    "lightning_indexer_quant": Kernel(_indexer, "composed"),
    "compressor": Kernel(_compressor, "composed"),
    "compressor_metadata": Kernel(_places, "composed"),
    "compressed_write": Kernel(_write, "composed"),
    "partial_rotary_mul": Kernel(_rotary, "composed"),
}
#: Ops of a general kind that this attention means in its own way, by name.
NAMED = {"o_a_proj": Kernel(_by_group, "composed", raw=True)}
