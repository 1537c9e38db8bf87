"""Writes into the KV cache, in place."""

from __future__ import annotations

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.npu.call import call
from device.step import Step
from scenarios.program import Op


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


KERNELS = {"kv_cache_write": Kernel(_kv_cache_write, "fused", raw=True)}
