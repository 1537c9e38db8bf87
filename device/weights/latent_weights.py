"""The projections of latent attention as a Program wants them: rotated parts in halves, W_UK and W_UV apart."""

from __future__ import annotations

import torch

from scenarios.models.model import Latent, Model


def in_halves(name: str, value: torch.Tensor, latent: Latent) -> torch.Tensor:
    """`value` [rows, k] with the rows of rotated dimensions in halves: a DeepSeek checkpoint has them in pairs, and the
    rotation of a Program is that of halves, but where one fused call rotates pairs. Query and key are reordered alike,
    so their product stays."""
    if name in ("q_proj", "q_b_proj"):
        heads = value.unflatten(0, (-1, latent.nope_dim + latent.rope_dim))
        still, turning = heads.split((latent.nope_dim, latent.rope_dim), 1)
        return torch.cat((still, turning[:, 0::2], turning[:, 1::2]), 1).flatten(0, 1)
    if name == "kv_a_proj":
        still, turning = value.split((latent.kv_rank, latent.rope_dim))
        return torch.cat((still, turning[0::2], turning[1::2]))
    return value


def heads_in_halves(value: torch.Tensor, model: Model) -> torch.Tensor:
    """The rows of a grouped-query projection, whose pairs lie next to each other, as a Program turns them: the first of
    all pairs, then the second."""
    heads = value.unflatten(0, (-1, model.head_dim))
    turning = heads[:, : model.rotated]
    return torch.cat((turning[:, 0::2], turning[:, 1::2], heads[:, model.rotated :]), 1).flatten(0, 1)


def index_in_halves(name: str, value: torch.Tensor, latent: Latent) -> torch.Tensor:
    """The same of the indexer, whose rotated dimensions come first; norms of its keys are reordered with them."""
    index = latent.index
    assert index is not None
    if not index.in_pairs or name not in ("index_q_proj", "index_k_proj", "index_k_norm"):
        return value
    heads = value.unflatten(0, (-1, index.dim))
    pairs, rest = heads.split((latent.rope_dim, index.dim - latent.rope_dim), 1)
    return torch.cat((pairs[:, 0::2], pairs[:, 1::2], rest), 1).flatten(0, 1)


def absorbed(part: str, value: torch.Tensor, latent: Latent) -> torch.Tensor:
    """Of kv_b_proj [heads (nope + v), rank]: W_UK [heads, nope, rank] (part k), W_UV [heads, rank, v] (part v)."""
    w_uk, w_uv = value.unflatten(0, (-1, latent.nope_dim + latent.v_dim)).split((latent.nope_dim, latent.v_dim), 1)
    return w_uk if part == "k" else w_uv.transpose(1, 2)
