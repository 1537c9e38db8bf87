"""How a rule says what is wrong with a call."""

from __future__ import annotations

from typing import Any

import torch

HALF = (torch.float16, torch.bfloat16)
FLOATS = (*HALF, torch.float32)
INTEGERS = (torch.int32, torch.int64)
#: Largest length of an inner dimension of a quantised product, and of a token of one cache block (heads x dim).
MAX_INNER = 65535


class Refused(ValueError):
    """A call that a device would not take: what is wrong, and what it takes."""


def need(holds: bool, what: str) -> None:
    """Raise Refused with `what` unless `holds`."""
    if not holds:
        raise Refused(what)


def same_type(what: str, *tensors: Any) -> None:
    """All of `tensors` have one type."""
    names = {_name(t.dtype) for t in tensors}
    need(len(names) == 1, f"{what}: all of one type, not {' and '.join(sorted(names))}")


def typed(what: str, tensor: Any, *allowed: torch.dtype) -> None:
    """`tensor` has one of the types `allowed`."""
    need(tensor.dtype in allowed, f"{what} is {_name(tensor.dtype)}, allowed are {', '.join(map(_name, allowed))}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
