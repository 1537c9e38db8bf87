"""What ranks exchange: those that share a layer, those in the same place of each replica, neighbours in a pipeline."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.matmul import matmul
from device.step.step import Group, Step
from scenarios.ops.program import Op


def _group(op: Op, step: Step) -> Group:
    group = step.groups.replicas if op.attr("stride", False) else step.group
    if group is None or group.ranks != op.attr("ranks"):
        raise ValueError(f"{op.name} wants {op.attr('ranks')} ranks, there are {group.ranks if group else 1}")
    return group


def _all_reduce(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (_group(op, step).all_reduce(inputs[0]),)


def _all_gather(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Shares of the tokens come to lie below, shares of the vocabulary next to each other."""
    gathered = _group(op, step).all_gather(inputs[0].contiguous())
    if op.out.shape[0] == op.inputs[0].shape[0]:
        return (torch.cat(gathered.unbind(0), -1),)
    return (gathered.flatten(0, 1),)


def _reduce_scatter(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (_group(op, step).reduce_scatter(inputs[0].contiguous()),)


def _matmul_all_reduce(op: Op, inputs: Inputs, step: Step) -> Outputs:
    (product,) = matmul(op, inputs, step)
    return (_group(op, step).all_reduce(product),)


def _send_recv(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """One tensor between neighbouring stages, from each rank its share of the columns to the one in its place."""
    line, place = step.groups.line, step.group.rank if step.group else 0
    sender, stride = op.attr("first"), op.attr("stride")
    if line is None or not isinstance(sender, int) or not isinstance(stride, int):
        raise ValueError(f"{op.name} wants pipeline stages, and this rank is alone")
    if not inputs:
        like = step.values["lengths"]
        empty = torch.empty(op.out.shape, dtype=step.dtypes[op.out.dtype], device=like.device)
        return (line.receive(empty, sender + place),)
    x, columns = inputs[0], op.inputs[0].shape[-1]
    if x.shape[-1] != columns:
        x = x[:, place * columns : (place + 1) * columns]
        x = F.pad(x, (0, columns - x.shape[-1]))
    line.send(x, sender + stride + place)
    return ()


KERNELS = {
    "send_recv": Kernel(_send_recv, raw=True),
    "matmul_all_reduce": Kernel(_matmul_all_reduce, "composed"),
    "all_reduce": Kernel(_all_reduce),
    "all_gather": Kernel(_all_gather),
    "reduce_scatter": Kernel(_reduce_scatter),
}
