"""All kernels of an NPU: by name where latent attention means an op in its own way, else by kind."""

from __future__ import annotations

from device.operators.kernel import Kernel
from device.operators.npu import attention, experts, kv, latent, norms, prefetch, quant
from device.operators.reference import special
from scenarios.ops.program import Op

KERNELS: dict[str, Kernel] = {
    **norms.KERNELS, **attention.KERNELS, **kv.KERNELS, **quant.KERNELS, **prefetch.KERNELS, **experts.KERNELS,
    **latent.KERNELS,
}  # fmt: skip


def kernel_of(op: Op) -> Kernel | None:
    """How torch_npu computes `op`; None where that is left to the plain operators."""
    if found := special(op):
        return latent.NAMED.get(op.name, found)
    if op.kind == "transpose_batch_matmul":
        return latent.turned_back(op)
    if op.kind == "moe_gating_top_k" and len(op.inputs) == 1:  # no bias: the scores are a softmax's
        return experts.GATING_AND_DIVISION
    return KERNELS.get(op.kind)
