"""Quantised values: INT8 with a scale per row or a channel, INT4 packed two to a byte, and their products."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import COUNTS, Step
from scenarios.ops.program import Op

#: Largest magnitude; the range is symmetric.
INT8_MAX, INT4_MAX = 127, 7
#: Rows of zeros still get a scale that can be divided by.
SMALLEST_SCALE = 1e-12


def quantise_rows(x: torch.Tensor, most: int = INT8_MAX) -> tuple[torch.Tensor, torch.Tensor]:
    """x [..., n] -> (integers in int8 of magnitude at most `most`, one float32 scale per row [..., 1]); x is about
    integers * scale."""
    wide = x.float()
    scale = (wide.abs().amax(-1, keepdim=True) / most).clamp_min(SMALLEST_SCALE)
    return torch.round(wide / scale).clamp(-most, most).to(torch.int8), scale


def quantise_by(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """INT8 of `x` by constants: what lies beyond the range of its scale is cut off."""
    return torch.round(x.float() / scale.float()).clamp(-INT8_MAX, INT8_MAX).to(torch.int8)


def pack_int4(x: torch.Tensor) -> torch.Tensor:
    """int8 [..., n] of -7 to 7 -> uint8 [..., n / 2], even elements in the low half of a byte. ValueError for odd n."""
    if x.shape[-1] % 2:
        raise ValueError(f"rows of {x.shape[-1]} elements cannot be packed in pairs")
    low, high = x[..., 0::2].to(torch.int16) & 15, x[..., 1::2].to(torch.int16) & 15
    return (low | (high << 4)).to(torch.uint8)


def unpack_int4(x: torch.Tensor) -> torch.Tensor:
    """The reverse of pack_int4."""
    wide = x.to(torch.int16)
    both = torch.stack((wide & 15, wide >> 4), -1).flatten(-2)
    return torch.where(both > INT4_MAX, both - 16, both).to(torch.int8)


def integers(w: torch.Tensor) -> torch.Tensor:
    """A quantised weight as int8, whether it is held as INT8 or packed INT4."""
    return unpack_int4(w) if w.dtype == torch.uint8 else w


def exact_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """int8 [m, k] x int8 [n, k] -> [m, n], exact (float64 holds every sum of products up to k = 2^38)."""
    return x.double() @ w.double().T


def scaled(product: torch.Tensor, scale: torch.Tensor, row_scale: torch.Tensor, bias: Inputs) -> torch.Tensor:
    """An integer product times its scales, plus bias, in float32."""
    y = product.float() * row_scale.reshape(-1, 1) * scale
    return y + bias[0].float() if bias else y


def dequant_swiglu_quant(
    sums: torch.Tensor, scale: torch.Tensor, row_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Integer sums [rows, 2 n], scales [2 n] or [rows, 2 n] of the weight and [rows] of the rows -> (INT8 rows of the
    gated values, one float32 scale per row)."""
    gate, up = scaled(sums, scale, row_scale, ()).chunk(2, -1)
    return quantise_rows(F.silu(gate) * up)


def scale_by_row(scale: torch.Tensor, step: Step) -> torch.Tensor:
    """Scales [experts, n] -> those of each row's expert [rows, n]; scales [n] as they are."""
    return scale if scale.ndim == 1 else scale.repeat_interleave(step.values[COUNTS], 0)


def _dequant_swiglu_quant(op: Op, inputs: Inputs, step: Step) -> Outputs:
    sums, scale, row_scale = inputs
    return by_row(op, *dequant_swiglu_quant(sums, scale_by_row(scale, step), row_scale))


def _quant_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Bare sums where they are scaled elsewhere."""
    x, w, scale, *rest = inputs
    if not rest:
        return (exact_product(x, integers(w)).to(torch.int32),)
    row_scale, *bias = rest
    y = scaled(exact_product(x, integers(w)), scale, row_scale, bias)
    return split(op, y.to(step.dtypes[op.out.dtype]))


def _weight_quant_matmul(op: Op, inputs: Inputs, _: Step) -> Outputs:
    x, w, scale, *bias = inputs
    y = x.float() @ (integers(w).float() * scale.unsqueeze(-1)).T
    return split(op, (y + bias[0].float() if bias else y).to(x.dtype))


def split(op: Op, y: torch.Tensor) -> Outputs:
    """The outputs of a product; where it has several they are views side by side in the last dimension."""
    if len(op.outputs) == 1:
        return (y,)
    return tuple(y.split([t.shape[-1] for t in op.outputs], -1))


def by_row(op: Op, quantised: torch.Tensor, scale: torch.Tensor) -> Outputs:
    """Quantised rows and their scales in the shapes of `op`, but for the rows: those that follow a router are as many
    as it has chosen."""
    values, scales = op.outputs
    return quantised.reshape(-1, *values.shape[1:]), scale.reshape(-1, *scales.shape[1:])


def _dynamic_quant(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return by_row(op, *quantise_rows(inputs[0]))


def _static_quant(_: Op, inputs: Inputs, __: Step) -> Outputs:
    x, scale = inputs
    return (quantise_by(x, scale.squeeze(1)),)


KERNELS = {
    "dynamic_quant": Kernel(_dynamic_quant, "composed"),
    "static_quant": Kernel(_static_quant, "composed"),
    "quant_matmul": Kernel(_quant_matmul, "composed"),
    "dequant_swiglu_quant": Kernel(_dequant_swiglu_quant, "composed"),
    "weight_quant_matmul": Kernel(_weight_quant_matmul, "composed"),
}
