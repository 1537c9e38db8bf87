"""A graph being changed by a what-if: tasks left out or given other lengths, calls that launch nothing any more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from sim.compare.classes import op_type_of
from sim.imported.replay.graph import Edge, Graph, Task

_POINT_TO_POINT = re.compile(r"send|recv|receive", re.I)


class Change:
    """A copy of a graph's tasks, under change. The numbers of tasks stay, so causes still come before effects.

    made: how often the what-if applied. saved_calls: calls of the host that are left out.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tasks = list(graph.tasks)
        self.places = self.saved_calls = 0

    def finished(self) -> Graph:
        """The changed graph."""
        return replace(self.graph, tasks=tuple(self.tasks))

    def caller(self, number: int) -> int | None:
        """The call that launched a task (or that handed a call over), None where the profile does not say."""
        caller = self.graph.callers[number]
        return caller if caller >= 0 else None

    def launched(self, call: int) -> list[int]:
        """The tasks that a call launched or handed over."""
        return self.graph.launched.get(call, [])

    def arrival(self, number: int) -> int:
        """The task at which a collective arrives; of any other task itself."""
        task = self.tasks[number]
        own = (e.source for e in task.after if e.why == "meet" and self.tasks[e.source].rank == task.rank)
        return next(own, number)

    def root(self, number: int) -> int | None:
        """The first call of the chain that launched a task."""
        caller = self.caller(number)
        for _ in range(8):
            if caller is None or (above := self.caller(caller)) is None:
                break
            caller = above
        return caller

    def kernels(self) -> Iterator[tuple[int, Task]]:
        """Kernels that are still there, in order."""
        for number, task in enumerate(self.tasks):
            if task.what == "kernel" and not task.removed and task.span is not None:
                yield number, task

    def lanes(self) -> dict[tuple[int, str], list[int]]:
        """The tasks of each stream of each rank that are still there, in order of the stream."""
        lanes: dict[tuple[int, str], list[int]] = {}
        for number, task in enumerate(self.tasks):
            if task.on_device and not task.removed:
                lanes.setdefault((task.rank, task.lane), []).append(number)
        return lanes

    def set_duration(self, number: int, duration_ns: int) -> None:
        """Give a task another length."""
        self.tasks[number] = self.tasks[number]._replace(duration_ns=max(0, duration_ns))

    def call_lasts(self, call: int, duration_ns: int) -> None:
        """Give a call another length, its span too."""
        task = self.tasks[call]
        span = task.span
        if span is not None:
            longer = duration_ns - task.duration_ns
            span = replace(span, end_ns=max(span.start_ns, span.end_ns + longer))
        self.tasks[call] = task._replace(duration_ns=max(0, duration_ns), span=span)

    def remove(self, numbers: Iterable[int]) -> None:
        """Leave kernels or collectives out, and the calls that launched nothing else."""
        removed = list(numbers)
        for number in removed:
            self._gone(number, lambda e: at_once(e) if e.why in ("queue", "meet") else e)
        for number in removed:
            self._spare_calls(self.caller(number))

    def _gone(self, number: int, edge: Callable[[Edge], Edge]) -> None:
        task = self.tasks[number]
        after = tuple(edge(e) for e in task.after if not task.on_device or not self._dropped(number, e))
        self.tasks[number] = task._replace(duration_ns=0, after=after, removed=True)

    def _dropped(self, number: int, edge: Edge) -> bool:
        """Whether a task that is left out no longer waits for it: its call, and the other ranks of a collective.

        What one rank sends, another needs all the same.
        """
        if edge.why == "meet":
            return self.tasks[edge.source].rank != self.tasks[number].rank and not self.carries(number)
        return edge.why == "launch"

    def carries(self, number: int) -> bool:
        """Whether a collective is point to point: its wait is for data, and no balance of ranks saves it."""
        span = self.tasks[number].span
        return span is not None and bool(_POINT_TO_POINT.search(span.name))

    def _spare_calls(self, call: int | None) -> None:
        """Leave a call out of which nothing is left, and the call that handed it over."""
        while call is not None and not self.tasks[call].removed:
            if self.tasks[call].what != "host" or not all(self.tasks[n].removed for n in self.launched(call)):
                return
            self.spare_call(call)
            call = self.caller(call)

    def spare_call(self, call: int) -> None:
        """Leave a call out, with the host's work since the call before it on its thread."""
        self._gone(call, at_once)
        self.saved_calls += 1


def at_once(edge: Edge) -> Edge:
    """The edge without its lag."""
    return edge if not edge.lag_ns else Edge(edge.source, edge.at_end, 0, edge.why)


def op_types(change: Change, numbers: Iterable[int]) -> list[str]:
    """The op types of tasks, "" for what is no kernel."""
    names = []
    for number in numbers:
        task = change.tasks[number]
        names.append(op_type_of(task.span) if task.what == "kernel" and task.span else "")
    return names
