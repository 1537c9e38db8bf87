"""All kernels of an NPU by kind."""

from __future__ import annotations

from device.operators.kernel import Kernel
from device.operators.npu import attention, kv, norms, prefetch, quant

KERNELS: dict[str, Kernel] = {
    **norms.KERNELS, **attention.KERNELS, **kv.KERNELS, **quant.KERNELS, **prefetch.KERNELS,
}  # fmt: skip
