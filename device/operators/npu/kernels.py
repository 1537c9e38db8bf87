"""All kernels of an NPU: by name where latent attention means an op in its own way, else by kind."""

from __future__ import annotations

from device.operators.kernel import Kernel
from device.operators.npu import attention, experts, kv, latent, norms, prefetch, quant
from device.operators.npu.versions import GATHER, PLAIN_BLOCKS, V2_IN_CAPTURE, has
from device.operators.reference import REFERENCE, special
from scenarios.ops.program import Op

KERNELS: dict[str, Kernel] = {
    **norms.KERNELS, **attention.KERNELS, **kv.KERNELS, **quant.KERNELS, **prefetch.KERNELS, **experts.KERNELS,
    **latent.KERNELS,
}  # fmt: skip


def kernel_of(op: Op, torch_npu: str, atb: bool) -> Kernel | None:
    """How torch_npu computes `op`; None where that is left to the plain operators. torch_npu: the installed version.
    atb: whether its calls of ATB are there."""
    if found := special(op):
        return latent.NAMED.get(op.name, found)
    if op.kind == "transpose_batch_matmul":
        return latent.turned_back(op)
    if op.kind == "moe_gating_top_k" and len(op.inputs) == 1:  # no bias: the scores are a softmax's
        return experts.GATING_AND_DIVISION
    return _of_an_older_wheel(op, torch_npu, atb) or KERNELS.get(op.kind)


def _of_an_older_wheel(op: Op, torch_npu: str, atb: bool) -> Kernel | None:
    """What stands for a call that the installed wheel lacks, None where it lacks none of `op`."""
    if op.kind == "kv_cache_write" and kv.writes_both(op) and not has(PLAIN_BLOCKS, torch_npu):
        return kv.BY_ATB if atb else kv.APART
    if op.kind == "attention" and not has(V2_IN_CAPTURE, torch_npu):
        return attention.BY_V1
    if op.kind == "cache_read" and not has(GATHER, torch_npu):
        return REFERENCE[op.kind]
    return None
