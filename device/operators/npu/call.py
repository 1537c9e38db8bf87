"""The one door to torch_npu: every fused call goes through `call`, so that a test can hold each against its rules.

The operators are looked up in `torch.ops.npu`, which is empty until torch_npu is imported: nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from device.operators.npu import rules

_enforced = False


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """What `torch.ops.npu.<name>` answers. Raises rules.Refused first where `enforced` is on and a rule is broken."""
    if _enforced:
        rules.check(name, args, kwargs)
    return getattr(torch.ops.npu, name)(*args, **kwargs)


@contextmanager
def enforced() -> Iterator[None]:
    """Every call inside is held against the documented rules. Not in a measured step: it costs the host time."""
    global _enforced
    before, _enforced = _enforced, True
    try:
        yield
    finally:
        _enforced = before
