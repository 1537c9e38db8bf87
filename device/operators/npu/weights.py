"""Weights as torch_npu's products read them; made once, when a Program is bound.

Quantised weights, those of experts and of npu_ffn are read as [.., inputs, outputs]; the Program keeps [.., outputs,
inputs]. INT4 goes eight to an int32. FRACTAL_NZ is format 29 of npu_format_cast. Scales have the type that their call
wants; those of INT4 weights next to INT8 rows carry what the call adds for the shift of its half bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from device.operators.npu.quant import with_offset
from device.operators.npu.rules import INT4_GROUP
from device.operators.quant import unpack_int4
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Op, Tensor

#: Gives another weight of the same op.
OtherWeights = Callable[[Tensor], torch.Tensor]

FRACTAL_NZ = 29
_INTEGERS = ("int8", "int4")


class LaidOut:
    """What has been laid out already, by the weight it was made of."""

    def __init__(self) -> None:
        self._made: dict[str, WeakTensorKeyDictionary] = {}

    def get(self, op: Op, tensor: Tensor, value: torch.Tensor, act: torch.dtype, others: OtherWeights) -> torch.Tensor:
        """`value`, the weight `tensor` of `op`, as the call of `op` reads it. act: the type of its activations. others:
        gives the other weights of `op`, as the Program keeps them."""
        how = how_of(op, tensor, act)
        if not how:
            return value
        result = self._made.setdefault(how, WeakTensorKeyDictionary())
        if value not in result:
            result[value] = (
                _int4_scale(value, others(op.inputs[1])) if how == "int4 scale" else _laid_out(how, value, act)
            )
        outcome: torch.Tensor = result[value]
        return outcome


def how_of(op: Op, tensor: Tensor, act: torch.dtype) -> str:
    """In words what becomes of the weight `tensor` of `op`; empty where it stays as it is."""
    part = tensor.name.rpartition(".")[2]
    kind = kind_of(op)
    if kind.family == "matmul" and part in ("scale", "bias"):
        return _of_scale(op, part, act)
    if op.kind == "moe_gating_top_k":
        return "as activations"
    whole = "whole " if kind.switch == "fusion.ffn" else ""
    transposed = "turned " if tensor.dtype in _INTEGERS or kind.routed or whole else ""
    many = "experts " if kind.routed else ""
    packed = "int4 " if tensor.dtype == "int4" else ""
    return f"{transposed}{many}{packed}{whole}{'nz' if tensor.format == 'nz' else ''}".strip()


def _of_scale(op: Op, part: str, act: torch.dtype) -> str:
    kind, int8_rows = kind_of(op), op.inputs[0].dtype == "int8"
    if part == "bias":
        unpacked = kind.dense and not int8_rows and op.inputs[1].dtype in _INTEGERS
        return "float32" if unpacked and act == torch.bfloat16 else ""
    if int8_rows and kind.dense and op.inputs[1].dtype == "int4":
        return "int4 scale"
    if int8_rows and kind.routed:
        return "as activations" if act == torch.bfloat16 else ""
    return "" if int8_rows else "as activations"


def _laid_out(how: str, value: torch.Tensor, act: torch.dtype) -> torch.Tensor:
    if how == "as activations":
        return value.to(act)
    if how == "float32":
        return value.float()
    words = how.split()
    if "int4" in words:
        value = _packed(value, "experts" in words)
    elif "turned" in words:
        value = value.mT.contiguous() if "nz" in words or "whole" in words else value.mT
    return torch.ops.npu.npu_format_cast(value, FRACTAL_NZ) if "nz" in words else value


def _packed(value: torch.Tensor, of_experts: bool) -> torch.Tensor:
    """INT4 of the Program's packing [.., n, k / 2] -> [.., k, n / 8] in int32. The call that packs takes two
    dimensions; three go through npu_quantize, as npu_grouped_matmul's documentation has it."""
    wide = unpack_int4(value).mT.contiguous()
    one = torch.ones(1, dtype=torch.float32, device=value.device)
    packed: torch.Tensor = (
        torch.ops.npu.npu_quantize(wide.float(), one, None, torch.quint4x2, -1, False)
        if of_experts
        else torch.ops.npu.npu_convert_weight_to_int4pack(wide.to(torch.int32))
    )
    return packed


def _int4_scale(scale: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Scales [n] -> [k / 256, n] in the call's own type, with the offset that belongs to them next to them.

    The call multiplies half bytes: x = 16 high + (low - 8), so it misses 8 x the sum of each column, which its offset
    adds.
    """
    integers = unpack_int4(weight)
    groups = integers.shape[-1] // INT4_GROUP
    many = scale.float().repeat(groups)
    view = torch.ops.npu.npu_trans_quant_param(many).view(groups, -1)
    return with_offset(view, 8 * integers.sum(-1).float() * scale.float())
