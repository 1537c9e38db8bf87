"""The fusions that torch has no kernel for: torch.compile makes one of each, by C++ on a CPU and Triton on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from device.operators import elementwise, kv, norms, quant
from device.operators.experts import follows_router
from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import Step
from scenarios.ops.program import Op

#: Shapes that one function may be compiled for; torch's own limit of 8 is for programs that should not have more.
MAX_SHAPES = 256


def compiled(function: Callable[..., Any], dynamic: bool = False) -> Callable[..., Any]:
    """`function` as one kernel, made at its first call for each shape (dynamic: one for any number of rows); plain
    inside what is being compiled anyway."""
    return function if torch.compiler.is_compiling() else _compiled(function, dynamic)


@cache
def _compiled(function: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
    torch._dynamo.config.recompile_limit = MAX_SHAPES
    result: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=dynamic)
    return result


def _swiglu(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return (compiled(elementwise.swiglu, follows_router(op.inputs[0]))(inputs[0]),)


def _dequant_swiglu_quant(op: Op, inputs: Inputs, step: Step) -> Outputs:
    sums, scale, row_scale = inputs
    fused = compiled(quant.dequant_swiglu_quant, follows_router(op.inputs[0]))
    return quant.by_row(op, *fused(sums, quant.scale_by_row(scale, step), row_scale))


def _rotate_both(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return norms.rotate(q, cos, sin), norms.rotate(k, cos, sin)


def _rope(_: Op, inputs: Inputs, __: Step) -> Outputs:
    outputs: Outputs = compiled(_rotate_both)(*inputs)
    return outputs


def _normed(function: Callable[..., Outputs], op: Op, inputs: Inputs, _: Step) -> Outputs:
    outputs: Outputs = compiled(function)(*inputs, norms.eps_of(op))
    return outputs


def _qkv_norm_rope_cache(op: Op, inputs: Inputs, _: Step) -> Outputs:
    outputs: Outputs = compiled(kv.norm_rope_cache)(list(inputs), op.out.shape[1], norms.eps_of(op))
    return outputs


KERNELS: dict[str, Kernel] = {
    "add_rms_norm": Kernel(partial(_normed, norms.add_rms_norm), "compiled"),
    "add_rms_norm_dynamic_quant": Kernel(partial(_normed, norms.add_rms_norm_dynamic_quant), "compiled"),
    "rope": Kernel(_rope, "compiled"),
    "swiglu": Kernel(_swiglu, "compiled"),
    "dequant_swiglu_quant": Kernel(_dequant_swiglu_quant, "compiled"),
    "qkv_norm_rope_cache": Kernel(_qkv_norm_rope_cache, "compiled", raw=True),
}
