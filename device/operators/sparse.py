"""Sparse attention over latent rows: the indexer's choice of keys for each query, and attention to those alone."""

from __future__ import annotations

import torch

from device.operators.attention import by_request, by_token, cached, visible_keys
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.mla import scale_of
from device.step.step import Step
from scenarios.ops.program import Op


def _indexer(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """The best keys of each query by sum_heads w relu(q k), [rows, top_k] int32; -1 where a query sees fewer.

    query [rows, heads, dim], weights [rows, heads], then the cache of keys (and a block table).
    """
    query, weights, store, *table = inputs
    layout, (heads, dim) = step.layout, (op.inputs[0].shape[1], op.inputs[0].shape[2])
    q = by_request(query.reshape(-1, heads, dim), layout).float()
    w = by_request(weights.reshape(-1, heads, 1), layout).float()
    keys = cached(store, layout, table[0] if table else None).transpose(1, 2).float()
    scores = (torch.relu(q @ keys.transpose(-1, -2)) * w).sum(1, keepdim=True)
    scores = scores.masked_fill(~visible_keys(layout, scores.device), float("-inf"))
    top_k = op.out.shape[1]
    best, places = scores.topk(min(top_k, scores.shape[-1]), -1)
    places = places.masked_fill(best == float("-inf"), -1)
    if places.shape[-1] < top_k:
        places = torch.nn.functional.pad(places, (0, top_k - places.shape[-1]), value=-1)
    return (by_token(places, layout).squeeze(1).to(torch.int32),)


def _attention(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """As `mla.absorbed`, with the keys that were not selected hidden."""
    q_latent, q_rotated, latent_cache, rope_cache, selected, *table = inputs
    layout, blocks = step.layout, table[0] if table else None
    query = by_request(torch.cat((q_latent, q_rotated[: len(q_latent)]), -1), layout).float()
    rows = cached(latent_cache, layout, blocks).transpose(1, 2).float()
    keys = torch.cat((rows, cached(rope_cache, layout, blocks).transpose(1, 2).float()), -1)
    places = by_request(selected.reshape(len(selected), 1, -1), layout).long()
    seen = torch.zeros((*places.shape[:-1], keys.shape[2] + 1), dtype=torch.bool, device=keys.device)
    seen.scatter_(-1, places.masked_fill(places < 0, keys.shape[2]), True)
    scores = query @ keys.transpose(-1, -2) * scale_of(step)
    mixed = torch.softmax(scores.masked_fill(~seen[..., :-1], float("-inf")), -1) @ rows
    return (by_token(mixed, layout).to(q_latent.dtype),)


ATTENTION = Kernel(_attention, "composed", raw=True)
KERNELS = {"lightning_indexer": Kernel(_indexer, "composed", raw=True)}
