"""Products with weights and between activations, summed in float32."""

from __future__ import annotations

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.quant import split
from device.step import Step
from scenarios.program import Op


def _matmul(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """x [.., k] x weight [n, k] (+ bias): float32 throughout, rounded once."""
    x, w, *bias = inputs
    y = x.float() @ w.float().T
    return split(op, (y + bias[0].float() if bias else y).to(x.dtype))


KERNELS = {"matmul": Kernel(_matmul)}
