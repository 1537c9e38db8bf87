"""The one door to torch_npu: every fused call goes through `call`, so that a test can hold each against its rules.

The operators are looked up in `torch.ops.npu`, which is empty until torch_npu is imported: nothing here imports it.
Those of ATB are there only where its library (NNAL) has been found too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from device.operators.npu import rules

#: Calls of ATB, the library of Transformer kernels that is installed next to CANN.
OF_ATB = ("_npu_reshape_and_cache",)

_enforced = False


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """What `torch.ops.npu.<name>`, or that of ATB, answers. Raises rules.Refused first where `enforced` is
    on and a rule is broken."""
    if _enforced:
        rules.check(name, args, kwargs)
    return getattr(torch.ops.atb if name in OF_ATB else torch.ops.npu, name)(*args, **kwargs)


def has_atb() -> bool:
    """Whether the calls of ATB are there."""
    return all(hasattr(torch.ops.atb, name) for name in OF_ATB)


@contextmanager
def enforced() -> Iterator[None]:
    """Every call inside is held against the documented rules. Not in a measured step: it costs the host time."""
    global _enforced
    before, _enforced = _enforced, True
    try:
        yield
    finally:
        _enforced = before
