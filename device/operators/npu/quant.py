"""Products and quantisation. Weights come as `device/operators/npu/weights.py` lays them out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.npu.call import call
from device.operators.npu.rules import INT4_GROUP
from device.operators.quant import split
from device.step.step import COUNTS, Step
from scenarios.ops.program import Op


def _linear(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return split(op, F.linear(*inputs))


def _dynamic_quant(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """The rows are as many as they are: of experts the router says how many."""
    quantised, scale = call("npu_dynamic_quant", inputs[0])
    return quantised.reshape(-1, *op.outputs[0].shape[1:]), scale.reshape(-1, *op.outputs[1].shape[1:])


def _static_quant(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """By constants of the channels [heads, 1, dim], which lie one after the other in a token."""
    x, scale = inputs
    flat = x.reshape(-1, scale.numel())
    # A division by scales in float16 is not offered: they go in float32 then.
    divisors = scale.reshape(-1) if scale.dtype == torch.bfloat16 else scale.reshape(-1).float()
    quantised = call("npu_quantize", flat, divisors, None, torch.qint8, -1, True)
    return (quantised.reshape(op.out.shape),)


def _quant_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """INT8 rows x INT8 or INT4 weight [k, n], both scales applied by the call."""
    x, w, scale, *rest = inputs
    if not rest:  # bare sums, which are scaled elsewhere; the scale is asked for and not applied
        return (call("npu_quant_matmul", x, w, scale, output_dtype=torch.int32),)
    row_scale, *bias = rest
    if w.dtype == torch.int32:
        return split(op, _int4_matmul(x, w, scale, row_scale, bias, step.dtypes[op.out.dtype]))
    y = call(
        "npu_quant_matmul",
        x,
        w,
        scale,
        pertoken_scale=row_scale.reshape(-1),
        bias=bias[0] if bias else None,
        output_dtype=step.dtypes[op.out.dtype],
    )
    return split(op, y)


def _int4_matmul(
    x: torch.Tensor, w: torch.Tensor, scale: Any, row_scale: torch.Tensor, bias: Inputs, dtype: torch.dtype
) -> torch.Tensor:
    y: torch.Tensor = call(
        "npu_quant_matmul",
        x,
        w,
        scale,
        offset=scale.offset,
        pertoken_scale=row_scale.reshape(-1, 1),
        bias=bias[0] if bias else None,
        output_dtype=dtype,
        group_sizes=[0, 0, INT4_GROUP],
    )
    return y


def with_offset(scale: Any, offset: torch.Tensor) -> torch.Tensor:
    """`scale` with the offset of its product, which travels with it: an operand is one tensor."""
    scale.offset = offset
    tensor: torch.Tensor = scale
    return tensor


def _dequant_swiglu_quant(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Scales of the weight [n], or [experts, n] with the rows of each expert; the gate lies left."""
    sums, scale, row_scale = inputs
    groups = {} if scale.ndim == 1 else {"group_index": step.values[COUNTS]}
    quantised, result = call(
        "npu_dequant_swiglu_quant",
        sums,
        weight_scale=scale.view(-1, scale.shape[-1]),
        activation_scale=row_scale.reshape(-1),
        activate_left=True,
        quant_mode=1,
        **groups,
    )
    return quantised, result.reshape(-1, *op.outputs[1].shape[1:])


def _ffn(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """Both products and SwiGLU between them; the high-performance form, which is the only one with a gate."""
    x, gate_up, down = inputs
    return (call("npu_ffn", x, gate_up, down, "swiglu", inner_precise=1),)


def _weight_quant_matmul(op: Op, inputs: Inputs, _: Step) -> Outputs:
    x, w, scale, *bias = inputs
    return split(op, call("npu_weight_quant_batchmatmul", x, w, scale, bias=bias[0] if bias else None))


def _matmul_all_reduce(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """A row-parallel product and the sum over the ranks in one call; the three kinds of product tell by their
    inputs."""
    assert step.group is not None
    x, w, *rest = inputs
    group = step.group.name()
    if x.dtype == torch.int8:
        scale, row_scale = rest
        y = call("npu_mm_all_reduce_base", x, w, group, dequant_scale=scale, pertoken_scale=row_scale.reshape(-1))
    elif w.dtype == torch.int8:
        y = call("npu_mm_all_reduce_base", x, w, group, antiquant_scale=rest[0])
    else:
        y = call("npu_mm_all_reduce_base", x, w.t(), group, bias=rest[0] if rest else None)
    return split(op, y)


KERNELS = {
    "matmul": Kernel(_linear),
    "dynamic_quant": Kernel(_dynamic_quant, "fused"),
    "static_quant": Kernel(_static_quant, "fused"),
    "quant_matmul": Kernel(_quant_matmul, "fused"),
    "weight_quant_matmul": Kernel(_weight_quant_matmul, "fused"),
    "matmul_all_reduce": Kernel(_matmul_all_reduce, "fused"),
    "ffn": Kernel(_ffn, "fused"),
    "dequant_swiglu_quant": Kernel(_dequant_swiglu_quant, "fused"),
}
