"""Weights into L2 ahead of their product."""

from __future__ import annotations

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.npu.call import call
from device.step.step import Step
from scenarios.ops.program import Op


def _prefetch(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """The weight as it lies, or its first `bytes`; nothing has to end before (the Program's events see to that)."""
    weight = inputs[0]
    call("npu_prefetch", weight, None, op.attr("bytes", weight.numel() * weight.element_size()))
    return ()


KERNELS = {"prefetch": Kernel(_prefetch, "fused", raw=True)}
