"""Who works on the points of a sweep: processes of this machine, or a Dask cluster. Both hand back parts as they
end."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from scenarios.errors import ScenarioError, printable
from sim.sweep.point import Result, results_of
from sim.sweep.space import Point

#: Points of one hand-over to a worker: their results are kept together.
PART = 16
#: Parts that wait at each worker, so that none of them idles and few points are lost where the sweep is killed.
WAITING = 2

Done = list[tuple[int, Result]]


def predict_part(scenario: str, points: Sequence[Point]) -> Done:
    """The rows of some points. The garbage collector waits until they are done: a prediction leaves no cycles behind,
    and looking through all that is remembered takes a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return results_of(scenario, points)
    finally:
        if enabled:
            gc.enable()


def parts_of(points: Iterator[Point]) -> Iterator[list[Point]]:
    """The points in parts of at most PART."""
    part: list[Point] = []
    for point in points:
        part.append(point)
        if len(part) == PART:
            yield part
            part = []
    if part:
        yield part


def on_processes(scenario: str, points: Iterator[Point], jobs: int) -> Iterator[Done]:
    """Predict on `jobs` processes of this machine, in this one where it is 1."""
    parts = parts_of(points)
    if jobs == 1:
        for part in parts:
            yield predict_part(scenario, part)
        return
    # Not by fork: a lock that another thread holds would stay locked in the child.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting: set[Future[Done]] = set()
        for part in parts:
            waiting.add(pool.submit(predict_part, scenario, part))
            if len(waiting) >= jobs * WAITING:
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in ended)
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in ended)


def on_dask(scenario: str, points: Iterator[Point], address: str) -> Iterator[Done]:
    """Predict on the Dask cluster at `address`, whose workers have this version installed.

    Raises ScenarioError, one line, where dask is not installed or the cluster does not answer.
    """
    try:
        distributed: Any = import_module("distributed")
    except ModuleNotFoundError:
        raise ScenarioError(["--dask: dask is not installed; pip install 'ascend-whatif[cluster]'"]) from None
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise ScenarioError(
            [f"--dask {printable(address)}: no cluster answers: {printable(str(error), 120)}"]
        ) from None
    with client:
        parts = list(parts_of(points))
        futures = client.map(predict_part, [scenario] * len(parts), parts, pure=False)
        for future in distributed.as_completed(futures):
            yield future.result()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
