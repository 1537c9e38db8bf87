"""What ranks do in tests: they are processes of their own, so it must be importable."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import torch

from device.backends import choose
from device.measure.answer import Task
from device.measure.numerics import Run, generate
from device.operators.exchange import INCOMING
from device.operators.experts import SENT
from device.ranks.groups import groups_of
from device.run.host_inputs import Requests
from device.run.session import Options, Phase, Session
from device.step.step import COUNTS, Group, Groups, Step
from device.weights.weights import RandomCheckpoint
from scenarios.models.model import Model
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

    def run(self, group: Group | Groups | None) -> Run:
        weights = RandomCheckpoint(self.model, 0)
        at_work = Session(self.scenario, self.model, choose(self.backend), weights, group, self.options)
        return generate(at_work, self.prompts, len(self.forced), self.forced)


@dataclass(frozen=True)
class Cases:
    """Several runs in one set of processes, which are slow to start."""

    cases: dict[str, Case]

    def __call__(self, group: Group) -> dict[str, tuple[list[list[int]], list[list[list[float]]]]]:
        result = {name: case.run(group) for name, case in self.cases.items()}
        return {name: (run.tokens, run.logits.tolist()) for name, run in result.items()}


@dataclass(frozen=True)
class SpreadCase:
    """A run whose experts are spread over `tensor` x `replicas` ranks, each replica with prompts of its own.

    forced: tokens of each replica [replicas][steps][requests].
    """

    scenario: Scenario
    model: Model
    options: Options
    prompts: list[list[list[int]]]
    forced: list[list[list[int]]]
    tensor: int = 2
    replicas: int = 1

    def run(self, groups: Groups) -> tuple[Run, list[dict[str, list[int]]]]:
        """What this rank's replica computes, and of each step who was sent where."""
        at_work = Session(
            self.scenario, self.model, choose("cpu"), RandomCheckpoint(self.model, 0), groups, self.options
        )
        seen, step_of = [], at_work.run

        def noted(phase: Phase, requests: Requests) -> Step:
            step = step_of(phase, requests)
            kept = {key: step.values[key] for key in (SENT, INCOMING, COUNTS) if key in step.values}
            seen.append(
                {key: value.flatten().tolist() for key, value in kept.items()} | {"tokens": [step.layout.tokens]}
            )
            return step

        at_work.run = noted  # type: ignore[method-assign]
        forced = self.forced[groups.replica]
        return generate(at_work, self.prompts[groups.replica], len(forced), forced), seen


@dataclass(frozen=True)
class SpreadCases:
    """Several of them in one set of processes."""

    cases: dict[str, SpreadCase]

    def __call__(self, world: Group) -> dict[str, object]:
        known: dict[tuple[int, int], Groups] = {}
        result: dict[str, object] = {}
        for name, case in self.cases.items():
            sizes = (case.tensor, case.replicas)
            if sizes not in known:
                known[sizes] = groups_of(world, case.tensor, 1, case.replicas)
            run, seen = case.run(known[sizes])
            result[name] = (run.tokens, run.logits.tolist(), seen)
        return result


@dataclass(frozen=True)
class StageCases:
    """Runs on two stages of `tensor` ranks in one set of processes, and one measurement: on each rank."""

    cases: dict[str, Case]
    tensor: int
    measure: Task | None = None

    def __call__(self, world: Group) -> dict[str, object]:
        groups = groups_of(world, self.tensor, 2)
        result: dict[str, object] = {}
        for name, case in self.cases.items():
            run = case.run(groups)
            result[name] = (run.tokens, run.logits.tolist())
        if self.measure is not None:
            result["measured"] = self.measure(world).document
        return result


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


def hears_ctrl_c(group: Group) -> bool:
    return signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def process_id(group: Group) -> int:
    """Of this rank; then it waits for the end of its parent."""
    group.all_reduce(torch.ones(1))
    os.write(1, f"{os.getpid()}\n".encode())  # in one piece: both ranks write into one pipe
    time.sleep(600)
    return os.getpid()
