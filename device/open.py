"""What the command line asks of a backend: microbenchmarks, or a measured step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from device.backends import choose
from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.exchange.measured import Measure
from scenarios.exchange.timings import Timings
from scenarios.files.folder import refuse_folder

#: Takes the file of the rows, seconds to spend, whether to take a whole file as it is, and whom to tell.
Bench = Callable[[Path, float, bool, Callable[[str], None]], Timings]

#: Clocks that requests are served by (`device.serving.clock`), by the name that `--clock` takes.
CLOCKS: dict[str, Literal["wall", "steady"]] = {"wall": "wall", "steady": "steady"}


def bench_on(name: str) -> Bench:
    """What runs the microbenchmarks of the backend called `name`. Raises ScenarioError as `choose`."""
    backend = choose(name)
    from device.microbench.bench import benched

    return partial(benched, backend)


def measure_on(
    name: str, profile: Path | None = None, budget_s: float = 10.0, bench: Path | None = None, clock: str = "wall"
) -> Measure:
    """What measures a scenario on the backend called `name`: its reported step for so many seconds at most, and its
    requests by `clock` (wall or steady).

    profile: a new folder for the files of the backend's profiler. bench: the file of the served load. Raises
    ScenarioError as `choose`, where that folder cannot be made, and where there is no such clock.
    """
    if profile is not None:
        refuse_folder("--profile", profile)
    if clock not in CLOCKS:
        known = ", ".join(CLOCKS)
        raise ScenarioError([f"--clock: {quoted(clock)} is none of {known}{did_you_mean(clock, list(CLOCKS))}"])
    backend = choose(name)
    from device.measure.answer import measured
    from device.serving.serve import served

    return Measure(
        device=name,
        run=partial(measured, backend, budget_ns=round(1e9 * budget_s), profile=profile),
        serve=partial(served, backend, clock=CLOCKS[clock]),
        profile=profile,
        bench=bench,
    )
