"""Elementwise calls, copies and look-ups."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.rotary import angle_scale
from device.step.step import Step
from scenarios.ops.program import Op


def stretched(op: Op, inputs: Inputs) -> list[torch.Tensor]:
    """The operands with dimensions added so that torch stretches the smaller one as the Program means it.

    An activation of fewer dimensions has its leading ones in common with the output (positions over frequencies, the
    angles of a token over its heads); a weight or table has its last ones in common, as torch takes it.
    """
    rank = len(op.out.shape)
    out = []
    for x, tensor in zip(inputs, op.inputs, strict=True):
        if tensor.role == "activation" and x.ndim < rank:
            x = x.view(*x.shape, *[1] * (rank - 1)) if x.ndim == 1 else x.unsqueeze(1)
        out.append(x)
    return out


def add(op: Op, inputs: Inputs, _: Step) -> Outputs:
    a, b = stretched(op, inputs)
    return (torch.add(a, b, alpha=op.attr("alpha", 1)),)


def mul(op: Op, inputs: Inputs, _: Step) -> Outputs:
    a, b = stretched(op, inputs)
    return (a * b,)


def div(op: Op, inputs: Inputs, _: Step) -> Outputs:
    a, b = stretched(op, inputs)
    return (a / b,)


def scalar(op: Op) -> float:
    """The scalar operand of an op."""
    value = op.attr("value")
    assert isinstance(value, int | float)
    return value


def adds(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return (inputs[0] + scalar(op),)


def muls(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return (inputs[0] * scalar(op),)


def power(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return (inputs[0].pow(op.attr("exponent")),)


def neg(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (-inputs[0],)


def rsqrt(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (torch.rsqrt(inputs[0]),)


def silu(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (F.silu(inputs[0]),)


def gelu(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (F.gelu(inputs[0], approximate="tanh"),)


def tanh(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (torch.tanh(inputs[0]),)


def softplus(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (F.softplus(inputs[0]),)


def sqrt(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (torch.sqrt(inputs[0]),)


def relu(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (torch.relu(inputs[0]),)


def expm1(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (torch.expm1(inputs[0]),)


def where(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """The second where the first is above zero, else the third."""
    x, above, below = inputs
    return (torch.where(x > 0, above, below),)


def clamp(op: Op, inputs: Inputs, _: Step) -> Outputs:
    limits = {name: float(value) for name, value in op.attrs if name in ("min", "max")}  # type: ignore[arg-type]
    return (inputs[0].clamp(**limits),)


def cos(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (_grown(torch.cos(inputs[0]), op, step),)


def sin(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (_grown(torch.sin(inputs[0]), op, step),)


def _grown(x: torch.Tensor, op: Op, step: Step) -> torch.Tensor:
    """Of rotary angles, which alone have cosines and sines in a Program."""
    which = op.out.name.partition("32")[2]
    scale = angle_scale(step.model.turns[which]) if step.model else 1.0
    return x if scale == 1.0 else x * scale


def cast(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (inputs[0].to(step.dtypes[op.out.dtype]),)


def concat(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (torch.cat(tuple(inputs), -1),)


def cut(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """A copy of part of the last dimension, from attr start on."""
    start = op.attr("start")
    assert isinstance(start, int)
    x = inputs[0] if inputs[0].ndim == len(op.out.shape) else inputs[0].reshape(*op.out.shape[:-1], -1)
    return (x.narrow(-1, start, op.out.shape[-1]).contiguous(),)


def split(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """Copies of the parts that lie side by side in the last dimension."""
    x = inputs[0].reshape(*op.out.shape[:-1], -1)
    return tuple(part.contiguous() for part in x.split([t.shape[-1] for t in op.outputs], -1))


def embedding(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Rows of the table; with a split vocabulary zeros for tokens that other ranks hold, so that the sum is whole."""
    table, ids = inputs
    if step.group is None:
        return (F.embedding(ids, table),)
    local = ids - step.vocab_start
    mine = (local >= 0) & (local < table.shape[0])
    rows = F.embedding(torch.where(mine, local, 0), table)
    return (torch.where(mine.unsqueeze(-1), rows, torch.zeros((), dtype=rows.dtype, device=rows.device)),)


def index_select(_: Op, inputs: Inputs, __: Step) -> Outputs:
    table, rows = inputs
    return (table[rows],)


def index_add(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Rows added to those of a sum that `index` names; a sum of zeros where none is given."""
    rows, index, *before = inputs
    total = before[0] if before else rows.new_zeros(op.out.shape, dtype=step.dtypes[op.out.dtype])
    return (total.index_add(0, index, rows.to(total.dtype)),)


def swiglu(packed: torch.Tensor) -> torch.Tensor:
    """[rows, 2 n] -> [rows, n]: silu of the first half times the second, in float32."""
    gate, up = packed.float().chunk(2, -1)
    return (F.silu(gate) * up).to(packed.dtype)


def _swiglu(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (swiglu(inputs[0]),)


KERNELS = {
    "add": Kernel(add), "mul": Kernel(mul), "div": Kernel(div), "adds": Kernel(adds), "muls": Kernel(muls),
    "pow": Kernel(power), "neg": Kernel(neg), "rsqrt": Kernel(rsqrt), "silu": Kernel(silu), "cos": Kernel(cos),
    "sin": Kernel(sin), "cast": Kernel(cast), "concat": Kernel(concat), "slice": Kernel(cut, raw=True),
    "split": Kernel(split, raw=True), "embedding": Kernel(embedding), "index_select": Kernel(index_select),
    "swiglu": Kernel(_swiglu, "composed"),
    "index_add": Kernel(index_add), "gelu": Kernel(gelu), "tanh": Kernel(tanh), "relu": Kernel(relu),
    "softplus": Kernel(softplus), "sqrt": Kernel(sqrt),
    "clamp": Kernel(clamp), "expm1": Kernel(expm1), "where": Kernel(where),
}  # fmt: skip
