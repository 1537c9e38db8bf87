"""How torch_npu splits a step into computing, communication, overlap and free time, from the events of a capture.

Its lanes "Overlap Analysis" cover the whole capture: computing is the union of kernels, communication the union of
collectives, free what lies between the first and the last of them and belongs to neither. A piece of such a lane
counts for the first step in whose window it starts, and counts there as a whole. Copies, waits between streams and
the tasks of a collective are neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scenarios.profile.table import Capture, Events, Int64, Kind, Step
from scenarios.timeline import StepTime

#: Disjoint intervals in order: starts and ends.
Intervals = tuple[Int64, Int64]


def merged(start_ns: Int64, end_ns: Int64) -> Intervals:
    """The union of intervals [start, end) as disjoint ones in order; empty intervals vanish."""
    keep = end_ns > start_ns
    start_ns, end_ns = start_ns[keep], end_ns[keep]
    if not len(start_ns):
        return start_ns, end_ns
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    reach = np.maximum.accumulate(end_ns)
    first = np.concatenate(([True], start_ns[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start_ns[first], reach[last]


def minus(a: Intervals, b: Intervals) -> Intervals:
    """What of `a` is not in `b`; both disjoint and in order, as `merged` gives them."""
    if not len(a[0]):
        return a
    # Only what meets an interval of `a` can cut it.
    at = np.searchsorted(a[1], b[0], side="right")
    meets = at < len(a[0])
    meets[meets] = a[0][at[meets]] < b[1][meets]
    b = b[0][meets], b[1][meets]
    edges = np.unique(np.concatenate((*a, *b)))
    left, right = edges[:-1], edges[1:]
    keep = _inside(left, a) & ~_inside(left, b)
    # Not merged again: `a` cut at the borders of `b` only differs from `a` cut at its own by nothing.
    return merged(left[keep], right[keep])


def _inside(points: Int64, intervals: Intervals) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether each point lies in one of the disjoint intervals."""
    starts, ends = intervals
    at = np.searchsorted(starts, points, side="right") - 1
    inside: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = np.zeros(len(points), dtype=bool)
    held = at >= 0
    inside[held] = points[held] < ends[at[held]]
    return inside


def length(intervals: Intervals) -> int:
    """Total length, ns."""
    return int((intervals[1] - intervals[0]).sum())


def overlap_lanes(events: Events) -> tuple[Intervals, Intervals, Intervals, Intervals]:
    """torch_npu's four lanes over the whole capture: Computing, Communication, Communication(Not Overlapped), Free."""
    computing, communication = (_union(events, kind) for kind in (Kind.KERNEL, Kind.COLLECTIVE))
    busy = merged(np.concatenate((computing[0], communication[0])), np.concatenate((computing[1], communication[1])))
    free = busy[1][:-1], busy[0][1:]
    return computing, communication, minus(communication, computing), free


def _union(events: Events, kind: Kind) -> Intervals:
    rows = events.rows(kind)
    return merged(events.start_ns[rows], events.end_ns[rows])


def step_time_of(capture: Capture, step: Step) -> StepTime:
    """The time of one step of `capture`; of many, `step_times_of` works them out together."""
    return step_times_of(capture)[capture.steps.index(step)]


def step_times_of(capture: Capture) -> list[StepTime]:
    """The time of each step of `capture`. Waiting is as `waiting_lanes` has it."""
    return step_times(capture.events, capture.steps, waiting_lanes(capture.events, capture.collective_waits_ns))


def step_times(events: Events, steps: Sequence[Step], waiting: Intervals) -> list[StepTime]:
    """The time of each step, as step_trace_time.csv has it: total = computing + communication not overlapped + free."""
    sums = [_by_step(lane, steps) for lane in (*overlap_lanes(events), waiting)]
    times = []
    for step, (computing, communication, exposed, between, wait) in zip(steps, zip(*sums, strict=True), strict=True):
        free = step.end_ns - step.start_ns - computing - exposed if step.whole else between
        times.append(
            StepTime(
                total_ns=computing + exposed + free,
                computing_ns=computing,
                communication_ns=communication,
                communication_not_overlapped_ns=exposed,
                communication_wait_ns=wait,
                overlapped_ns=communication - exposed,
                free_ns=free,
            )
        )
    return times


def _by_step(lane: Intervals, steps: Sequence[Step]) -> list[int]:
    """The length of the intervals that start in each step's window; the first window that holds a start has it. Of
    steps that are whole, what of the intervals lies in them."""
    starts, ends = lane
    if steps and all(step.whole for step in steps):
        return [
            int(np.clip(np.minimum(ends, step.end_ns) - np.maximum(starts, step.start_ns), 0, None).sum())
            for step in steps
        ]
    from_ns = np.array([step.start_ns for step in steps], dtype=np.int64)
    until = np.array([step.end_ns for step in steps], dtype=np.int64)
    if (np.diff(from_ns) >= 0).all() and (np.diff(until) >= 0).all():
        at = np.searchsorted(until, starts, side="right")
        held = at < len(steps)
        held[held] = from_ns[at[held]] <= starts[held]
        sums = np.zeros(len(steps), dtype=np.int64)
        np.add.at(sums, at[held], (ends - starts)[held])
        return [int(total) for total in sums]
    free, by_step = np.ones(len(starts), dtype=bool), []
    for start, end in zip(from_ns, until, strict=True):
        here = free & (starts >= start) & (starts < end)
        by_step.append(int((ends[here] - starts[here]).sum()))
        free &= ~here
    return by_step


def waiting_lanes(events: Events, waits_ns: Mapping[int, int]) -> Intervals:
    """When collectives wait and move nothing. waits_ns: what communication.json says each waited, by row.

    Where the capture has the tasks of its collectives: some plane waits, none transfers, and the time lies in a
    collective. Where it has not: the end of each collective less what communication.json says it waited is taken for
    its transfer, so the wait stands at its start.
    """
    collectives = _union(events, Kind.COLLECTIVE)
    waits, transfers = (_union(events, kind) for kind in (Kind.WAIT, Kind.TRANSFER))
    if len(waits[0]) or len(transfers[0]):
        alone = minus(waits, transfers)
        return minus(alone, minus(alone, collectives))
    rows = np.fromiter(waits_ns, dtype=np.int64, count=len(waits_ns))
    waited = np.fromiter(waits_ns.values(), dtype=np.int64, count=len(rows))
    starts = events.start_ns[rows]
    return merged(starts, starts + np.minimum(waited, events.duration_ns[rows]))
