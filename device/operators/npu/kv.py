"""Writes into the KV cache, in place."""

from __future__ import annotations

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.norms import eps_of
from device.operators.npu.attention import NZ_WIDTH
from device.operators.npu.call import call
from device.step.step import Step
from scenarios.ops.program import Op


def _kv_cache_write(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """Keys and values together by npu_scatter_pa_kv_cache, one of them (or scales) by npu_scatter_nd_update_."""
    new = [x for x, t in zip(inputs, op.inputs, strict=True) if t.role == "activation"]
    caches = [x for x, t in zip(inputs, op.inputs, strict=True) if t.role == "kv_cache"]
    slots = inputs[-1]
    if len(new) == 2:
        key, value = (x.reshape(slots.shape[0], *cache.shape[2:]) for x, cache in zip(new, caches, strict=True))
        # The mode is always named: its default is blocks in FRACTAL_NZ.
        call("npu_scatter_pa_kv_cache", key.contiguous(), value.contiguous(), *caches, slots, cache_mode="Norm")
        return tuple(caches)
    return (put(caches[0], new[0], slots),)


def put(cache: torch.Tensor, new: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Rows of `new` to `slots`, counted in tokens over the whole cache; returns the cache.

    cache: [.., tokens, heads, dim], or flat [tokens, values] as it is handed to a compiled graph: there a view of it
    would cost a copy of the whole cache.
    """
    updates = new.reshape(slots.shape[0], -1)
    flat = cache if cache.ndim == 2 else cache.view(-1, updates.shape[-1])
    call("npu_scatter_nd_update_", flat, slots.unsqueeze(-1), updates)
    return cache


def _qkv_norm_rope_cache(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """Norms, rotation, quantisation by constants and both writes in one call, which leaves FRACTAL_NZ blocks."""
    qkv, gamma_q, gamma_k, cos, sin, k_scale, v_scale, slots, *pools = inputs
    tokens, dim, heads = qkv.shape[0], gamma_q.shape[0], op.out.shape[1]
    kv_heads = (qkv.shape[1] // dim - heads) // 2
    q = qkv.new_empty((tokens, heads * dim))
    blocks = (pool.view(pool.shape[0], -1, pool.shape[1], NZ_WIDTH) for pool in pools)
    call(
        "npu_qkv_rms_norm_rope_cache", qkv, gamma_q, gamma_k, cos, sin, slots, q, *blocks,
        [tokens, 1, heads + 2 * kv_heads, dim], [heads, kv_heads, kv_heads],
        k_scale=k_scale.squeeze(1).float(), v_scale=v_scale.squeeze(1).float(), epsilon=eps_of(op), cache_mode="PA_NZ",
    )  # fmt: skip
    return q.view(tokens, heads, dim), *pools


KERNELS = {
    "kv_cache_write": Kernel(_kv_cache_write, "fused", raw=True),
    "qkv_norm_rope_cache": Kernel(_qkv_norm_rope_cache, "fused", raw=True),
}
