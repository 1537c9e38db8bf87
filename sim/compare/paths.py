"""Where the time of a step goes by operator path: every nanosecond under the stack of host operators that caused it.

A kernel's name changes with its library; the operator that asked for it does not. So two profiles are compared by the
path of operators around the launch of each kernel, `forward > aten::linear > aten::addmm`. Time in which nothing runs
goes to the path whose kernel ends it, as idle. The times sum to the step, so their changes sum to its change.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Literal

from scenarios.timeline import Span, Timeline
from sim.compare.classes import is_collective as is_whole_collective
from sim.compare.classes import is_kernel, op_type_of, operation_of

What = Literal["computing", "communication", "idle"]
Key = tuple[What, str]

#: Rows of the comparison; what is left is summed in one row.
MAX_ROWS = 200
REST, BEHIND = "(all others)", "(behind the last kernel)"
#: Operators of a path, the outermost first; deeper ones are the kernel's own business.
MAX_DEPTH = 8
#: Calls on a chain of launches, and calls that only hand on what an operator asked for.
_MAX_CALLS = 8
_HANDS_ON = re.compile(r"launch|^enqueue|^dequeue|memcpy|memset|@|^acl|^cu[A-Z]|^hip[A-Z]|^cuda", re.I)
#: Numbers of layers and instances, which do not make another path.
_NUMBER = re.compile(r"(?<=[_.#: \-\[(])[0-9]+")


def compared_paths(a: Timeline, b: Timeline) -> list[dict[str, Any]]:
    """Rows {path, what, a_us, b_us, a_count, b_count}, the largest change first; their changes sum to the steps'."""
    of_a, of_b = time_by_path(a), time_by_path(b)
    rows = [_row(what, path, of_a, of_b) for what, path in dict.fromkeys((*of_a, *of_b))]
    rows.sort(key=lambda row: (-abs(row["b_us"] - row["a_us"]), row["what"], row["path"]))
    rest = rows[MAX_ROWS:]
    if rest:
        sums = {key: sum(row[key] for row in rest) for key in ("a_us", "b_us", "a_count", "b_count")}
        rows = [*rows[:MAX_ROWS], {"path": REST, "what": "", **sums}]
    return rows


def _row(
    what: What, path: str, of_a: Mapping[Key, tuple[int, int]], of_b: Mapping[Key, tuple[int, int]]
) -> dict[str, Any]:
    (a_ns, a_count), (b_ns, b_count) = of_a.get((what, path), (0, 0)), of_b.get((what, path), (0, 0))
    return {
        "path": path, "what": what, "a_us": a_ns / 1000, "b_us": b_ns / 1000, "a_count": a_count, "b_count": b_count,
    }  # fmt: skip


def time_by_path(timeline: Timeline) -> dict[Key, tuple[int, int]]:
    """(ns, kernels) by what and path; the ns sum to the step. Of kernels that run together the time is the first's;
    computing hides communication."""
    paths = _Paths(timeline)
    times: dict[Key, tuple[int, int]] = {}

    def add(what: What, path: str, ns: int, count: int = 0) -> None:
        before = times.get((what, path), (0, 0))
        times[what, path] = before[0] + ns, before[1] + count

    kernels = [s for s in timeline.spans if is_kernel(s) and s.end_ns > timeline.start_ns]
    kernels = sorted((s for s in kernels if s.start_ns < timeline.end_ns), key=lambda s: (s.start_ns, s.end_ns, s.name))
    computing = [s for s in kernels if not is_whole_collective(s)]
    busy = _exclusive(computing, timeline)
    free = _less(timeline, busy)
    for span, start, end in busy:
        add("computing", paths.of(span), end - start)
    exposed = _within(_exclusive([s for s in kernels if is_whole_collective(s)], timeline), free)
    for span, start, end in exposed:
        add("communication", paths.of(span), end - start)
    for span in kernels:
        add("communication" if is_whole_collective(span) else "computing", paths.of(span), 0, 1)
    starts = [span.start_ns for span in kernels]
    for start, end in _less(timeline, sorted([*busy, *exposed], key=lambda piece: piece[1])):
        at = bisect_left(starts, end)
        add("idle", paths.of(kernels[at]) if at < len(kernels) else BEHIND, end - start)
    return times


Piece = tuple[Span, int, int]


def _exclusive(spans: list[Span], timeline: Timeline) -> list[Piece]:
    """Each span with the time in which none before it runs, within the step."""
    pieces, until = [], timeline.start_ns
    for span in spans:
        start, end = max(span.start_ns, until), min(span.end_ns, timeline.end_ns)
        if end > start:
            pieces.append((span, start, end))
            until = end
    return pieces


def _less(timeline: Timeline, pieces: list[Piece]) -> list[tuple[int, int]]:
    """The time of the step that no piece covers; pieces are disjoint and in order."""
    free, until = [], timeline.start_ns
    for _, start, end in pieces:
        if start > until:
            free.append((until, start))
        until = max(until, end)
    return [*free, (until, timeline.end_ns)] if until < timeline.end_ns else free


def _within(pieces: list[Piece], free: list[tuple[int, int]]) -> list[Piece]:
    """What of the pieces lies in the free time; both in order."""
    kept, at = [], 0
    for span, start, end in pieces:
        while at < len(free) and free[at][1] <= start:
            at += 1
        place = at
        while place < len(free) and free[place][0] < end:
            low, high = max(start, free[place][0]), min(end, free[place][1])
            if high > low:
                kept.append((span, low, high))
            place += 1
    return kept


class _Paths:
    """The operator path of each kernel of a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._spans = timeline.spans
        self._above: dict[int, int] = {}
        self._known: dict[int, str] = {}
        threads: dict[str, list[int]] = {}
        for number, span in enumerate(self._spans):
            if span.process == "Python":
                threads.setdefault(span.thread, []).append(number)
        for numbers in threads.values():
            self._nest(numbers)

    def _nest(self, numbers: list[int]) -> None:
        """Which call encloses each call of a thread."""
        spans, open_calls = self._spans, list[int]()
        for number in sorted(numbers, key=lambda n: (spans[n].start_ns, -spans[n].end_ns, n)):
            while open_calls and spans[open_calls[-1]].end_ns <= spans[number].start_ns:
                open_calls.pop()
            if open_calls:
                self._above[number] = open_calls[-1]
            open_calls.append(number)

    def of(self, kernel: Span) -> str:
        """The path of the operators around the launch of a kernel; its op type where the profile has no launches."""
        name = operation_of(op_type_of(kernel)) if is_whole_collective(kernel) else op_type_of(kernel)
        call = kernel.launched_by
        if call < 0:
            return name
        if call not in self._known:
            self._known[call] = self._path(call)
        return self._known[call] or name

    def _path(self, call: int) -> str:
        for _ in range(_MAX_CALLS):
            above = self._spans[call].launched_by
            if above < 0:
                break
            call = above
        names: list[str] = []
        at: int | None = call
        while at is not None and len(names) < 64:
            name = self._spans[at].name
            if self._spans[at].process == "Python" and not _HANDS_ON.search(name):
                names.append(_NUMBER.sub("#", name))
            at = self._above.get(at)
        return " > ".join(reversed(names[-MAX_DEPTH:]))
