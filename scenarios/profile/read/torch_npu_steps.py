"""Which events belong to which step, as torch_npu decides it.

A step's window on the device starts with the first thing that the host launched inside its mark (`ProfilerStep#N`)
and ends with the last, or with the mark where that is later. What starts in the window belongs to the step.
"""

from __future__ import annotations

import numpy as np

from scenarios.profile.read.kernel_details import KernelDetails
from scenarios.profile.table import NO_ROW, Events, Int64, Kind, Step

_DEVICE = tuple(k for k in Kind if k not in (Kind.HOST, Kind.STEP))


def steps_of_marks(events: Events, texts: tuple[str, ...]) -> tuple[Step, ...]:
    """The steps of a trace; one without a name over all of it where it has no marks."""
    marks = events.rows(Kind.STEP)
    device = events.rows(*_DEVICE)
    if not len(device):
        return ()
    if not len(marks):
        return (whole(events),)
    issued = _issued_ns(events, device)
    order = np.argsort(issued, kind="stable")
    issued, device = issued[order], device[order]
    steps = []
    for mark in marks.tolist():
        start, end = int(events.start_ns[mark]), events.end_ns_of(mark)
        first, last = np.searchsorted(issued, start, side="left"), np.searchsorted(issued, end, side="right")
        mine = device[first:last]
        start_ns = int(events.start_ns[mine].min()) if len(mine) else start
        ends = events.start_ns[mine] + events.duration_ns[mine]
        end_ns = max(int(ends.max()), end) if len(mine) else end
        steps.append(Step(texts[int(events.name[mark])].partition("#")[2], start_ns, end_ns, start, end))
    return tuple(steps)


def whole(events: Events) -> Step:
    """All of a capture as one step without a name."""
    device = events.rows(*_DEVICE)
    host = events.rows(Kind.HOST)
    start, end = int(events.start_ns[device].min()), int(events.end_ns[device].max())
    host_begin = min(start, int(events.start_ns[host].min())) if len(host) else start
    return Step("", start, end + 1, host_begin, max(end, int(events.end_ns[host].max())) if len(host) else end)


def _issued_ns(events: Events, device: Int64) -> Int64:
    """When the host issued each device row: the start of the first call in its chain; -1 where unknown."""
    at = events.launched_by[device].astype(np.int64)
    issued = np.where(at != NO_ROW, events.start_ns[at], -1)
    for _ in range(8):
        above = np.where(at != NO_ROW, events.launched_by[at], NO_ROW).astype(np.int64)
        going = above != NO_ROW
        if not going.any():
            break
        at = np.where(going, above, at)
        issued = np.where(going, events.start_ns[at], issued)
    return issued


def steps_of_ids(events: Events, details: KernelDetails, texts: tuple[str, ...]) -> tuple[Step, ...]:
    """The steps that kernel_details.csv names: from the first start of a step to its last end."""
    starts, numbers = details.starts(), details.column("step")
    ends = starts + details.column("duration_ns")
    steps = []
    for number in np.unique(numbers).tolist():
        if not texts[number]:
            continue
        here = numbers == number
        start, end = int(starts[here].min()), int(ends[here].max())
        steps.append(Step(texts[number], start, end, start, end))
    return tuple(sorted(steps, key=lambda step: step.start_ns)) or (whole(events),)
