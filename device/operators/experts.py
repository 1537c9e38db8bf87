"""Experts: who goes where, the products of all experts, and the way back.

A Program draws how many tokens each expert has; here the router decides. `experts.permute` leaves what it decided among
the values of the step, and the products and the way back take it from there: COUNTS, rows of each expert of this rank,
and ORDER, the place of each sorted row among the choices (token by token). Padding chooses no expert. What ranks send
each other is in `device.operators.exchange`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.quant import exact_product, integers, scaled
from device.step.step import COUNTS, Step
from scenarios.models.model import Experts, Score
from scenarios.ops.counting import whole_number
from scenarios.ops.program import Op, Tensor

ORDER, SENT = "experts.order", "experts.sent"

#: Activations with a row for each choice: their rows are as many as the router makes them, not as the Program drew.
_FOLLOWERS = re.compile(r"(?:part\d+\.)?(?:expert\d+\.|experts\.|expert_rows|expert_results|rows_|row_experts)")

#: (rows of one expert, its number, where they lie) -> their product.
Product = Callable[[torch.Tensor, int, slice], torch.Tensor]


def experts_of(step: Step) -> Experts:
    """The experts of the step's model."""
    assert step.model is not None
    assert step.model.experts is not None
    return step.model.experts


def follows_router(tensor: Tensor) -> bool:
    """Whether the router decides how many rows `tensor` has."""
    return tensor.role == "activation" and _FOLLOWERS.match(tensor.name) is not None


def first_held(step: Step) -> int:
    """The first expert of this rank: all ranks that step together share whole ones in order."""
    everyone = step.groups.everyone if step.model is not None and step.model.expert_parallel else None
    return everyone.rank * experts_of(step).held if everyone else 0


def real_rows(step: Step, rows: int, device: torch.device) -> torch.Tensor:
    """Of `rows` rows those that are tokens and no padding: of the whole step, of this rank's share of it, or of all
    replicas on top of each other."""
    tokens, whole = step.layout.tokens, step.layout.rows
    if rows < whole:
        start = step.group.rank * rows if step.group else 0
        return torch.arange(max(0, min(tokens - start, rows)), device=device)
    starts = torch.arange(0, rows, whole, device=device).unsqueeze(1)
    return (starts + torch.arange(tokens, device=device)).flatten()


def in_kept_groups(scores: torch.Tensor, experts: Experts) -> torch.Tensor:
    """Scores [rows, experts], -inf outside the best groups of each row. A group is as good as its best expert, or as
    its best two together where a bias moves the choice (sigmoid), as DeepSeek V2 and V3 have it."""
    if experts.groups == 1:
        return scores
    by_group = scores.unflatten(-1, (experts.groups, -1))
    best = by_group.topk(min(1 if experts.score == "softmax" else 2, by_group.shape[-1]), -1).values.sum(-1)
    kept = torch.zeros_like(best, dtype=torch.bool)
    kept.scatter_(-1, best.topk(experts.kept_groups, -1).indices, True)
    return by_group.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(-2)


