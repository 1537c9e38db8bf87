"""Copies through memory by size, and what one wait for the device and one event cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch

from device.measure.measure import Sample
from device.measure.steady import Reference, steadied, timed
from device.microbench.plan import COPY_BYTES, FAR_COPY_BYTES
from device.run.backend import Backend
from scenarios.exchange.timings import COPY, EVENT, SYNCHRONIZE, Timing

#: Repeats of each size; calls that are timed together where one is too short for a clock.
REPEATS, TOGETHER = 15, 100


def timed_memory(backend: Backend) -> Iterator[Timing]:
    """One row a size, smallest first, then the wait and the event."""
    for moved in COPY_BYTES if backend.name == "cpu" else FAR_COPY_BYTES:
        source = torch.ones(moved, dtype=torch.int8, device=backend.device)
        target = torch.empty_like(source)
        together = max(1, min(TOGETHER, (1 << 20) // moved))
        name = f"copy {moved}"
        yield _row(backend, COPY, name, partial(target.copy_, source), together, {"bytes": moved})
    yield _row(backend, SYNCHRONIZE, "synchronize", backend.synchronize, TOGETHER, {})
    yield _row(backend, EVENT, "event", backend.mark, TOGETHER, {})


def _row(
    backend: Backend, kind: str, name: str, call: Callable[[], object], together: int, values: dict[str, float]
) -> Timing:
    """`together` calls, timed as one, again and again, each time next to the reference."""
    reference = Reference(backend)

    def several() -> None:
        for _ in range(together):
            call()

    references, walls, busy = [], [], []
    with torch.inference_mode():
        several()
        for _ in range(REPEATS):
            references.append(reference.timed().busy_ns)
            copied = timed(backend, several)
            walls.append(copied.wall_ns)
            busy.append(copied.busy_ns)
    steady = Sample.of(steadied(busy, references))
    scale = 1 / together / 1000
    return Timing(
        kind=kind,
        trial=name,
        form="torch",
        ops=(),
        median_us=steady.median_ns * scale,
        low_us=steady.low_ns * scale,
        high_us=steady.high_ns * scale,
        raw_us=median(walls) * scale,
        reference_us=median(references) / 1000,
        repeats=REPEATS,
        count=together,
        values=values,
    )
