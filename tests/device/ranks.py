"""What ranks do in tests: they are processes of their own, so it must be importable."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import torch

from device.backends import choose
from device.numerics import Run, generate
from device.session import Options, Session
from device.step import Group
from device.weights import RandomCheckpoint
from scenarios.model import Model
from scenarios.schema import Scenario


@dataclass(frozen=True)
class Case:
    """A run on tensor-parallel ranks, on the tokens of a run of one rank."""

    scenario: Scenario
    model: Model
    options: Options
    prompts: list[list[int]]
    forced: list[list[int]]
    backend: str = "cpu"

    def run(self, group: Group | None) -> Run:
        weights = RandomCheckpoint(self.model, 0)
        at_work = Session(self.scenario, self.model, choose(self.backend), weights, group, self.options)
        return generate(at_work, self.prompts, len(self.forced), self.forced)


@dataclass(frozen=True)
class Cases:
    """Several runs in one set of processes, which are slow to start."""

    cases: dict[str, Case]

    def __call__(self, group: Group) -> dict[str, tuple[list[list[int]], list[list[list[float]]]]]:
        found = {name: case.run(group) for name, case in self.cases.items()}
        return {name: (run.tokens, run.logits.tolist()) for name, run in found.items()}


def rank_1_dies(group: Group) -> None:
    """In a collective that the other waits in."""
    if group.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    group.all_reduce(torch.ones(1))


def rank_1_dies_on_a_gpu(group: Group) -> None:
    """The same over NCCL: the other waits for the device, not for the call."""
    if group.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    group.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()


def rank_1_never_comes(group: Group) -> None:
    if group.rank:
        time.sleep(600)
    group.all_reduce(torch.ones(1))


def rank_1_fails(group: Group) -> None:
    if group.rank:
        raise ValueError("a shape that does not fit\nand more")
    group.all_reduce(torch.ones(1))


def process_id(group: Group) -> int:
    """Of this rank; then it waits for the end of its parent."""
    group.all_reduce(torch.ones(1))
    os.write(1, f"{os.getpid()}\n".encode())  # in one piece: both ranks write into one pipe
    time.sleep(600)
    return os.getpid()
