"""Tokens to the ranks of their experts and back, each in one call: rows go straight into the memory of their rank.

Nothing of it comes to the host: a rank has room for all rows that it could get, the call says how many each expert
really has, and the products of the experts take that from there. So a step with expert parallelism can be captured. The
calls want a group of their own, and a mask of the padding in a rank's share of the tokens.
"""

from __future__ import annotations

import torch

from device.operators.exchange import everyone
from device.operators.experts import experts_of
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.npu.call import call
from device.operators.npu.experts import COUNTED
from device.step.step import COUNTS, Step
from scenarios.ops.program import Op

#: Values of the step that a dispatch leaves for its combine: who chose whom, where each row came from, how many did.
CHOSEN, ORIGINS, RECEIVED = "experts.ids", "experts.origins", "experts.received"
#: quant_mode: as they are, or in INT8 with a scale per row.
PLAIN, BY_ROW = 0, 2


def active(step: Step, rows: int, device: torch.device) -> torch.Tensor | None:
    """Which of this rank's `rows` rows are tokens, [rows] of bool with all of them in front; None where every rank's
    all are."""
    ranks, rank = (step.group.ranks, step.group.rank) if step.group else (1, 0)
    if rows * ranks == step.layout.tokens:
        return None
    return torch.arange(rows, device=device) < step.layout.tokens - rank * rows


def _dispatch(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Rows of this rank's experts, in their order, and behind them room for as many as could have come."""
    x, ids = inputs
    group = everyone(op, step)
    quantised = len(op.outputs) > 1
    rows, scales, origins, counts, received, _, _ = call(
        "npu_moe_distribute_dispatch_v2",
        x,
        ids,
        group.own_name(),
        group.ranks,
        group.rank,
        experts_of(step).count,
        x_active_mask=active(step, x.shape[0], x.device),
        quant_mode=BY_ROW if quantised else PLAIN,
        expert_token_nums_type=COUNTED,
    )
    step.values[COUNTS] = counts
    step.values[CHOSEN], step.values[ORIGINS], step.values[RECEIVED] = ids, origins, received
    return (rows, scales) if quantised else (rows,)


def _combine(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """The weighed sum of each token's rows, which have come back to its rank."""
    rows, weights = inputs
    group = everyone(op, step)
    y = call(
        "npu_moe_distribute_combine_v2",
        rows,
        step.values[CHOSEN],
        step.values[ORIGINS],
        step.values[RECEIVED],
        weights.float(),
        group.own_name(),
        group.ranks,
        group.rank,
        experts_of(step).count,
        x_active_mask=active(step, weights.shape[0], weights.device),
    )
    return (y,)


KERNELS = {
    "moe_dispatch": Kernel(_dispatch, "fused"),
    "moe_combine": Kernel(_combine, "fused"),
}
