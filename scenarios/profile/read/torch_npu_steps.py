"""Which events belong to which step, as torch_npu decides it.

A step's window on the device starts with the first thing that the host launched inside its mark (`ProfilerStep#N`)
and ends with the last, or with the mark where that is later. What starts in the window belongs to the step.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from scenarios.profile.issue import issued_ns
from scenarios.profile.read.kernel_details import KernelDetails
from scenarios.profile.read.marks import Family, chosen, family_of, step_ids
from scenarios.profile.table import NO_ROW, Events, Int32, Int64, Kind, Step

_DEVICE = tuple(k for k in Kind if k not in (Kind.HOST, Kind.STEP))


def steps_of_marks(events: Events, texts: tuple[str, ...]) -> tuple[Events, tuple[Step, ...]]:
    """The steps of a trace, one without a name over all of it where it has no marks; and the events, in which marks of
    other families than the chosen one are calls of the host."""
    device = events.rows(*_DEVICE)
    if not len(device):
        return events, ()
    issued = issued_ns(events, device)
    order = np.argsort(issued, kind="stable")
    issued, device = issued[order], device[order]
    family = chosen(_families(events, texts, issued))
    candidates = events.rows(Kind.STEP)
    marks = np.array(family.rows if family else (), dtype=np.intp)
    if len(candidates) > len(marks):
        kind = events.kind.copy()
        kind[np.setdiff1d(candidates, marks)] = Kind.HOST
        events = replace(events, kind=kind)
    if not len(marks):
        return events, (whole(events),)
    steps = []
    ids = step_ids([texts[int(events.name[mark])] for mark in marks])
    ends_ns = _mark_ends(events, marks, issued, family.name if family else "")
    for name, mark, end in zip(ids, marks.tolist(), ends_ns, strict=True):
        start = int(events.start_ns[mark])
        first, last = np.searchsorted(issued, start, side="left"), np.searchsorted(issued, end, side="right")
        mine = device[first:last]
        start_ns = int(events.start_ns[mine].min()) if len(mine) else start
        ends = events.start_ns[mine] + events.duration_ns[mine]
        end_ns = max(int(ends.max()), end) if len(mine) else end
        steps.append(Step(name, start_ns, end_ns, start, end))
    return events, tuple(steps)


def _mark_ends(events: Events, marks: Int64, issued: Int64, family: str) -> list[int]:
    """Where each mark's step ends on the host: with the mark. Engines mark a forward pass and sample behind it: where
    something was launched between two such marks, the step lasts to the next mark. issued: as `_families` has it."""
    starts, ends = events.start_ns[marks], events.start_ns[marks] + events.duration_ns[marks]
    if family == "ProfilerStep":
        return [int(end) for end in ends]
    between = np.searchsorted(issued, starts[1:], side="left") > np.searchsorted(issued, ends[:-1], side="right")
    return [*np.where(between, starts[1:] - 1, ends[:-1]).tolist(), int(ends[-1])]


def _families(events: Events, texts: tuple[str, ...], issued: Int64) -> list[Family]:
    """The families of marks. issued: when each device row was issued, in order; -1 where unknown."""
    launches = issued[issued >= 0]
    rows_of: dict[str, list[int]] = {}
    for row in events.rows(Kind.STEP).tolist():
        rows = rows_of.setdefault(family_of(texts[int(events.name[row])]), [])
        # A mark within the one before it, of a thread that marks the same step, is no step of its own.
        if not rows or int(events.start_ns[row]) >= events.end_ns_of(rows[-1]):
            rows.append(row)
    families = []
    for name, rows in rows_of.items():
        starts = events.start_ns[rows]
        ends = starts + events.duration_ns[rows]
        inside = np.searchsorted(launches, ends, side="right") - np.searchsorted(launches, starts, side="left")
        covered = float(inside.sum()) / len(launches) if len(launches) else _tiled(starts, ends)
        families.append(Family(name, tuple(rows), covered))
    return families


def _tiled(starts: Int64, ends: Int64) -> float:
    """The share of the time from the first mark to the end of the last that marks cover."""
    return float((ends - starts).sum()) / max(1, int(ends[-1] - starts[0]))


def whole(events: Events) -> Step:
    """All of a capture as one step without a name."""
    device = events.rows(*_DEVICE)
    host = events.rows(Kind.HOST)
    start, end = int(events.start_ns[device].min()), int(events.end_ns[device].max())
    host_begin = min(start, int(events.start_ns[host].min())) if len(host) else start
    return Step("", start, end + 1, host_begin, max(end, int(events.end_ns[host].max())) if len(host) else end)


def steps_of_ids(
    events: Events, details: KernelDetails, texts: tuple[str, ...]
) -> tuple[tuple[Step, ...], Int32 | None]:
    """The steps that kernel_details.csv names: from the first start of a step to its last end; and where they overlap
    the step of each row, NO_ROW for none. events: the rows of the table, in order of start (then the longer first)."""
    starts, numbers = details.starts(), details.column("step")
    ends = starts + details.column("duration_ns")
    steps = []
    for number in np.unique(numbers).tolist():
        if not texts[number]:
            continue
        here = numbers == number
        start, end = int(starts[here].min()), int(ends[here].max())
        steps.append(Step(texts[number], start, end, start, end))
    if not steps:
        return (whole(events),), None
    steps.sort(key=lambda step: step.start_ns)
    if all(one.end_ns < other.start_ns for one, other in pairwise(steps)):
        return tuple(steps), None
    place = {step.id: number for number, step in enumerate(steps)}
    of = np.array([place.get(texts[number], NO_ROW) for number in numbers.tolist()], dtype=np.int32)
    order = np.lexsort((-details.column("duration_ns"), starts))
    return tuple(steps), of[order]
