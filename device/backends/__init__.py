"""The devices that can run a Program. Nothing heavy is imported before one is chosen."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from scenarios.errors import ScenarioError, did_you_mean, quoted

if TYPE_CHECKING:
    from device.run.backend import Backend


def _cpu() -> Backend:
    from device.backends.cpu import Cpu

    return Cpu()


def _npu() -> Backend:
    from device.backends.npu import Npu

    return Npu()


def _cuda() -> Backend:
    from device.backends.cuda import Cuda

    return Cuda()


#: Makers of backends by the name that `--backend` takes; each imports what it needs.
BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": _cpu, "cuda": _cuda, "npu": _npu}


def choose(name: str) -> Backend:
    """The backend called `name`.

    Raises ScenarioError, one line, where there is none, or where torch or the device is not there.
    """
    if name not in BACKENDS:
        known = ["sim", *BACKENDS]
        raise ScenarioError(
            [
                f"--backend: {quoted(name)} is not available; this version has: {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            ]
        )
    # An installed torch_npu is not loaded by `import torch` itself, which fails where CANN is not there.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    try:
        return BACKENDS[name]()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise ScenarioError(
            [f"--backend {name}: torch is not installed; pip install 'ascend-whatif[device]'"]
        ) from None
