"""Norms, rotary embedding and SwiGLU: one torch_npu call each."""

from __future__ import annotations

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.norms import eps_of
from device.operators.npu.call import call
from device.step.step import Step
from scenarios.ops.program import Op


def rms_norm(op: Op, inputs: Inputs, _: Step) -> Outputs:
    x, gamma = inputs
    y, rstd = call("npu_rms_norm", x, gamma, epsilon=eps_of(op))
    return y, rstd


def _add_rms_norm(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """(normed sum, 1 / rms, sum): the third output is the new residual."""
    x, residual, gamma = inputs
    y, rstd, total = call("npu_add_rms_norm", x, residual, gamma, epsilon=eps_of(op))
    return y, rstd, total


def _add_rms_norm_dynamic_quant(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """(INT8 rows of the normed sum, sum, one scale per row); the call's second quantised output is masked out."""
    x, residual, gamma = inputs
    y, _, total, scale, _ = call(
        "npu_add_rms_norm_dynamic_quant", x, residual, gamma, epsilon=eps_of(op), output_mask=[True, False]
    )
    return y, total, scale


def _swiglu(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (call("npu_swiglu", inputs[0], dim=-1),)


def _rope(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """Rotates query and key in place. The layout is always named: its default is not the same in all versions."""
    return rotated(*inputs)


def rotated(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Query and key [tokens, heads, dim], rotated in place; cos, sin: [tokens, dim]."""
    q, k = q.contiguous(), k.contiguous()
    q, k = call("npu_apply_rotary_pos_emb", q, k, cos.unsqueeze(1), sin.unsqueeze(1), layout="TND", rotary_mode="half")
    return q, k


KERNELS = {
    "rms_norm": Kernel(rms_norm, "fused"),
    "add_rms_norm": Kernel(_add_rms_norm, "fused"),
    "add_rms_norm_dynamic_quant": Kernel(_add_rms_norm_dynamic_quant, "fused"),
    "swiglu": Kernel(_swiglu, "fused"),
    "rope": Kernel(_rope, "fused"),
}
