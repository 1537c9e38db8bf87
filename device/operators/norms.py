"""RMSNorm and its fusions, rotary embedding: computed in float32, rounded once."""

from __future__ import annotations

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.quant import quantise_rows
from device.step.step import Step
from scenarios.ops.program import Op


def rms_norm(x: torch.Tensor, gamma: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """x [..., n], gamma [n] -> (x / rms(x) * gamma in x's type, 1 / rms(x) [..., 1] in float32)."""
    wide = x.float()
    rstd = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(normed sum, 1 / rms [rows, 1], sum): the sum is rounded before it is normed, as its reader sees it."""
    total = x + residual
    y, rstd = rms_norm(total, gamma, eps)
    return y, rstd, total


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [tokens, heads, dim], cos and sin [tokens, dim]: x cos + rotate_half(x) sin, halves as Hugging Face pairs
    them."""
    wide = x.float()
    lower, upper = wide.chunk(2, -1)
    rotary = torch.cat((-upper, lower), -1)
    return (wide * cos.float().unsqueeze(1) + rotary * sin.float().unsqueeze(1)).to(x.dtype)


def eps_of(op: Op) -> float:
    """The epsilon of a norm."""
    eps = op.attr("eps")
    assert isinstance(eps, float)
    return eps


def _rms_norm(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return rms_norm(inputs[0], inputs[1], eps_of(op))


def _add_rms_norm(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return add_rms_norm(inputs[0], inputs[1], inputs[2], eps_of(op))


def add_rms_norm_dynamic_quant(
    x: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(INT8 rows of the normed sum, sum, one float32 scale per row)."""
    y, _, total = add_rms_norm(x, residual, gamma, eps)
    quantised, scale = quantise_rows(y)
    return quantised, total, scale


def _add_rms_norm_dynamic_quant(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return add_rms_norm_dynamic_quant(inputs[0], inputs[1], inputs[2], eps_of(op))


def _rope(_: Op, inputs: Inputs, __: Step) -> Outputs:
    q, k, cos, sin = inputs
    return rotate(q, cos, sin), rotate(k, cos, sin)


def reduce_mean(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (inputs[0].mean(-1, keepdim=True),)


def _layer_norm(op: Op, inputs: Inputs, _: Step) -> Outputs:
    x, gamma, *beta = inputs
    if gamma.ndim > 1:  # each head has weights of its own
        normed = torch.nn.functional.layer_norm(x.float(), (x.shape[-1],), eps=eps_of(op))
        return ((normed * gamma.float()).to(x.dtype),)
    weights = (part.float() for part in (gamma, *beta))
    return (torch.nn.functional.layer_norm(x.float(), (x.shape[-1],), *weights, eps=eps_of(op)).to(x.dtype),)


KERNELS = {
    "layer_norm": Kernel(_layer_norm),
    "rms_norm": Kernel(_rms_norm, "composed"),
    "add_rms_norm": Kernel(_add_rms_norm, "composed"),
    "add_rms_norm_dynamic_quant": Kernel(_add_rms_norm_dynamic_quant, "composed"),
    "rope": Kernel(_rope, "composed"),
    "reduce_mean": Kernel(reduce_mean),
}
