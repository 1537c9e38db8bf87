"""Ranks as processes of this machine: they meet, exchange, answer, and none outlives the run.

Everything waits with a limit. A rank that dies takes the others with it, and the parent says which one it was; a parent
that dies takes its ranks with it, for each watches a pipe that only the parent holds open.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from signal import Signals
from tempfile import TemporaryDirectory
from typing import TypeVar

import torch
import torch.distributed as dist

from device.ranks.groups import Ranks
from device.step.step import Group
from scenarios.errors import ScenarioError, printable

T = TypeVar("T")

#: Longest that a rank waits for the others, and the parent for all of them, seconds.
COLLECTIVE_TIMEOUT_S, RUN_TIMEOUT_S = 60.0, 570.0
#: How long the parent looks for the reason when one rank reports an error: another may have died.
GRACE_S = 2.0


def under_torchrun() -> bool:
    """Whether this process is one of several that torchrun has started."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def joined(collectives: str, ranks: int) -> Group:
    """The group that torchrun's environment describes. Raises ScenarioError where its size is not `ranks`."""
    world = int(os.environ["WORLD_SIZE"])
    if world != ranks:
        raise ScenarioError([f"the scenario has {ranks} ranks, torchrun has started {world} processes"])
    _meet(collectives, "env://", int(os.environ["RANK"]), ranks, COLLECTIVE_TIMEOUT_S)
    return Ranks()


def on_ranks(
    work: Callable[[Group], T],
    ranks: int,
    collectives: str,
    timeout_s: float = RUN_TIMEOUT_S,
    collective_timeout_s: float = COLLECTIVE_TIMEOUT_S,
) -> list[T]:
    """What `work` answers on each of `ranks` new processes, by rank.

    `work` and its answers must survive pickling. Raises ScenarioError, one line, where a rank refuses, fails, dies or
    does not answer in time; no process is left then either.
    """
    context = get_context("spawn")
    started: list[tuple[SpawnProcess, Connection, Connection]] = []
    with TemporaryDirectory() as folder:
        meeting = f"file://{Path(folder) / 'meeting'}"
        try:
            for rank in range(ranks):
                answers, answer = context.Pipe(duplex=False)
                watched, alive = context.Pipe(duplex=False)
                place = (collectives, meeting, rank, ranks, collective_timeout_s)
                process = context.Process(target=_rank, args=(work, place, answer, watched), daemon=True)
                with _deaf_to_interrupts():  # until the process is among those that are ended
                    process.start()
                    answer.close()
                    watched.close()
                    started.append((process, answers, alive))
            return _collect(started, timeout_s)
        finally:
            for process, _, _ in started:
                process.kill()
            for process, answers, alive in started:
                process.join()
                answers.close()
                alive.close()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started inside never hears Ctrl-C, which a terminal sends to parent and ranks alike: the parent ends its
    ranks, and none of them prints where it happened to be. The parent hears it right behind."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starts with the first process otherwise, and lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _meet(collectives: str, method: str, rank: int, ranks: int, timeout_s: float) -> None:
    if collectives == "gloo" and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the ranks are on one machine
    if collectives == "hccl":  # the backend of that name is torch_npu's, and each rank takes its device first
        from device.backends import npu

        torch_npu, number = npu.opened()
        torch_npu.npu.set_device(number)
    if collectives == "nccl":
        from device.backends import cuda

        torch.cuda.set_device(cuda.opened())
    timeout = timedelta(seconds=timeout_s)
    dist.init_process_group(collectives, init_method=method, rank=rank, world_size=ranks, timeout=timeout)


def _rank(
    work: Callable[[Group], T], place: tuple[str, str, int, int, float], answer: Connection, watched: Connection
) -> None:
    """The life of one rank: meet, work, answer."""
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(place[2])  # as torchrun says it: the ranks are on one machine
    has_met = False
    try:
        _meet(*place)
        has_met = True
        answer.send(("done", work(Ranks())))
    except ScenarioError as error:
        answer.send(("refused", error.messages))
    except Exception as error:
        line = printable(f"{type(error).__name__}: {error}".partition("\n")[0], 200)
        # What torch says of a collective that others have left is about them, not about this rank.
        left_alone = isinstance(error, dist.DistError) or any(name in line.lower() for name in ("gloo", "hccl", "nccl"))
        if not has_met:
            answer.send(("did not meet", f"could not set {place[0]} up: {line}"))
        else:
            answer.send(("left alone", line) if left_alone else ("failed", f"failed: {line}"))
    answer.close()
    # Not destroy_process_group: where another rank has died it may wait for it.
    os._exit(0)


def _end_with_parent(watched: Connection) -> None:
    """Wait until the parent's end of the pipe is gone, then go too."""
    try:
        watched.recv()
    except (EOFError, OSError):
        os._exit(1)


def _collect(started: list[tuple[SpawnProcess, Connection, Connection]], timeout_s: float) -> list[T]:
    """The answers of all ranks. Raises ScenarioError for the rank that is to blame where there are not all."""
    results: dict[int, tuple[str, object]] = {}
    deadline = time.monotonic() + timeout_s
    while len(results) < len(started):
        open_ranks = {answers: rank for rank, (_, answers, _) in enumerate(started) if rank not in results}
        ready = wait(open_ranks, max(0.0, deadline - time.monotonic()))
        for answers in ready:
            assert isinstance(answers, Connection)
            rank = open_ranks[answers]
            try:
                results[rank] = answers.recv()
            except EOFError:  # it has ended without a word
                results[rank] = ("died", _ending(started[rank][0]))
        if not ready:
            break
        if any(state != "done" for state, _ in results.values()):
            deadline = min(deadline, time.monotonic() + GRACE_S)
    _raise_the_worst(results, len(started), timeout_s)
    return [results[rank][1] for rank in range(len(started))]  # type: ignore[misc]


def _raise_the_worst(results: dict[int, tuple[str, object]], ranks: int, timeout_s: float) -> None:
    """Raise for the rank that is to blame, if any: those that only noticed that another was not there come last. Of
    those, the first to say so has the cause; `results` are in the order in which they came."""
    for blamed in ("refused", "died", "failed"):
        for rank, (state, what) in sorted(results.items()):
            if state == blamed == "refused":
                assert isinstance(what, tuple)
                raise ScenarioError(what)
            if state == blamed:
                raise ScenarioError([f"rank {rank} of {ranks} {what}; the other ranks were stopped"])
    for rank, (state, what) in results.items():
        if state == "did not meet":
            raise ScenarioError([f"rank {rank} of {ranks} {what}; all ranks were stopped"])
    alone = [str(what) for state, what in results.values() if state == "left alone"]
    why = f" ({alone[0]})" if alone else ""
    if silent := [rank for rank in range(ranks) if rank not in results]:
        what = f"did not come to a collective in time{why}" if alone else f"gave no answer within {timeout_s:g} s"
        raise ScenarioError([f"rank {silent[0]} of {ranks} {what}; all ranks were stopped"])
    if alone:
        raise ScenarioError(
            [f"a collective of {ranks} ranks failed on all that came to it{why}; all ranks were stopped"]
        )


def _ending(process: SpawnProcess) -> str:
    """How a process that has closed its pipe has ended."""
    process.join(GRACE_S)
    code = process.exitcode
    if code is not None and code < 0:
        return f"was ended by {Signals(-code).name}"
    return f"ended with status {code} before it was done"
