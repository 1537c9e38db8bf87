"""From logits to the next token."""

from __future__ import annotations

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import Step
from scenarios.ops.program import Op

#: What the filter keeps: a scenario names no values, and the time of the filter depends on the vocabulary alone.
TOP_K, TOP_P = 50, 0.9


def _softmax(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (torch.softmax(inputs[0], -1),)


def _argmax(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (inputs[0].argmax(-1),)


def _sort(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """Ascending, as the filter wants it: (values, their places in int32)."""
    values, order = inputs[0].sort(-1)
    return values, order.to(torch.int32)


def top_k_top_p(values: torch.Tensor, order: torch.Tensor, k: int = TOP_K, p: float = TOP_P) -> torch.Tensor:
    """Logits [rows, n], ascending, and their places -> logits in their places, -inf for all but the k largest and, of
    these, the fewest that together have probability p."""
    width = values.shape[-1]
    kept = values.clone()
    kept[:, : max(0, width - k)] = float("-inf")
    below = torch.softmax(kept, -1).cumsum(-1)  # probability of a token and all below it
    dropped = below <= 1 - p
    dropped[:, -1] = False
    kept = kept.masked_fill(dropped, float("-inf"))
    return torch.empty_like(kept).scatter_(-1, order.long(), kept)


def _top_k_top_p(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (top_k_top_p(inputs[0], inputs[1]),)


KERNELS = {
    "softmax": Kernel(_softmax),
    "argmax": Kernel(_argmax),
    "sort": Kernel(_sort),
    "top_k_top_p": Kernel(_top_k_top_p, "composed"),
}
