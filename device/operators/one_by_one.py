"""Ungrouped experts (`fusion.grouped_matmul: false`): the places that a Program lists, and who really stands there.

A Program lists the experts of its draw, and the router chooses its own. The n-th expert that the router has chosen
takes the n-th place: op i stays op i, every expert that was chosen runs by itself, and the answer is the router's.
Where more were chosen than drawn, a place runs a further one after its own; where fewer, the last places have no rows.
Which ones a layer has chosen is kept among the values of the step (`chosen_in`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from device.operators.experts import experts_of, first_held, real_rows
from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import Step
from scenarios.models.model import Experts
from scenarios.ops.program import Op, Tensor


@dataclass(frozen=True, slots=True)
class Place:
    """One of the `places` of a layer's list, counted from 0. name: of its ops. layer: of the Program's block. sent: the
    name of the rows that other ranks have sent, "" where tokens stay."""

    name: str
    number: int
    places: int
    layer: int
    sent: str = ""

    @property
    def mine(self) -> str:
        """The value of the step that says who stands here: [experts, 2], number among those held and rows of each."""
        return f"{self.name}.standing"


def chosen_in(layer: int) -> str:
    """The value of the step with the experts of this rank that the router has chosen in a layer."""
    return f"experts.chosen {layer}"


def chosen_by_layer(step: Step) -> list[torch.Tensor]:
    """The same of each layer whose experts run one by one, in order, after a run of the step."""
    tensors: list[torch.Tensor] = []
    while (value := step.values.get(chosen_in(len(tensors)))) is not None:
        tensors.append(value)
    return tensors


def place_of(op: Op) -> str | None:
    """The name of the place that `op` belongs to (`expert3`), None for all other ops."""
    return f"expert{op.expert}" if op.expert >= 0 else None


class Places:
    """The places that one block lists, in order."""

    def __init__(self, ops: Sequence[Op]) -> None:
        names = dict.fromkeys(name for op in ops if (name := place_of(op)))
        self._numbers = {name: number for number, name in enumerate(names)}
        self._sent = next((op.out.name for op in ops if op.name == "exchange.send"), "")

    @property
    def count(self) -> int:
        return len(self._numbers)

    def of(self, op: Op, layer: int) -> Place | None:
        """The place of `op` in `layer` of the block, None where it has none."""
        name = place_of(op)
        return None if name is None else Place(name, self._numbers[name], self.count, layer, self._sent)


def stacked(tensor: Tensor, experts: Experts | None) -> Tensor:
    """The weight of all experts of this rank on top of each other where `tensor` names one's; any other as it is."""
    name = re.sub(r"^expert\d+\.", "experts.", tensor.name)
    if experts is None or name == tensor.name:
        return tensor
    return Tensor(name, (experts.held, *tensor.shape), tensor.dtype, "weight")


def kernel(op: Op, place: Place, plain: Kernel) -> Kernel:
    """How `op` is computed for whoever stands in `place`. plain: how the backend computes an op of its kind."""
    if op.whole == f"{place.name}.find":
        return Kernel(lambda _, inputs, step: _find(place, inputs, step), "composed", raw=True)
    if op.whole == f"{place.name}.add":
        return Kernel(lambda op, inputs, step: _add(place, op, inputs, step), raw=True)
    if any(tensor.role == "weight" for tensor in op.inputs):
        return Kernel(lambda op, inputs, step: _product(place, op, inputs, step, plain), "composed", raw=True)
    return plain


def _find(place: Place, inputs: Inputs, step: Step) -> Outputs:
    """ids [rows, top_k] or [rows], perhaps weights next to them -> rows of who stands here, one expert after the other,
    and their weights [rows, 1]."""
    ids, *weights = inputs
    # Rows that were sent here are all real, and their experts are numbered among those held.
    first = 0 if place.sent else first_held(step)
    rows = torch.arange(ids.shape[0], device=ids.device) if place.sent else real_rows(step, ids.shape[0], ids.device)
    own = ids[rows]
    key = chosen_in(place.layer)
    if not place.number:
        chosen = own.unique()
        step.values[key] = chosen[(chosen >= first) & (chosen < first + experts_of(step).held)]
    result, standing = [], []
    for expert in step.values[key][place.number :: place.places].tolist():
        at = (own == expert).nonzero(as_tuple=True)
        result.append((rows[at[0]], weights[0][rows][at] if weights else None))
        standing.append((expert - first, len(at[0])))
    step.values[place.mine] = torch.tensor(standing, dtype=torch.int64).reshape(-1, 2)
    index = torch.cat([row for row, _ in result]) if result else rows[:0]
    if not weights:
        return (index,)
    shares = [share for _, share in result if share is not None]
    return index, (torch.cat(shares) if shares else weights[0].new_zeros(0)).unsqueeze(-1)


def _product(place: Place, op: Op, inputs: Inputs, step: Step, plain: Kernel) -> Outputs:
    """The product of each expert that stands here with its own weights. x, then weights and scales of all experts, and
    of a8 the scales of the rows behind them."""
    x, *others = inputs
    parts: list[Outputs] = []
    start = 0
    for expert, count in step.values[place.mine].tolist():
        rows = slice(start, start + count)
        of_all = (tensor.role == "weight" for tensor in op.inputs[1:])
        own = [other[expert if every else rows] for every, other in zip(of_all, others, strict=True)]
        parts.append(plain.compute(op, [x[rows], *own], step))
        start += count
    if not parts:
        return tuple(x.new_zeros((0, *t.shape[1:]), dtype=step.dtypes[t.dtype]) for t in op.outputs)
    return tuple(torch.cat(outputs) for outputs in zip(*parts, strict=True))


def _add(place: Place, op: Op, inputs: Inputs, step: Step) -> Outputs:
    """The rows of who stands here into the sum, which the first place starts."""
    result, index, *before = inputs
    if before:
        total = before[0]
    else:
        rows = step.values[place.sent].shape[0] if place.sent else op.out.shape[0]
        total = result.new_zeros((rows, op.out.shape[-1]), dtype=step.dtypes[op.out.dtype])
    return (total.index_add_(0, index, result.to(total.dtype)),)
