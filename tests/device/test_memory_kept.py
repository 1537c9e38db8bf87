"""What is freed stays with the process: the next op writes to it without asking the system for its pages again."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from device.backends.cpu import keep_freed_memory

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("torch")]

#: Pages of the system that 20 tensors of 16 MiB take, one after the other; with the CPU's backend or without.
FAULTS = """
import resource, sys, torch
torch.set_num_threads(1)
if sys.argv[1] == "backend":
    from device.backends.cpu import Cpu
    Cpu()
torch.ones(1 << 24, dtype=torch.bool)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    large = torch.ones(1 << 24, dtype=torch.bool)
    small = torch.ones(64)
    del large
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc's malloc")
def test_a_large_tensor_is_given_the_memory_of_the_last_one() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS, "backend"], capture_output=True, text=True, check=True, timeout=120
    )
    pages = 20 * (1 << 24) // resource.getpagesize()
    assert int(ran.stdout) < pages / 8  # the first two may be new


@pytest.mark.parametrize("error", [OSError, AttributeError, TypeError])
def test_another_c_library_keeps_to_its_own_ways(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """None on Windows, where `CDLL(None)` is a TypeError; no mallopt in it on macOS."""
    asked = []

    def missing(name: object) -> None:
        asked.append(name)
        raise error

    monkeypatch.setattr("device.backends.cpu.ctypes.CDLL", missing)
    keep_freed_memory()
    assert asked == [None]
