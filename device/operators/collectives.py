"""What ranks exchange: those that share a layer, those in the same place of each replica, all that share experts."""

from __future__ import annotations

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.matmul import matmul
from device.step import Group, Step
from scenarios.program import Op


def _group(op: Op, step: Step) -> Group:
    group = step.groups.replicas if op.attr("stride", False) else step.group
    if group is None or group.ranks != op.attr("ranks"):
        raise ValueError(f"{op.name} wants {op.attr('ranks')} ranks, there are {group.ranks if group else 1}")
    return group


def _all_reduce(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (_group(op, step).all_reduce(inputs[0]),)


def _all_gather(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Shares of the tokens come to lie below, shares of the vocabulary beside each other."""
    gathered = _group(op, step).all_gather(inputs[0].contiguous())
    if op.out.shape[0] == op.inputs[0].shape[0]:
        return (torch.cat(gathered.unbind(0), -1),)
    return (gathered.flatten(0, 1),)


def _reduce_scatter(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (_group(op, step).reduce_scatter(inputs[0].contiguous()),)


def _matmul_all_reduce(op: Op, inputs: Inputs, step: Step) -> Outputs:
    (product,) = matmul(op, inputs, step)
    return (_group(op, step).all_reduce(product),)


KERNELS = {
    "matmul_all_reduce": Kernel(_matmul_all_reduce, "composed"),
    "all_reduce": Kernel(_all_reduce),
    "all_gather": Kernel(_all_gather),
    "reduce_scatter": Kernel(_reduce_scatter),
}
