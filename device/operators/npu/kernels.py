"""All kernels of an NPU: by name where latent attention means an op in its own way, else by kind."""

from __future__ import annotations

from collections.abc import Callable

from device.operators.kernel import Kernel
from device.operators.npu import attention, exchange, experts, kv, latent, norms, prefetch, quant
from device.operators.npu.versions import GATHER, PLAIN_BLOCKS, V2_IN_CAPTURE, has
from device.operators.reference import REFERENCE, special
from scenarios.ops.program import Op

KERNELS: dict[str, Kernel] = {
    **norms.KERNELS, **attention.KERNELS, **kv.KERNELS, **quant.KERNELS, **prefetch.KERNELS, **experts.KERNELS,
    **exchange.KERNELS, **latent.KERNELS,
}  # fmt: skip

#: Kinds that are computed in one of two ways, by what the op says.
_VARIANTS: dict[str, Callable[[Op], Kernel]] = {
    "transpose_batch_matmul": latent.turned_back,
    "moe_gating_top_k": experts.gating,
    "moe_init_routing": experts.permuting,
    "moe_finalize_routing": experts.permuting,
}


def kernel_of(op: Op, torch_npu: str, atb: bool) -> Kernel | None:
    """How torch_npu computes `op`; None where that is left to the plain operators. torch_npu: the installed version.
    atb: whether its calls of ATB are there."""
    if result := special(op):
        return latent.NAMED.get(op.name, result)
    choose = _OLDER.get(op.kind)
    if choose and (older := choose(op, torch_npu, atb)):
        return older
    variant = _VARIANTS.get(op.kind)
    return variant(op) if variant else KERNELS.get(op.kind)


def _cache_write(op: Op, torch_npu: str, atb: bool) -> Kernel | None:
    writer = _writer(torch_npu, atb)
    return None if writer is kv.TOGETHER or not kv.writes_both(op) else writer


def _fused_cache_write(op: Op, torch_npu: str, atb: bool) -> Kernel | None:
    return None if kv.writes_nz(op) else kv.in_calls(_writer(torch_npu, atb))


def _writer(torch_npu: str, atb: bool) -> Kernel:
    """What writes keys and values into plain blocks."""
    return kv.TOGETHER if has(PLAIN_BLOCKS, torch_npu) else kv.BY_ATB if atb else kv.APART


def _attention(_: Op, torch_npu: str, __: bool) -> Kernel | None:
    return None if has(V2_IN_CAPTURE, torch_npu) else attention.BY_V1


def _cache_read(op: Op, torch_npu: str, _: bool) -> Kernel | None:
    return None if has(GATHER, torch_npu) else REFERENCE[op.kind]


#: What stands for a call that does not take the op, or that an older wheel lacks, by kind; None where there is such a
#: call.
_OLDER: dict[str, Callable[[Op, str, bool], Kernel | None]] = {
    "kv_cache_write": _cache_write,
    "qkv_norm_rope_cache": _fused_cache_write,
    "attention": _attention,
    "cache_read": _cache_read,
}
