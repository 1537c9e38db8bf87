"""Writes into the KV cache, in place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.norms import eps_of
from device.operators.npu.attention import NZ_WIDTH
from device.operators.npu.call import call
from device.operators.npu.norms import rms_norm, rotated
from device.step.step import Step
from scenarios.ops.program import Op


def _kv_cache_write(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """Keys and values together by npu_scatter_pa_kv_cache, one of them (or scales) by npu_scatter_nd_update_."""
    return _together(op, inputs, _) if writes_both(op) else _apart(op, inputs, _)


def _together(_: Op, inputs: Inputs, __: Step) -> Outputs:
    # The mode is always named: its default is blocks in FRACTAL_NZ.
    call("npu_scatter_pa_kv_cache", *_rows_and_blocks(inputs), inputs[-1], cache_mode="Norm")
    return tuple(inputs[2:4])


def writes_both(op: Op) -> bool:
    """Whether keys and values are written by one op: (keys, values, their blocks, slots)."""
    return sum(t.role == "activation" for t in op.inputs) == 2


def _by_atb(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """Keys and values together where npu_scatter_pa_kv_cache cannot be asked for plain blocks. ATB counts in int32."""
    call("_npu_reshape_and_cache", *_rows_and_blocks(inputs), inputs[-1].int())
    return tuple(inputs[2:4])


def _apart(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """One after the other: keys and values where no call takes both, or what comes alone."""
    new, caches, slots = inputs[: len(inputs) // 2], inputs[len(inputs) // 2 : -1], inputs[-1]
    return tuple(put(cache, x, slots) for cache, x in zip(caches, new, strict=True))


def _rows_and_blocks(inputs: Inputs) -> tuple[torch.Tensor, ...]:
    """New keys and values as rows [tokens, heads, dim], and the blocks that they go to."""
    new, caches, tokens = inputs[:2], inputs[2:4], inputs[-1].shape[0]
    rows = (x.reshape(tokens, *cache.shape[2:]).contiguous() for x, cache in zip(new, caches, strict=True))
    return *rows, *caches


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
        "npu_qkv_rms_norm_rope_cache",
        qkv,
        gamma_q,
        gamma_k,
        cos,
        sin,
        slots,
        q,
        *blocks,
        [tokens, 1, heads + 2 * kv_heads, dim],
        [heads, kv_heads, kv_heads],
        k_scale=k_scale.squeeze(1).float(),
        v_scale=v_scale.squeeze(1).float(),
        epsilon=eps_of(op),
        cache_mode="PA_NZ",
    )
    return q.view(tokens, heads, dim), *pools


def _in_calls(op: Op, inputs: Inputs, step: Step, write: Callable[[Op, Inputs, Step], Outputs]) -> Outputs:
    """The same over a 16-bit cache, which no call takes: norms, rotation and write, each by the call of its own; the
    blocks stay plain, which npu_fused_infer_attention_score reads."""
    qkv, gamma_q, gamma_k, cos, sin, slots, *pools = inputs
    heads = op.out.shape[1]
    by_head = qkv.view(qkv.shape[0], -1, gamma_q.shape[0])
    kv_heads = (by_head.shape[1] - heads) // 2
    q, k, v = by_head.split((heads, kv_heads, kv_heads), 1)
    q, k = (rms_norm(op, [x.contiguous(), gamma], step)[0] for x, gamma in ((q, gamma_q), (k, gamma_k)))
    q, k = rotated(q, k, cos, sin)
    return q, *write(op, [k, v, *pools, slots], step)


def writes_nz(op: Op) -> bool:
    """Whether one call writes this op's cache, in FRACTAL_NZ: INT8 alone."""
    return op.inputs[-1].dtype == "int8"


def in_calls(write: Kernel) -> Kernel:
    """Norms, rotation and the write of a 16-bit cache one after the other, with the writing kernel of a wheel."""
    return Kernel(partial(_in_calls, write=write.compute), "composed", raw=True)


#: A write of keys and values where the wheel cannot be asked for plain blocks: with ATB, and without.
BY_ATB, APART = Kernel(_by_atb, "fused", raw=True), Kernel(_apart, "composed", raw=True)
TOGETHER = Kernel(_together, "fused", raw=True)
KERNELS = {
    "kv_cache_write": Kernel(_kv_cache_write, "fused", raw=True),
    "qkv_norm_rope_cache": Kernel(_qkv_norm_rope_cache, "fused", raw=True),
}
