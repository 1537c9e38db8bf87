"""A graph in the making: tasks with their measured starts, and edges whose lags give exactly those."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sim.imported.replay.graph import Edge, Task, Why


@dataclass(slots=True)
class Draft:
    """tasks and starts_ns: by number. attached: spans that move with a task. starts: the start of each rank."""

    tasks: list[Task] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    attached: dict[int, tuple[int, ...]] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)

    def add(self, task: Task, start_ns: int) -> int:
        """Append a task and return its number."""
        self.tasks.append(task)
        self.starts_ns.append(start_ns)
        return len(self.tasks) - 1

    def attach(self, task: int, spans: Iterable[int]) -> None:
        """Let spans move with a task, next to those that do already."""
        self.attached[task] = (*self.attached.get(task, ()), *spans)

    def end_ns(self, number: int) -> int:
        """When the task ended as measured."""
        return self.starts_ns[number] + self.tasks[number].duration_ns

    def slack_ns(self, source: int, target: int) -> int:
        """From the end of the source to the start of the target; below 0 where they overlap."""
        return self.starts_ns[target] - self.end_ns(source)

    def free_ns(self, edge: Edge) -> int:
        """When what the edge waits for happened."""
        return self.end_ns(edge.source) if edge.at_end else self.starts_ns[edge.source]

    def edge(self, source: int, target: int, why: Why, usual_ns: int | None) -> Edge:
        """An edge with all of its slack as lag, or with the usual lag where that is less; from the source's start
        where the target does not wait for its end."""
        slack = self.slack_ns(source, target)
        at_end = slack >= 0
        if not at_end:
            slack = max(0, self.starts_ns[target] - self.starts_ns[source])
        return Edge(source, at_end, slack if usual_ns is None else min(slack, usual_ns), why)

    def connect(self, target: int, wanted: Sequence[Edge]) -> None:
        """Give a task its edges, and the one that is free last the lag that makes the task start as measured.

        A lag that would make it later is cut down; an edge whose cause came later than the task is left out. One that
        has none left waits for the start of its rank.
        """
        at = self.starts_ns[target]
        kept: list[Edge] = []
        latest = -1
        latest_ns, exact = 0, False
        for edge in wanted:
            free = self.free_ns(edge)
            if free > at:
                continue
            lag = min(edge.lag_ns, at - free)
            exact = exact or free + lag == at
            if latest < 0 or free >= latest_ns:
                latest, latest_ns = len(kept), free
            kept.append(edge if lag == edge.lag_ns else Edge(edge.source, edge.at_end, lag, edge.why))
        if not kept:
            start = self.offsets[self.tasks[target].rank]
            kept = [Edge(start, False, at - self.starts_ns[start], "mark")]
        elif not exact:
            kept[latest] = kept[latest]._replace(lag_ns=at - latest_ns)
        self.tasks[target] = self.tasks[target]._replace(after=tuple(kept))


class Ends:
    """The ends of the tasks of each lane in order, to find what ended last before a time."""

    def __init__(self, draft: Draft, lanes: Mapping[str, Sequence[int]]) -> None:
        self._all: dict[str, list[tuple[int, int]]] = {}
        self._collectives: dict[str, list[tuple[int, int]]] = {}
        for lane, numbers in lanes.items():
            ends = sorted((draft.end_ns(n), n) for n in numbers if draft.tasks[n].what != "arrive")
            self._all[lane] = ends
            moved = [end for end in ends if draft.tasks[end[1]].what == "transfer"]
            if moved:
                self._collectives[lane] = moved

    def of_lanes(self, at_ns: int) -> list[int]:
        """The task of each lane that ended last at `at_ns` or before."""
        return [last[1] for ends in self._all.values() if (last := _last(ends, at_ns)) is not None]

    def before(self, at_ns: int, but: str) -> int | None:
        """The task of any lane but one that ended last at `at_ns` or before."""
        return _latest(self._all, at_ns, but)

    def collective_before(self, at_ns: int, but: str) -> int | None:
        """The collective of any lane but one that ended last at `at_ns` or before."""
        return _latest(self._collectives, at_ns, but)


def _last(ends: Sequence[tuple[int, int]], at_ns: int) -> tuple[int, int] | None:
    place = bisect_right(ends, (at_ns, 1 << 62)) - 1
    return ends[place] if place >= 0 else None


def _latest(lanes: Mapping[str, Sequence[tuple[int, int]]], at_ns: int, but: str) -> int | None:
    latest = [
        latest_end for lane, ends in lanes.items() if lane != but and (latest_end := _last(ends, at_ns)) is not None
    ]
    return max(latest)[1] if latest else None
