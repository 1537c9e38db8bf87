"""The devices that can run a Program. Nothing heavy is imported before one is chosen."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.exchange.measured import Measure
from scenarios.exchange.timings import Timings
from scenarios.files.folder import refuse_folder

if TYPE_CHECKING:
    from device.backends.base import Backend


def _cpu() -> Backend:
    from device.backends.cpu import Cpu

    return Cpu()


def _npu() -> Backend:
    from device.backends.npu import Npu

    return Npu()


def _cuda() -> Backend:
    from device.backends.cuda import Cuda

    return Cuda()


#: Takes the file of the rows, seconds to spend, whether to take a whole file as it is, and whom to tell.
Bench = Callable[[Path, float, bool, Callable[[str], None]], Timings]

#: Makers of backends by the name that `--backend` takes; each imports what it needs.
BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": _cpu, "cuda": _cuda, "npu": _npu}


def choose(name: str) -> Backend:
    """The backend called `name`.

    Raises ScenarioError, one line, where there is none, or where torch or the device is not there.
    """
    if name not in BACKENDS:
        known = ["sim", *BACKENDS]
        raise ScenarioError(
            [f"--backend: {quoted(name)} is not available; this version has: {', '.join(known)}"
             f"{did_you_mean(name, known)}"]
        )  # fmt: skip
    # An installed torch_npu is not loaded by `import torch` itself, which fails where CANN is not there.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    try:
        return BACKENDS[name]()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise ScenarioError(
            [f"--backend {name}: torch is not installed; pip install 'ascend-whatif[device]'"]
        ) from None  # fmt: skip


def bench_on(name: str) -> Bench:
    """What runs the microbenchmarks of the backend called `name`. Raises ScenarioError as `choose`."""
    backend = choose(name)
    from device.microbench.bench import benched

    return partial(benched, backend)


def measure_on(name: str, profile: Path | None = None, budget_s: float = 10.0) -> Measure:
    """What measures a scenario's reported step on the backend called `name`, for so many seconds at most. profile: a
    new folder for the files of the backend's profiler. Raises ScenarioError as `choose`, and where that folder cannot
    be made."""
    if profile is not None:
        refuse_folder("--profile", profile)
    backend = choose(name)
    from device.measure.answer import measured

    return Measure(name, partial(measured, backend, budget_ns=round(1e9 * budget_s), profile=profile), profile)
