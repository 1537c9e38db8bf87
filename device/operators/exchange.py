"""Experts on other ranks: rows go to the ranks of their experts and come back, as many as the router really chose.

The counts of each rank's rows by expert go first (one small all-to-all), for no rank knows how many it will get; then
the rows. What is sent and received is kept among the values of the step: INCOMING, rows [ranks, experts of this rank].
"""

from __future__ import annotations

import torch

from device.operators import experts
from device.operators.experts import ORDER, SENT, experts_of
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.quant import quantise_rows
from device.step.step import COUNTS, Group, Step
from scenarios.ops.program import Op

INCOMING, SORTED = "experts.incoming", "experts.sorted"


def everyone(op: Op, step: Step) -> Group:
    """The ranks over which whole experts are spread. Raises ValueError where they are not as many as `op` wants."""
    group = step.groups.everyone
    if group is None or group.ranks != op.attr("ranks"):
        raise ValueError(f"{op.name} wants {op.attr('ranks')} ranks, there are {group.ranks if group else 1}")
    return group


def _send(op: Op, rows: torch.Tensor, step: Step) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows in the order of all experts -> those of this rank's experts, rank by rank, and the expert of each."""
    group, held = everyone(op, step), experts_of(step).held
    outgoing = step.values[SENT].view(group.ranks, held)
    incoming = group.all_to_all(outgoing, [1] * group.ranks, [1] * group.ranks)
    step.values[INCOMING] = incoming
    received = group.all_to_all(rows, outgoing.sum(1).tolist(), incoming.sum(1).tolist())
    each = torch.arange(held, device=rows.device).repeat(group.ranks)
    # Told how many come out, the host need not ask the device once more.
    return received, each.repeat_interleave(incoming.flatten(), output_size=received.shape[0]).to(torch.int32)


def _return(op: Op, rows: torch.Tensor, step: Step) -> torch.Tensor:
    """The reverse."""
    group = everyone(op, step)
    outgoing = step.values[SENT].view(group.ranks, -1)
    return group.all_to_all(rows, step.values[INCOMING].sum(1).tolist(), outgoing.sum(1).tolist())


def _all_to_all(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return _send(op, inputs[0], step) if len(op.outputs) > 1 else (_return(op, inputs[0], step),)


def _sort(rows: torch.Tensor, each: torch.Tensor, step: Step) -> torch.Tensor:
    """Received rows in the order of their experts."""
    order = each.argsort(stable=True)
    step.values[COUNTS] = step.values[INCOMING].sum(0)
    step.values[SORTED] = order
    return rows[order]


def _unsort(rows: torch.Tensor, step: Step) -> torch.Tensor:
    out = torch.empty_like(rows)
    out[step.values[SORTED]] = rows
    return out


def _re_routing(op: Op, inputs: Inputs, step: Step) -> Outputs:
    rows, each = inputs
    return (_sort(rows, each, step) if op.name.endswith(".sort") else _unsort(rows, step),)


def _dispatch(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Permute, send and sort; in INT8 with a scale per row where the Program says so."""
    received, each = _send(op, experts.sorted_rows(op, inputs, step), step)
    rows = _sort(received, each, step)
    if len(op.outputs) == 1:
        return (rows,)
    quantised, scale = quantise_rows(rows)
    return quantised, scale.flatten()


def _combine(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Unsort, return and the weighed sum."""
    rows, weights = inputs
    return (experts.weighed_sum(_return(op, _unsort(rows, step), step), weights, step.values[ORDER]),)


KERNELS = {
    "all_to_all": Kernel(_all_to_all, "composed"),
    "moe_re_routing": Kernel(_re_routing, "composed"),
    "moe_dispatch": Kernel(_dispatch, "composed"),
    "moe_combine": Kernel(_combine, "composed"),
}
