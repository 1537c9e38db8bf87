"""Weights as torch_npu's products read them; made once, when a Program is bound.

INT8 and INT4 weights are read as [inputs, outputs]; the Program keeps [outputs, inputs]. INT4 goes eight to an int32.
FRACTAL_NZ is format 29 of npu_format_cast. The scale of a weight whose activations stay in 16 bits has their type.
"""

from __future__ import annotations

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from device.operators.quant import unpack_int4
from scenarios.program import DTYPE_BITS, Op, Tensor

FRACTAL_NZ = 29
#: The products whose weights and scales are laid out anew.
QUANTISED = ("quant_matmul", "weight_quant_matmul", "matmul_all_reduce")


class LaidOut:
    """What has been laid out already, by the weight it was made of."""

    def __init__(self) -> None:
        self._made: dict[str, WeakTensorKeyDictionary] = {}

    def get(self, op: Op, tensor: Tensor, value: torch.Tensor, act: torch.dtype) -> torch.Tensor:
        """`value`, the weight `tensor` of `op`, as the call of `op` reads it. act: the type of its activations."""
        how = self._how(op, tensor, act)
        if not how:
            return value
        made = self._made.setdefault(how, WeakTensorKeyDictionary())
        if value not in made:
            made[value] = _laid_out(how, value, act)
        found: torch.Tensor = made[value]
        return found

    def _how(self, op: Op, tensor: Tensor, act: torch.dtype) -> str:
        if op.kind in QUANTISED and tensor.name.endswith((".scale", ".bias")):
            wide_rows = op.inputs[0].dtype == "int8"
            if tensor.name.endswith(".scale"):
                return "" if wide_rows else f"scale {act}"
            return "bias float32" if act == torch.bfloat16 and op.kind == "weight_quant_matmul" else ""
        bits = DTYPE_BITS[tensor.dtype]
        width = {8: "int8", 4: "int4"}.get(bits, "")
        return f"{width} {tensor.format}" if width or tensor.format == "nz" else ""


def _laid_out(how: str, value: torch.Tensor, act: torch.dtype) -> torch.Tensor:
    if how.startswith("scale"):
        return value.to(act)
    if how.startswith("bias"):
        return value.float()
    if how.startswith("int8"):
        value = value.t().contiguous() if how.endswith("nz") else value.t()
    if how.startswith("int4"):
        wide = unpack_int4(value).t().contiguous().to(torch.int32)
        value = torch.ops.npu.npu_convert_weight_to_int4pack(wide)
    return torch.ops.npu.npu_format_cast(value, FRACTAL_NZ) if how.endswith("nz") else value
