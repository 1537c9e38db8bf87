"""Attention over a cache, fused and in pieces: q by request, the keys that are seen, softmax in float32."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import groupby

import torch

from device.operators.kernel import Compute, Inputs, Kernel, Outputs
from device.step.step import Layout, Step
from scenarios.ops.program import Op, Tensor


@lru_cache(maxsize=256)
def numbers(values: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """`values` on the device, made once: all layers of a step ask for the same ones, and a copy from the host's pages
    lets the host wait for the device."""
    return torch.tensor(values, device=device)


def by_request(x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """[rows, heads, dim] by token -> [requests, heads, longest query, dim]; shorter queries are padded by repeats of
    their last token, whose results nobody reads."""
    requests, longest = len(layout.requests), layout.longest_query
    if len(set(layout.queries)) == 1:
        return x[: layout.tokens].reshape(requests, longest, *x.shape[1:]).transpose(1, 2)
    places, start = [], 0
    for query in layout.queries:
        places += [start + min(i, query - 1) for i in range(longest)]
        start += query
    rows = x[numbers(tuple(places), x.device)]
    return rows.reshape(requests, longest, *x.shape[1:]).transpose(1, 2)


def by_token(x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The reverse: [requests, heads, longest query, dim] -> [rows, heads, dim]; rows beyond the tokens are zeros."""
    requests, heads, longest, dim = x.shape
    flat = x.transpose(1, 2)
    if len(set(layout.queries)) == 1:
        out = flat.reshape(requests * longest, heads, dim)
    else:
        out = torch.cat([flat[i, :query] for i, query in enumerate(layout.queries)])
    if layout.rows == layout.tokens:
        return out
    padding = out.new_zeros((layout.rows - layout.tokens, heads, dim))
    return torch.cat((out, padding))


