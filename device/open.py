"""What the command line asks of a backend: microbenchmarks, or a measured step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from device.backends import choose
from scenarios.exchange.measured import Measure
from scenarios.exchange.timings import Timings
from scenarios.files.folder import refuse_folder

#: Takes the file of the rows, seconds to spend, whether to take a whole file as it is, and whom to tell.
Bench = Callable[[Path, float, bool, Callable[[str], None]], Timings]


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
