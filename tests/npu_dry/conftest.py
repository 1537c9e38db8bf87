"""Tier 1: torch_npu's real wheel in this process, over stand-ins for CANN. A missing wheel fails; it does not skip."""

from __future__ import annotations

from tests.npu_dry import stubs

stubs.load(stubs.built("stub"))

import json  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import pytest  # noqa: E402
import torch  # noqa: E402
import torch_npu  # noqa: E402

from tests.npu_dry import references  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

TIERS = {
    1: "the wheel's schemas and meta kernels",
    2: "the wheel on a dry runtime, which keeps books and computes nothing",
    3: "the wheel on a dry runtime, with the project's own CPU kernels for numbers",
}


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)
    references.register()


def pytest_report_header() -> list[str]:
    tiers = [f"tier {number}: {what}" for number, what in TIERS.items()]
    return [f"torch_npu {torch_npu.__version__} with no NPU and no CANN; nothing below was measured on Ascend", *tiers]


@dataclass(frozen=True)
class Ran:
    """A process on the dry runtime that has ended: what it answered, and every call of the runtime in order."""

    answer: dict[str, Any]
    trace: list[dict[str, Any]]

    def between(self, start: int, end: int) -> list[dict[str, Any]]:
        """The calls between two marks."""
        return self.trace[start:end]

    def capture(self, marks: list[list[int]]) -> list[dict[str, Any]]:
        """The calls inside the one capture between the first of `marks` and the last."""
        calls = self.between(marks[0][0], marks[-1][1])
        places = {kind: [i for i, call in enumerate(calls) if call["k"] == kind] for kind in BOUNDS}
        (start,), (end,) = places.values()
        return calls[start + 1 : end]


BOUNDS = ("capture_begin", "capture_end")
#: Longest that a process may take, seconds: ten times what it takes on a machine of its own.
PATIENCE_S = 280


class Dry:
    """Runs a function of dry.py in a process of its own, or in one a rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, what: str) -> Ran:
        (ran,) = self.ranks(what, 1)
        return ran

    def ranks(self, what: str, count: int) -> list[Ran]:
        """One process a rank, with the environment that torchrun gives them. Fails where one ends badly."""
        stubs.built("dry")  # once, before several would
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        started = []
        for rank in range(count):
            folder = self.folder / f"{what}-{rank}"
            folder.mkdir()
            environment = {**os.environ, "DRYCANN_DEVICES": str(count)}
            if count > 1:
                environment |= {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(count),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port,
                }
            command = [sys.executable, "-m", "tests.npu_dry.dry", what, str(folder)]
            pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            started.append((folder, subprocess.Popen(command, cwd=ROOT, env=environment, **pipe)))
        return [_ended(folder, process) for folder, process in started]


def _ended(folder: Path, process: subprocess.Popen[str]) -> Ran:
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    assert process.returncode == 0, said
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return Ran(answer, stubs.read_trace(folder / "trace.jsonl"))


@pytest.fixture(scope="session")
def dry(tmp_path_factory: pytest.TempPathFactory) -> Dry:
    return Dry(tmp_path_factory.mktemp("dry"))