def cached(store: torch.Tensor, layout: Layout, table: torch.Tensor | None) -> torch.Tensor:
    """What the requests have in a cache, [requests, longest keys, ...], through the block table where there is one.

    store: [rows, tokens, ...] or [blocks, block size, ...]. What lies beyond a request's own length is whatever the
    cache holds there: the mask hides it.
    """
    keys, requests = layout.longest_keys, len(layout.requests)
    if table is not None:
        blocks = table[:, : -(-keys // store.shape[1])].long()
        return store[blocks].reshape(requests, -1, *store.shape[2:])[:, :keys]
    if layout.first_rows:
        return store[:requests, :keys]
    return store[numbers(layout.cache_rows, store.device), :keys]


def visible_keys(layout: Layout, device: torch.device) -> torch.Tensor:
    """bool [requests, 1, queries, keys]: a query sees the keys up to its own."""
    contexts = numbers(layout.contexts, device).view(-1, 1, 1, 1)
    most = numbers(layout.queries, device).view(-1, 1, 1, 1) - 1
    query = torch.arange(layout.longest_query, device=device).view(1, 1, -1, 1)
    key = torch.arange(layout.longest_keys, device=device).view(1, 1, 1, -1)
    return key <= contexts + torch.minimum(query, most)


@lru_cache(maxsize=256)
def runs_of(layout: Layout) -> tuple[tuple[slice, slice, Layout], ...]:
    """Runs of neighbours that are alike, in order: (their requests, their tokens, their layout)."""
    runs: list[tuple[slice, slice, Layout]] = []
    first = token = 0
    for (query, context), run in groupby(zip(layout.queries, layout.contexts, strict=True)):
        count = len(list(run))
        of = slice(first, first + count)
        part = Layout(layout.requests[of], layout.cache_rows[of], (query,) * count, (context,) * count, count * query)
        runs.append((of, slice(token, token + count * query), part))
        first, token = first + count, token + count * query
    return tuple(runs)


@lru_cache(maxsize=8)
def visible_in(layout: Layout, device: torch.device) -> torch.Tensor:
    """`visible_keys`, made once for all layers of a step."""
    return visible_keys(layout, device)


def by_runs(attend: Compute, op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Attention of a ragged batch, one call of `attend` for each run of requests that are alike: nothing is padded to
    the longest query or the longest cache, which a device without a ragged kernel would compute in vain."""
    layout = step.layout
    runs = runs_of(layout)
    if len(runs) == 1:
        return attend(op, inputs, step)
    results: list[torch.Tensor] = []
    for requests, tokens, part in runs:
        causal = part.queries[0] > 1 and not part.contexts[0]
        visible = visible_in(part, inputs[0].device) if part.queries[0] > 1 and not causal else None
        own = replace(step, layout=part, visible=visible, causal=causal)
        tensors = [x[requests] if t.name == "block_table" else x for x, t in zip(inputs, op.inputs, strict=True)]
        tensors[0] = inputs[0][tokens]
        shape = (part.tokens, *op.out.shape[1:])
        whole = replace(op, outputs=(replace(op.out, shape=shape),))
        results += attend(whole, tensors, own)
    if layout.rows > layout.tokens:
        results.append(results[0].new_zeros((layout.rows - layout.tokens, *op.out.shape[1:])))
    return (torch.cat(results),)


def seen_by(op: Op, step: Step) -> torch.Tensor | None:
    """Which keys each query of an attention op sees, as `visible_keys`; None where all see all there are."""
    window, chunk = op.attr("window", 0), op.attr("chunk", 0)
    if not window and not chunk:
        return step.visible
    return in_sight(step.layout, _device_of(step), int(window), int(chunk))  # type: ignore[arg-type]


def _device_of(step: Step) -> torch.device:
    return next(iter(step.values.values())).device


def in_sight(layout: Layout, device: torch.device, window: int, chunk: int) -> torch.Tensor:
    """`visible_keys` of a layer whose queries see `window` keys at most, or those of their own `chunk` of positions."""
    contexts = numbers(layout.contexts, device).view(-1, 1, 1, 1)
    most = numbers(layout.queries, device).view(-1, 1, 1, 1) - 1
    at = contexts + torch.minimum(torch.arange(layout.longest_query, device=device).view(1, 1, -1, 1), most)
    key = torch.arange(layout.longest_keys, device=device).view(1, 1, 1, -1)
    first = at - window + 1 if window else at - at % chunk if chunk else torch.zeros_like(at)
    return (key <= at) & (key >= first)


def slopes(heads: int) -> list[float]:
    """Of the biases by distance of each head (ALiBi): powers of 2^(-8 / heads); of a number that is no power of two
    those of the next smaller one, and then each second of the next larger one (the paper's code)."""
    power = 1 << (heads.bit_length() - 1)
    own = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    return own if power == heads else [*own, *slopes(2 * power)[::2][: heads - power]]


def by_distance(layout: Layout, device: torch.device, heads: int) -> torch.Tensor:
    """Biases of scores [requests, heads, queries, keys] in float32: minus the slope times the distance."""
    contexts = numbers(layout.contexts, device).view(-1, 1, 1, 1)
    most = numbers(layout.queries, device).view(-1, 1, 1, 1) - 1
    at = contexts + torch.minimum(torch.arange(layout.longest_query, device=device).view(1, 1, -1, 1), most)
    key = torch.arange(layout.longest_keys, device=device).view(1, 1, 1, -1)
    return (key - at).float() * torch.tensor(slopes(heads), device=device).view(1, -1, 1, 1)


def scale_of(op: Op) -> float:
    """What scores are multiplied by."""
    dim, scale = op.attr("head_dim"), op.attr("scale", 0.0)
    assert isinstance(dim, int)
    assert isinstance(scale, float | int)
    return scale or dim**-0.5


def sinks_of(op: Op, inputs: Inputs) -> torch.Tensor | None:
    """The learned score of each head that stands in the softmax without a value."""
    return next((x for x, t in zip(inputs, op.inputs, strict=True) if t.role == "weight"), None)


def dequantised(
    store: torch.Tensor, scale: torch.Tensor, step: Step, table: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """INT8 keys or values times their scale.

    scale: [kv heads, 1, dim], a constant a channel; or [tokens of the cache, 1 or kv heads], kept next to the cache.
    """
    values = cached(store, step.layout, table).float()
    if scale.ndim == 3:
        return (values * scale.float().squeeze(1)).to(dtype)
    by_place = scale.reshape(*store.shape[:2], scale.shape[-1])
    return (values * cached(by_place, step.layout, table).unsqueeze(-1)).to(dtype)


def keys_and_values(op: Op, inputs: Inputs, step: Step, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """What an attention op sees of the cache, each [requests, kv heads, longest keys, dim] in `dtype`.

    inputs: query, key cache, value cache, (sinks,) then the block table of a paged cache, then the scales of an INT8
    one.
    """
    rest = [x for x, t in zip(inputs[3:], op.inputs[3:], strict=True) if t.role != "weight"]
    table = rest.pop(0) if op.attr("block_size") else None
    result = []
    for store in inputs[1:3]:
        if rest:
            result.append(dequantised(store, rest.pop(0), step, table, dtype).transpose(1, 2))
        else:
            result.append(cached(store, step.layout, table).transpose(1, 2))
    return result[0], result[1]


def heads_of(query: torch.Tensor, op: Op) -> torch.Tensor:
    """The query as [rows, heads, dim]."""
    heads = op.attr("heads")
    assert isinstance(heads, int)
    return query.reshape(query.shape[0], heads, -1)


def _attention(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """softmax(q k scale) v, each step in float32, rounded at the end."""
    query = heads_of(inputs[0], op)
    q = by_request(query, step.layout).float()
    k, v = (x.float() for x in keys_and_values(op, inputs, step, query.dtype))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * scale_of(op)
    if (visible := seen_by(op, step)) is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    if (sinks := sinks_of(op, inputs)) is not None:
        scores = with_sinks(scores, sinks)
    y = torch.softmax(scores, -1)[..., : k.shape[-2]] @ v
    return (by_token(y, step.layout).to(query.dtype).reshape(op.out.shape),)


def with_sinks(scores: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """Scores [requests, heads, queries, keys] with one more column, each head's own."""
    column = sinks.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat((scores, column), -1)


def _join_sinks(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (with_sinks(*inputs),)


def _expand(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """K or V repeated over the heads that share it, copied: [requests, heads, longest keys, dim]."""
    x = inputs[0]
    if op.inputs[0].role == "kv_cache":
        x = cached(x, step.layout, None).transpose(1, 2)
    return (x.repeat_interleave(op.out.shape[1] // x.shape[1], 1),)


def _block_gather(_: Op, inputs: Inputs, step: Step) -> Outputs:
    """[requests, kv heads, longest keys, dim], copied block by block out of the pool."""
    store, table = inputs
    return (cached(store, step.layout, table).transpose(1, 2).contiguous(),)


def scores_or_values(op: Op) -> bool:
    """Whether a batch_matmul makes scores (q k); else it weights values."""
    return len(op.out.shape) == 4


def operand_by_request(x: torch.Tensor, tensor: Tensor, step: Step) -> torch.Tensor:
    """The query of a score product, which the Program keeps by token, as [requests, heads, queries, dim]."""
    return by_request(x.reshape(x.shape[0], tensor.shape[1], tensor.shape[-1]), step.layout)


def _batch_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    a, b = inputs
    if scores_or_values(op):
        y = operand_by_request(a, op.inputs[0], step).float() @ b.float().transpose(-1, -2)
        return (y.to(a.dtype),)
    return (by_token(a.float() @ b.float(), step.layout).to(a.dtype).reshape(op.out.shape),)


#: Ops of a general kind that attention means in its own way, by name.
NAMED = {"attn.join_sinks": Kernel(_join_sinks)}
KERNELS = {
    "attention": Kernel(_attention, "composed", raw=True),
    "expand": Kernel(_expand, raw=True),
    "block_gather": Kernel(_block_gather, raw=True),
    "batch_matmul": Kernel(_batch_matmul, raw=True),
}
