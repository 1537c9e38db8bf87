"""A residual of several streams in plain torch: what a layer reads of it, what it writes, and the sum behind all."""

from __future__ import annotations

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import Step
from scenarios.ops.counting import whole_number
from scenarios.ops.program import Op


def _number(op: Op, name: str) -> float:
    value = op.attr(name)
    assert isinstance(value, float)
    return value


def balanced(matrix: torch.Tensor, rounds: int, eps: float) -> torch.Tensor:
    """[rows, n, n] of positive numbers, its columns and rows divided by their sums in turn, columns first and last."""
    matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    for _ in range(rounds - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    return matrix


def _read(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """(what the layer reads, gains of what it gives, the matrix that mixes the streams) of [rows, streams x hidden]."""
    streams, projection, base, factors = inputs
    count, eps = op.outputs[1].shape[-1], _number(op, "eps")
    flat = streams.float()
    flat = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + _number(op, "norm_eps"))
    each = (flat @ projection.float().T).split((count, count, count * count), -1)
    bases = base.float().split((count, count, count * count))
    reads, gains, mixes = (x * factor + b for x, b, factor in zip(each, bases, factors.float(), strict=True))
    weights = torch.sigmoid(reads) + eps
    matrix = balanced(mixes.unflatten(-1, (count, count)).softmax(-1) + eps, whole_number(op, "iterations"), eps)
    by_stream = streams.unflatten(-1, (count, -1))
    summed = (weights.unsqueeze(-1) * by_stream.float()).sum(1)
    return summed.to(streams.dtype), 2 * torch.sigmoid(gains), matrix.flatten(1)


def _write(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """Each stream: the sum over all of mix[from, to] x stream, and the gain times what the layer gave."""
    given, streams, gains, mix = inputs
    count = op.inputs[2].shape[-1]
    by_stream = streams.unflatten(-1, (count, -1)).float()
    mixed = mix.unflatten(-1, (count, count)).transpose(1, 2) @ by_stream
    return ((gains.unsqueeze(-1) * given.float().unsqueeze(1) + mixed).flatten(1).to(streams.dtype),)


def _repeat(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return (inputs[0].repeat(1, op.out.shape[-1] // op.inputs[0].shape[-1]),)


def _sum(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (inputs[0].sum(1),)


def _weigh(_: Op, inputs: Inputs, __: Step) -> Outputs:
    streams, weights = inputs
    return (streams * weights,)


KERNELS = {"hc_pre": Kernel(_read, "composed"), "hc_post": Kernel(_write, "composed")}
#: Ops of a general kind that streams mean in their own way, by name.
NAMED = {
    "repeat_streams": Kernel(_repeat),
    "hc_head.weigh": Kernel(_weigh),
    "hc_head.sum": Kernel(_sum),
}
