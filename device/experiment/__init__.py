"""Two scenarios in turn on one device: times, memory, and what each does to the numbers. Imports torch when opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory

from device.backends import BACKENDS, choose
from scenarios.errors import ScenarioError
from scenarios.exchange.bench import Bench
from scenarios.loader import Loaded

#: Where torch.compile keeps what it has made. A kernel that is found there is not compiled, and a cold start not cold.
COMPILER_CACHE = "TORCHINDUCTOR_CACHE_DIR"


@contextmanager
def opened(name: str) -> Iterator[Callable[[Loaded], Bench]]:
    """Opens the backend called `name` for a scenario.

    Until it is closed torch.compile starts from an empty cache, unless the environment names one. Raises ScenarioError
    as `choose`, and where `name` is the simulator.
    """
    if name == "sim":
        raise ScenarioError([f"--backend sim: an experiment measures; name a device: {', '.join(BACKENDS)}"])
    backend = choose(name)
    from device.experiment.bench import DeviceBench

    with _empty_cache():
        yield partial(DeviceBench.of, backend)


@contextmanager
def _empty_cache() -> Iterator[None]:
    if COMPILER_CACHE in os.environ:
        yield
        return
    with TemporaryDirectory(prefix="whatif-", ignore_cleanup_errors=True) as folder:
        os.environ[COMPILER_CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(COMPILER_CACHE, None)
