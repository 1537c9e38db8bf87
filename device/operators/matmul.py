"""Products with weights and between activations, summed in float32."""

from __future__ import annotations

from device.operators.elementwise import swiglu
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.quant import split
from device.step.step import Step
from scenarios.ops.program import Op


def matmul(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """x [.., k] x weight [n, k] (+ bias): float32 throughout, rounded once."""
    x, w, *bias = inputs
    y = x.float() @ w.float().T
    return split(op, (y + bias[0].float() if bias else y).to(x.dtype))


def _ffn(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """x [.., k] x gate and up [2 n, k], SwiGLU, x down [k, n]: rounded between the products, as the calls are that it
    stands for."""
    x, gate_up, down = inputs
    inner = swiglu((x.float() @ gate_up.float().T).to(x.dtype))
    return ((inner.float() @ down.float().T).to(x.dtype),)


KERNELS = {"matmul": Kernel(matmul), "ffn": Kernel(_ffn, "composed")}
