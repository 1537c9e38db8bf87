"""Writes into the KV cache: in place, to the slots that the allocator gave."""

from __future__ import annotations

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.norms import eps_of, rms_norm, rotate
from device.operators.quant import quantise_by
from device.step.step import Step
from scenarios.ops.program import Op


def put(cache: torch.Tensor, new: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Write rows of `new` [tokens, ...] to `slots`, counted in tokens over the whole cache [.., tokens, heads, dim] or
    scales [tokens of the cache, n]; returns the cache."""
    per_token = new[0].numel()
    cache.view(-1, per_token).index_copy_(0, slots, new.reshape(-1, per_token))
    return cache


def _kv_cache_write(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """New values (activations), the caches they go to, the slots."""
    new = [x for x, t in zip(inputs, op.inputs, strict=True) if t.role == "activation"]
    caches = [x for x, t in zip(inputs, op.inputs, strict=True) if t.role == "kv_cache"]
    slots = inputs[-1]
    tokens = slots.shape[0]
    return tuple(put(cache, x.reshape(tokens, -1), slots) for cache, x in zip(caches, new, strict=True))


def norm_rope(
    qkv: torch.Tensor,
    gamma_q: torch.Tensor,
    gamma_k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    heads: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Packed [tokens, q+k+v] -> (q normed and rotated, k normed and rotated, v), each [tokens, heads, dim]."""
    by_head = qkv.view(qkv.shape[0], -1, gamma_q.shape[0])
    kv_heads = (by_head.shape[1] - heads) // 2
    q, k, v = by_head.split((heads, kv_heads, kv_heads), 1)
    q, k = rms_norm(q, gamma_q, eps)[0], rms_norm(k, gamma_k, eps)[0]
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def norm_rope_cache(inputs: Inputs, heads: int, eps: float) -> Outputs:
    """(q, K pool, V pool) of packed qkv, the two gammas, cos, sin, (the INT8 scales,) slots and the two pools."""
    qkv, gamma_q, gamma_k, cos, sin, *scales, slots, k_pool, v_pool = inputs
    q, k, v = norm_rope(qkv=qkv, gamma_q=gamma_q, gamma_k=gamma_k, cos=cos, sin=sin, heads=heads, eps=eps)
    if scales:
        k, v = quantise_by(k, scales[0].squeeze(1)), quantise_by(v, scales[1].squeeze(1))
    return q, put(k_pool, k, slots), put(v_pool, v, slots)


def _qkv_norm_rope_cache(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return norm_rope_cache(inputs, op.out.shape[1], eps_of(op))


KERNELS = {
    "kv_cache_write": Kernel(_kv_cache_write, raw=True),
    "qkv_norm_rope_cache": Kernel(_qkv_norm_rope_cache, "composed", raw=True),
}
