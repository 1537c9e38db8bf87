"""Experts: who goes where, the products of all experts in one call each, and the way back.

Nothing of the router's choice comes to the host: the rows of each expert are counted on the device and the products
take the counts from there, so a step with experts can be captured. A Program's draw of the load is not looked at.
A rank that holds some of the experts and sees all tokens has room for all rows; those of its own experts lie in front.
"""

from __future__ import annotations

from typing import Any

import torch

from device.operators.experts import KERNELS as PLAIN
from device.operators.experts import experts_of, first_held, is_sent, real_rows
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.npu.call import call
from device.step.step import COUNTS, Step
from scenarios.ops.program import Op

#: The value of the step that the permutation leaves next to the counts: where each choice's row lies, token by token.
PLACES = "experts.places"
#: Arguments of the calls, by their documented numbers: counts instead of sums, places by token and choice, groups of
#: rows, one tensor out; the choice's scores by sigmoid, groups as good as their best two.
COUNTED, BY_CHOICE, GROUPS_OF_ROWS, ONE_TENSOR, SIGMOID, BEST_TWO = 1, 0, 0, 2, 1, 1
#: npu_moe_finalize_routing: nothing is dropped, and places lie token by token (0 would be choice by choice).
ROWS_IN_ORDER = 2


def _gating(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """(weights, experts) of each row. A sigmoid's weights are divided by their sum in the call; a softmax's by two
    operators behind it, where the model wants that."""
    logits, *bias = inputs
    experts = experts_of(step)
    if experts.score == "softmax":
        weights, ids, _ = call("npu_moe_gating_top_k_softmax", logits, None, experts.top_k)
        divided = experts.normalised and op.attr("divided", True)
        return (weights / weights.sum(-1, keepdim=True) if divided else weights), ids
    weights, ids, _ = call(
        "npu_moe_gating_top_k",
        logits,
        experts.top_k,
        bias=bias[0] if bias else None,
        k_group=experts.kept_groups,
        group_count=experts.groups,
        group_select_mode=BEST_TWO,
        norm_type=SIGMOID,
    )
    return weights, ids


def _real(x: torch.Tensor, step: Step) -> torch.Tensor:
    """The rows of `x` that are tokens, of one replica or of all on top of each other."""
    tokens, whole = step.layout.tokens, step.layout.rows
    if tokens == whole:
        return x
    return x[:tokens] if x.shape[0] == whole else x[real_rows(step, x.shape[0], x.device)]


def _padded(y: torch.Tensor, rows: int, step: Step) -> torch.Tensor:
    """`rows` rows with those of `y` where the tokens are and zeros where padding is."""
    if y.shape[0] == rows:
        return y
    if rows == step.layout.rows:
        return torch.cat((y, y.new_zeros((rows - y.shape[0], y.shape[-1]))))
    return y.new_zeros((rows, y.shape[-1])).index_copy_(0, real_rows(step, rows, y.device), y)


def _permute(_: Op, inputs: Inputs, step: Step) -> Outputs:
    """Rows [tokens x top_k, hidden] in the order of the experts that this rank holds; padding chooses none."""
    x, ids = (_real(value, step) for value in inputs)
    experts, first = experts_of(step), first_held(step)
    rows, places, counts, _ = call(
        "npu_moe_init_routing_v2",
        x,
        ids,
        active_num=ids.numel(),
        expert_num=experts.count,
        expert_tokens_num_type=COUNTED,
        expert_tokens_num_flag=True,
        active_expert_range=[first, first + experts.held],
        quant_mode=-1,
        row_idx_type=BY_CHOICE,
    )
    step.values[COUNTS], step.values[PLACES] = counts, places
    return (rows,)


def _unpermute(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """The weighed sum of each token's rows; zeros for padding. The call wants weights of the rows' type, and a place
    for each choice: those of other ranks' experts go to the first row, with nothing of it."""
    rows, weights = inputs
    shares, places = _real(weights, step).to(rows.dtype), step.values[PLACES]
    if holds_some(step):
        shares = shares.masked_fill((places < 0).view(shares.shape), 0)
        places = places.clamp(min=0)
        rows[:1].masked_fill_(step.values[COUNTS].sum() == 0, 0)  # nothing was computed there: it may be no number
    y = call("npu_moe_finalize_routing", rows, None, None, None, shares, places, None, drop_pad_mode=ROWS_IN_ORDER)
    return (_padded(y, op.out.shape[0], step),)


def holds_some(step: Step) -> bool:
    """Whether other ranks hold experts too, and this one sees their tokens."""
    return experts_of(step).held < experts_of(step).count


def _grouped(x: torch.Tensor, w: torch.Tensor, step: Step, **scales: Any) -> Outputs:
    """x [rows, k] x w [experts, k, n], each expert's rows with its own weight."""
    (y,) = call(
        "npu_grouped_matmul",
        [x],
        [w],
        group_list=step.values[COUNTS],
        split_item=ONE_TENSOR,
        group_type=GROUPS_OF_ROWS,
        group_list_type=COUNTED,
        **scales,
    )
    return (y,)


def _grouped_matmul(_: Op, inputs: Inputs, step: Step) -> Outputs:
    """16-bit rows; INT8 and INT4 weights are unpacked on the way, with a scale an output and no offset."""
    x, w, *scale = inputs
    if not scale:
        return _grouped(x, w, step)
    return _grouped(x, w, step, antiquant_scale=[scale[0]], antiquant_offset=[torch.zeros_like(scale[0])])


def _quant_grouped_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    x, w, *scales = inputs
    out = step.dtypes[op.out.dtype]
    if not scales:  # bare sums
        return _grouped(x, w, step, output_dtype=out)
    scale, row_scale = scales
    return _grouped(x, w, step, scale=[scale], per_token_scale=[row_scale.reshape(-1)], output_dtype=out)


def permuting(op: Op) -> Kernel:
    """How rows are sorted: those that an all-to-all sends by plain operators, which leave what it has to know."""
    return PLAIN[op.kind] if is_sent(op) else KERNELS[op.kind]


KERNELS = {
    "moe_gating_top_k": Kernel(_gating, "fused"),
    "moe_init_routing": Kernel(_permute, "fused"),
    "moe_finalize_routing": Kernel(_unpermute, "fused"),
    "grouped_matmul": Kernel(_grouped_matmul, "fused"),
    "quant_grouped_matmul": Kernel(_quant_grouped_matmul, "fused"),
}
#: The choice where the sum is divided by outside the call, but within the operation.
_GATING_AND_DIVISION = Kernel(_gating, "composed")


def gating(op: Op) -> Kernel:
    """How the choice `op` is computed: scores without a bias are a softmax's, and are divided outside the call."""
    outside = len(op.inputs) == 1 and bool(op.attr("divided", True))
    return _GATING_AND_DIVISION if outside else KERNELS["moe_gating_top_k"]
