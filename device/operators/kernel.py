"""The form of every operator, and how a value under a name is read with the shape that an op declares for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch

from device.step.step import Step
from scenarios.ops.program import Op

Inputs = Sequence[torch.Tensor]
Outputs = tuple[torch.Tensor, ...]
Compute = Callable[[Op, Inputs, Step], Outputs]
#: torch: one plain torch call. fused: one call of the backend that does the work of several. compiled: torch.compile's
#: kernel. composed: several torch calls. captured: the replay of a graph.
Form = Literal["torch", "fused", "compiled", "composed", "captured"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """How a backend computes one kind. raw: reads its operands as they are stored, not with the declared shapes. into:
    computes the one result into memory that is given, where it can."""

    compute: Compute
    form: Form = "torch"
    raw: bool = False
    into: Callable[[Op, Inputs, Step, torch.Tensor], None] | None = None


def fitted(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """`x` seen with `shape`: the same elements in order, or the leading part where `shape` is smaller.

    A Program reads one value with several shapes: q as [tokens, features] and as [tokens, heads, head_dim]; the logits
    of a padded batch, or of a padded vocabulary, without their padding. Raises ValueError where neither fits.
    """
    if x.shape == shape:
        return x
    if x.numel() == prod(shape):
        return x.reshape(shape)
    if x.ndim == len(shape) and all(have >= want for have, want in zip(x.shape, shape, strict=True)):
        for dim, want in enumerate(shape):
            x = x.narrow(dim, 0, want)
        return x
    raise ValueError(f"a value of shape {list(x.shape)} cannot be read as {list(shape)}")
