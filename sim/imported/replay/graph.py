"""The dependency graph of measured steps: tasks, what each waits for, and an order with all causes first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from scenarios.records import dataclass
from scenarios.timeline import Span, Timeline

#: host: a call that launches or starts a wait. synchronise: the end of the host's wait for the device. kernel: anything
#: that a stream executes. wait: a stream's wait for another one, at its end. arrive, transfer: the two halves of a
#: collective. start, first, end: marks of a rank's step.
What = Literal["host", "synchronise", "kernel", "wait", "arrive", "transfer", "begin", "first", "end"]

#: thread: the call before on its thread. queue: the task before on its stream. launch: from the call to what it
#: launched. event: recorded by the profile. inferred: read off the times. meet: the arrival of a rank at a collective.
#: drain: the device's last task before the host went on. mark: a step's start.
Why = Literal["thread", "queue", "launch", "event", "inferred", "meet", "drain", "mark"]


class Edge(NamedTuple):
    """The target starts no earlier than `lag_ns` after the end of task `source` (after its start, unless at_end)."""

    source: int
    at_end: bool
    lag_ns: int
    why: Why


class Task(NamedTuple):
    """One node. span: what the profile has for it, None for marks; number: its place in its timeline. gone: left out
    by a what-if; it takes no time but still passes on what it waited for."""

    what: What
    rank: int
    lane: str
    duration_ns: int
    after: tuple[Edge, ...]
    span: Span | None = None
    number: int = -1
    removed: bool = False

    @property
    def on_device(self) -> bool:
        return self.what in ("kernel", "wait", "arrive", "transfer")


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps of one or more ranks on one clock.

    tasks: causes before effects; `Task.rank` is the place in `timelines`, which are as measured. starts_ns: when each
    started as measured. attached: the spans that move with a task (parts of a collective, calls between two launches).
    callers: see `callers`; launched: the other way round. notes: what was inferred or assumed in rebuilding. launch_ns,
    gap_ns: the usual time from a call's return to its kernel, and between two kernels of a stream that does not wait
    for the host.
    """

    tasks: tuple[Task, ...]
    starts_ns: tuple[int, ...]
    attached: dict[int, tuple[int, ...]]
    timelines: tuple[Timeline, ...]
    callers: tuple[int, ...]
    launched: dict[int, list[int]]
    notes: tuple[str, ...]
    launch_ns: int
    gap_ns: int


def ordered(tasks: Sequence[Task], times: Sequence[int]) -> list[int]:
    """The numbers of `tasks` in an order with causes first; of those that are ready the earliest first.

    times: when each task starts, ns; no cause starts after its effect. Where tasks of no duration wait for each other
    in a ring, the earliest goes first all the same; its edges to later ones are for the caller to drop.
    """
    missing = [len({edge.source for edge in task.after}) for task in tasks]
    followers: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        for source in {edge.source for edge in task.after}:
            followers[source].append(number)
    ready = [(times[n], n) for n, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    done = bytearray(len(tasks))
    rest = iter(sorted(range(len(tasks)), key=lambda n: (times[n], n)))
    while len(order) < len(tasks):
        number = heapq.heappop(ready)[1] if ready else next(n for n in rest if not done[n])
        if done[number]:
            continue
        done[number] = 1
        order.append(number)
        for follower in followers[number]:
            missing[follower] -= 1
            if missing[follower] == 0 and not done[follower]:
                heapq.heappush(ready, (times[follower], follower))
    return order


def renumbered(tasks: Sequence[Task], order: Sequence[int]) -> tuple[Task, ...]:
    """`tasks` in `order`, their edges renumbered; an edge from a task that comes later is left out."""
    place = [0] * len(order)
    for new, old in enumerate(order):
        place[old] = new
    return tuple(
        tasks[old]._replace(
            after=tuple(Edge(place[e.source], *e[1:]) for e in tasks[old].after if place[e.source] < new)
        )
        for new, old in enumerate(order)
    )


def callers(tasks: Sequence[Task]) -> tuple[int, ...]:
    """For each task the call that launched it or handed it over, -1 where the profile does not say."""
    called = ("host", "synchronise")
    call = {(t.rank, t.number): n for n, t in enumerate(tasks) if t.number >= 0 and t.what in called}
    return tuple(call.get((t.rank, t.span.launched_by), -1) if t.span is not None else -1 for t in tasks)


def edges(tasks: Iterable[Task], why: Why) -> int:
    """How many edges of a kind there are."""
    return sum(edge.why == why for task in tasks for edge in task.after)
