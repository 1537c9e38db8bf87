"""One thread for torch: with more it spins on a busy machine, and results may depend on their number."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder in one worker: torch is imported once."""
    for item in items:
        if "tests/device/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("torch"))
