"""What all tests share: where the project is, the reference data next to it, and how hypothesis searches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

#: Has an environment and a process of its own: `make npu`.
collect_ignore = ["npu_dry"]

ROOT = Path(__file__).resolve().parents[1]

# A run of the tests gives the same result each time, on a busy machine too: fixed examples, no deadline, no verdict on
# how long an example took to draw. HYPOTHESIS_PROFILE=full tries more of the slow ones (tests/examples.py), explore
# looks for new counterexamples.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "full", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def main_module() -> Iterator[None]:
    """What is run stays `__main__`: AppTest puts its page there, and processes spawned later would run that."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the project."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material next to the project; the test skips where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no folder ../shared beside the project")
    return folder
