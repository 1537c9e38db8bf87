"""One forward pass over a graph: when each task starts, and the timeline that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scenarios.records import dataclass
from scenarios.timeline import Span, Timeline
from sim.imported.replay.graph import Graph, Task


@dataclass(frozen=True, slots=True)
class Replayed:
    """starts_ns, ends_ns: of each task. makespan_ns: from the first rank's start to the last one's end."""

    starts_ns: tuple[int, ...]
    ends_ns: tuple[int, ...]
    makespan_ns: int


def play(graph: Graph) -> Replayed:
    """Every task as early as what it waits for allows; integer nanoseconds, O(tasks + edges).

    The lags of `graph` are such that the graph of a profile replays to the profile's own times.
    """
    starts: list[int] = []
    ends: list[int] = []
    first: int | None = None
    last = 0
    for task in graph.tasks:
        at = None
        for source, at_end, lag_ns, _ in task.after:
            ready = (ends if at_end else starts)[source] + lag_ns
            if at is None or ready > at:
                at = ready
        if at is None:
            at = 0
        starts.append(at)
        ends.append(at + task.duration_ns)
        if task.what == "first":
            first = at if first is None else min(first, at)
        elif task.what == "end":
            last = max(last, at)
    return Replayed(tuple(starts), tuple(ends), last - (first or 0))


def timelines(graph: Graph, schedule: Replayed) -> tuple[Timeline, ...]:
    """The timelines of a replay, one for each rank: what is gone is left out, what is attached moves along.

    Launches still point to their calls. A call or part without a task of its own keeps its distance to the task it is
    attached to, within the collective that it is a part of.
    """
    of_rank: list[list[int]] = [[] for _ in graph.timelines]
    for place, task in enumerate(graph.tasks):
        of_rank[task.rank].append(place)
    return tuple(_timeline(graph, schedule, rank, places) for rank, places in enumerate(of_rank))


def _timeline(graph: Graph, schedule: Replayed, rank: int, places: Sequence[int]) -> Timeline:
    measured = graph.timelines[rank]
    start, end = measured.start_ns, measured.end_ns
    placed: list[tuple[Span, int]] = []  # a span with its old number
    for place in places:
        task, at, until = graph.tasks[place], schedule.starts_ns[place], schedule.ends_ns[place]
        if task.what == "first":
            start = at
        elif task.what == "end":
            end = at
        if task.removed:
            continue
        moved = at - graph.starts_ns[place]
        low, spared = at, False
        if task.span is not None:
            own = _own(graph, schedule, place, task.span, moved)
            low = own.start_ns
            spared = low == at and task.span.start_ns < graph.starts_ns[place]
            placed.append((own, task.number))
        for number in graph.attached.get(place, ()):
            span = measured.spans[number]
            if spared and span.kind in ("wait", "notify_wait"):
                continue  # a collective that no longer waits
            part = _part(span, task, moved, low, until)
            if part is not None:
                placed.append((part, number))
    placed.sort(key=lambda entry: (entry[0].start_ns, entry[0].end_ns, entry[1]))
    went = {number: new for new, (_, number) in enumerate(placed) if number >= 0}
    spans = tuple(replace(span, launched_by=went.get(span.launched_by, -1)) for span, _ in placed)
    return replace(measured, spans=spans, start_ns=min(start, end), end_ns=end)


def _own(graph: Graph, schedule: Replayed, place: int, span: Span, moved: int) -> Span:
    """A task's own span with the task's new times. A wait starts where what it follows let it, and ends with the task:
    the host's wait with its call, a collective with its arrival, a stream's wait behind the task before it."""
    task, at, until = graph.tasks[place], schedule.starts_ns[place], schedule.ends_ns[place]
    if task.what == "host":  # a call that holds others is a task only up to the first of them
        return replace(span, start_ns=at, end_ns=at + span.duration_ns)
    if task.what == "kernel":
        return replace(span, start_ns=at, end_ns=until)
    start = at
    for source, _, _, why in task.after:
        if why == "thread" or (why == "meet" and graph.tasks[source].rank == task.rank):
            start = schedule.starts_ns[source]
        elif why == "queue":
            start = max(span.start_ns + moved, schedule.ends_ns[source])
    return replace(span, start_ns=max(0, min(start, at)), end_ns=max(at, until))


def _part(span: Span, task: Task, moved: int, low: int, until: int) -> Span | None:
    """An attached span; of a collective what lies within it."""
    start, end = max(0, span.start_ns + moved), max(0, span.end_ns + moved)
    if task.what != "transfer":
        return replace(span, start_ns=start, end_ns=end)
    start, end = max(low, start), min(until, end)
    return replace(span, start_ns=start, end_ns=end) if end > start or span.duration_ns == 0 else None