def choose(scores: torch.Tensor, experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    """The `top_k` best experts of each row: (their scores, their numbers in int32)."""
    values, ids = in_kept_groups(scores, experts).topk(experts.top_k, -1)
    return values, ids.to(torch.int32)


def _of_layer(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """Numbers in the group of each column -> numbers in the layer."""
    each = whole_number(op, "value")
    return (inputs[0] + each * torch.arange(inputs[0].shape[-1], dtype=torch.int32, device=inputs[0].device),)


#: Scores of a router's logits.
_SCORES: dict[Score, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda logits: logits.softmax(-1),
    "sigmoid": torch.sigmoid,
    "sqrtsoftplus": lambda logits: torch.nn.functional.softplus(logits).sqrt(),
}


def gate(logits: torch.Tensor, bias: Inputs, experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    """Router logits [rows, experts] -> (weights in float32, numbers) of each row's experts; a bias moves the choice and
    not the weights."""
    scores = _SCORES[experts.score](logits.float())
    if len(bias) > 1:  # a table of experts, and the tokens' numbers
        ids = bias[0][bias[1][: len(scores)]]
    else:
        _, ids = choose(scores + bias[0] if bias else scores, experts)
    weights = scores.gather(-1, ids.long())
    return weights / weights.sum(-1, keepdim=True) if experts.normalised else weights, ids


def _gating(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """(weights, experts) of each row; attr divided: whether weights that the model wants divided by their sum are."""
    logits, *bias = inputs
    experts = experts_of(step)
    whole = experts if op.attr("divided", True) else replace(experts, normalised=False)
    weights, ids = gate(logits, bias, whole)
    return weights.to(logits.dtype), ids


def _top_k(_: Op, inputs: Inputs, step: Step) -> Outputs:
    if experts_of(step).one_per_group:
        best = inputs[0].unflatten(-1, (experts_of(step).top_k, -1)) if inputs[0].ndim == 2 else inputs[0]
        values, ids = best.max(-1)
        return values, ids.to(torch.int32)
    return choose(inputs[0], experts_of(step))


def _gather(_: Op, inputs: Inputs, __: Step) -> Outputs:
    scores, ids = inputs
    return (scores.gather(-1, ids.long()),)


def _total(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """What the weights are divided by."""
    return (inputs[0].sum(-1, keepdim=True),)


def _sigmoid(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (torch.sigmoid(inputs[0]),)


def sorted_rows(op: Op, inputs: Inputs, step: Step) -> torch.Tensor:
    """Rows [choices of this rank's experts, hidden] in the order of the experts; of all experts where the rows are to
    be sent to their ranks."""
    x, ids = inputs
    first, held = (0, experts_of(step).count) if is_sent(op) else (first_held(step), experts_of(step).held)
    top_k = ids.shape[-1]
    rows = real_rows(step, ids.shape[0], ids.device)
    choices = (rows.unsqueeze(1) * top_k + torch.arange(top_k, device=ids.device)).flatten()
    chosen = ids.flatten()[choices].long() - first
    if held < experts_of(step).count:  # a mask lets the host wait for the device
        mine = (chosen >= 0) & (chosen < held)
        chosen, choices = chosen[mine], choices[mine]
    order = choices[chosen.argsort(stable=True)]
    counts = chosen.new_zeros(held).scatter_add_(0, chosen, torch.ones_like(chosen))  # bincount lets the host wait
    step.values[SENT if is_sent(op) else COUNTS] = counts
    step.values[ORDER] = order
    return x[order // top_k]


def _permute(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (sorted_rows(op, inputs, step),)


def is_sent(op: Op) -> bool:
    """Whether `op` works on the rows that go to the ranks of their experts, and not on those of this rank's experts."""
    return op.name.startswith("exchange.")


def weighed_sum(rows: torch.Tensor, weights: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The weighed sum of each token's rows, in float32; padding is zeros, and so is what other ranks' experts add."""
    tokens, top_k = weights.shape
    by_choice = rows.new_zeros((tokens * top_k, rows.shape[-1]))
    by_choice[order] = rows
    summed = (by_choice.view(tokens, top_k, -1).float() * weights.float().unsqueeze(-1)).sum(1)
    return summed.to(rows.dtype)


def _unpermute(_: Op, inputs: Inputs, step: Step) -> Outputs:
    rows, weights = inputs
    return (weighed_sum(rows, weights, step.values[ORDER]),)


def _stretches(step: Step) -> Iterator[tuple[int, slice]]:
    """Each expert that was chosen, and where its rows lie."""
    start = 0
    for expert, count in enumerate(step.values[COUNTS].tolist()):
        if count:
            yield expert, slice(start, start + count)
            start += count


def by_expert(op: Op, x: torch.Tensor, step: Step, product: Product) -> Outputs:
    """`product` of each expert's rows, on top of each other."""
    out = x.new_empty((x.shape[0], *op.out.shape[1:]), dtype=step.dtypes[op.out.dtype])
    for expert, rows in _stretches(step):
        out[rows] = product(x[rows], expert, rows).to(out.dtype)
    return (out,)


def without_bias(op: Op, inputs: Inputs) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """The operands of a product of experts without its bias [experts, n], and that."""
    biases = [x for x, t in zip(inputs, op.inputs, strict=True) if t.name.endswith(".bias")]
    rest = [x for x, t in zip(inputs, op.inputs, strict=True) if not t.name.endswith(".bias")]
    return rest, biases[0] if biases else None


def _grouped_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """x [rows, k] x weights [experts, n, k], 16-bit or (with scales [experts, n]) unpacked from integers."""
    (x, w, *scale), bias = without_bias(op, inputs)

    def product(part: torch.Tensor, expert: int, _: slice) -> torch.Tensor:
        weight = integers(w[expert]).float() * scale[0][expert].unsqueeze(-1) if scale else w[expert].float()
        return part.float() @ weight.T + (0 if bias is None else bias[expert].float())

    return by_expert(op, x, step, product)


def _quant_grouped_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """INT8 rows with a scale each x INT8 or INT4 weights with scales [experts, n]; bare sums where they are scaled
    elsewhere."""
    (x, w, *scales), bias = without_bias(op, inputs)

    def product(part: torch.Tensor, expert: int, rows: slice) -> torch.Tensor:
        if not scales:
            return exact_product(part, integers(w[expert]))
        scale, row_scale = scales
        own = () if bias is None else (bias[expert],)
        return scaled(exact_product(part, integers(w[expert])), scale[expert], row_scale[rows], own)

    return by_expert(op, x, step, product)


KERNELS = {
    "sigmoid": Kernel(_sigmoid),
    "moe_gating_top_k": Kernel(_gating, "composed"),
    "moe_init_routing": Kernel(_permute, "composed"),
    "moe_finalize_routing": Kernel(_unpermute, "composed"),
    "grouped_matmul": Kernel(_grouped_matmul, "composed"),
    "quant_grouped_matmul": Kernel(_quant_grouped_matmul, "composed"),
}
#: Ops of a general kind that a router means in its own way, by name.
NAMED = {
    "router.top_k": Kernel(_top_k, "composed"),
    "router.gather": Kernel(_gather),
    "router.of_layer": Kernel(_of_layer),
    "router.sum": Kernel(_total),
}
