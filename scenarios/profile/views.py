"""What belongs to a step where steps overlap on the device, so that each step can be shown without its neighbours.

Where the device windows of steps follow each other, a step is what starts in its window, as torch_npu has it. A host
that runs ahead, and a second stream, let them overlap: then one window holds kernels of several steps. Here every row
of the device belongs to the step whose mark holds the first call of its launches; a row without a known launch goes
with the row before it on its stream.

Such a step is shown as its period: from its first kernel to the first kernel of the next step, which is what a step
takes in a steady run. A kernel of its own that starts behind that (the tail on another stream) is laid into the period
a whole number of periods earlier, where the device runs the same kernel of the step before; where that would not fit,
the step is shown from its first kernel to the end of its last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.profile.issue import issued_ns
from scenarios.profile.steps import overlap_lanes, step_times, step_times_of, waiting_lanes
from scenarios.profile.table import COLUMN_TYPES, NO_ROW, Capture, Events, Int64, Kind, Step
from scenarios.records import dataclass
from scenarios.timeline import StepTime

_DEVICE = tuple(k for k in Kind if k not in (Kind.HOST, Kind.STEP))
_COUNTED = (int(Kind.KERNEL), int(Kind.COLLECTIVE))
#: A kernel that runs over the end of its step's period by no more than this share of the period is cut there.
CUT_SHARE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class OwnStep:
    """One of several steps that overlap. step: its id and the time that is shown. rows: its rows of the device.
    moved_ns: by how much each is moved into the period. period_ns: to the first kernel of the next step, 0 for the
    last. next_row: that kernel. overlap_ns: how long its kernels run next to those of the steps around it. period:
    whether the period is shown, else the time from its first kernel to the end of its last."""

    step: Step
    rows: Int64
    moved_ns: Int64
    period_ns: int
    next_row: int
    overlap_ns: int
    period: bool


@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """The steps of a capture. kernels: kernels and collectives of each. own: the steps where they overlap, else ();
    of a step without kernels None. times: of each."""

    capture: Capture
    kernels: tuple[int, ...]
    own: tuple[OwnStep | None, ...]
    times: tuple[StepTime, ...]

    def view(self, number: int) -> tuple[Capture, Step]:
        """A capture that holds step `number` without its neighbours, and the step in it."""
        own = self.own[number] if self.own else None
        return _alone(self.capture, own) if own is not None else (self.capture, self.capture.steps[number])

    def whole_steps(self) -> list[int]:
        """The numbers of the steps that may stand for all: with kernels; of overlapping ones those whose period is
        known, where there are any."""
        there = [number for number, count in enumerate(self.kernels) if count]
        periods = [number for number in there if self.own and (own := self.own[number]) is not None and own.period_ns]
        return periods or there


def views_of(capture: Capture) -> Views:
    """The steps of `capture`, each with what belongs to it."""
    events, steps = capture.events, capture.steps
    device = events.rows(*_DEVICE)
    counted = np.isin(events.kind[device], _COUNTED)
    in_window = [_in_window(events, step) for step in steps]
    filled = [step for step, count in zip(steps, in_window, strict=True) if count]
    apart = _are_apart(events, filled)
    if apart and capture.own_steps is None:
        # The mark of a step without kernels may lie where the device still runs those of another.
        kernels = _by_launch(capture, device, counted) if len(filled) < len(steps) or len(steps) > 1 else None
        counts = [min(a, b) for a, b in zip(in_window, kernels, strict=True)] if kernels is not None else in_window
        return Views(capture, tuple(counts), (), tuple(step_times_of(capture)))
    if apart:
        return Views(capture, tuple(in_window), (), tuple(step_times_of(capture)))
    own = _own_steps(capture, device, counted)
    counts = [0 if one is None else int(np.isin(events.kind[one.rows], _COUNTED).sum()) for one in own]
    return Views(capture, tuple(counts), tuple(own), tuple(_time(events, one) for one in own))


def _are_apart(events: Events, steps: Sequence[Step]) -> bool:
    """Whether the windows of steps tell them apart: they follow each other, and nothing that runs crosses their edges.

    Windows that touch do not: a device that never pauses has one piece of work in both.
    """
    if len(steps) < 2:
        return True
    ordered = sorted(steps, key=lambda step: step.start_ns)
    if any(one.end_ns >= other.start_ns for one, other in pairwise(ordered)):
        return False
    edges = np.array([edge for step in ordered for edge in (step.start_ns, step.end_ns)], dtype=np.int64)
    for starts, ends in overlap_lanes(events)[:2]:
        if len(starts):
            at = np.searchsorted(starts, edges, side="left") - 1
            if ((at >= 0) & (ends[np.maximum(at, 0)] > edges)).any():
                return False
    return True


def _in_window(events: Events, step: Step) -> int:
    rows = events.rows(Kind.KERNEL, Kind.COLLECTIVE)
    first, last = np.searchsorted(events.start_ns[rows], (step.start_ns, step.end_ns))
    return int(last - first)


def _by_launch(capture: Capture, device: Int64, counted: NDArray[np.bool_]) -> list[int]:
    of = step_of_rows(capture, device)[counted]
    return [int((of == number).sum()) for number in range(len(capture.steps))]


def step_of_rows(capture: Capture, device: Int64) -> Int64:
    """The step that each row of the device belongs to, NO_ROW for none. device: the rows, in order of start.

    By the first call of its launches; without one as the row before it on its stream, or by the time it starts.
    """
    if capture.own_steps is not None:
        return capture.own_steps[device].astype(np.int64)
    events, steps = capture.events, capture.steps
    from_ns = np.array([step.host_start_ns for step in steps], dtype=np.int64)
    ends = np.array([step.host_end_ns for step in steps], dtype=np.int64)
    issued = issued_ns(events, device)
    at = np.searchsorted(from_ns, issued, side="right") - 1
    of = np.where((at >= 0) & (issued <= ends[np.maximum(at, 0)]), at, NO_ROW)
    unknown = issued < 0
    if not unknown.any():
        return of
    starts = np.array([step.start_ns for step in steps], dtype=np.int64)
    by_time = np.searchsorted(starts, events.start_ns[device], side="right") - 1
    for lane in np.unique(events.lane[device[unknown]]).tolist():
        here = np.flatnonzero(events.lane[device] == lane)
        known = np.where(unknown[here], -1, np.arange(len(here)))
        before = np.maximum.accumulate(known)
        own = np.where(before >= 0, of[here[np.maximum(before, 0)]], by_time[here])
        of[here] = np.where(unknown[here], own, of[here])
    return of


def _own_steps(capture: Capture, device: Int64, counted: NDArray[np.bool_]) -> list[OwnStep | None]:
    events, of = capture.events, step_of_rows(capture, device)
    order = np.argsort(of, kind="stable")
    bounds = np.searchsorted(of[order], np.arange(len(capture.steps) + 1))
    rows = [device[order[a:b]] for a, b in pairwise(bounds.tolist())]
    kernels = [r[np.isin(events.kind[r], _COUNTED)] for r in rows]
    there = [number for number, r in enumerate(kernels) if len(r)]
    spans = [(int(events.start_ns[k].min()), int(events.end_ns[k].max())) if len(k) else (0, 0) for k in kernels]
    own: list[OwnStep | None] = [None] * len(capture.steps)
    for place, number in enumerate(there):
        start, end = spans[number]
        later = there[place + 1] if place + 1 < len(there) else None
        around = [spans[other] for other in (*there[max(0, place - 2) : place], *there[place + 1 : place + 3])]
        overlap = max((min(end, e) - max(start, b) for b, e in around), default=0)
        period = max(0, spans[later][0] - start) if later is not None else 0
        one = OwnStep(
            step=replace(capture.steps[number], start_ns=start, end_ns=end, whole=True),
            rows=rows[number],
            moved_ns=np.zeros(len(rows[number]), dtype=np.int64),
            period_ns=period,
            next_row=int(kernels[later][0]) if later is not None else NO_ROW,
            overlap_ns=max(0, overlap),
            period=False,
        )
        own[number] = _in_period(events, one) or one
    return own


def _in_period(events: Events, one: OwnStep) -> OwnStep | None:
    """The step as its period, None where its kernels do not fit into it."""
    start, period, rows = one.step.start_ns, one.period_ns, one.rows
    if not period:
        return None
    moved = (events.start_ns[rows] - start) // period * period
    starts = events.start_ns[rows] - moved
    ends = np.minimum(starts + events.duration_ns[rows], start + period)
    kernels = np.isin(events.kind[rows], _COUNTED)
    over = starts + events.duration_ns[rows] - (start + period)
    if (over[kernels] > CUT_SHARE * period).any():
        return None
    if moved[kernels].any() and _collide(events.lane[rows[kernels]], starts[kernels], ends[kernels]):
        return None
    return replace(one, step=replace(one.step, end_ns=start + period), moved_ns=moved, period=True)


def _collide(lane: NDArray[np.int16], start: Int64, end: Int64) -> bool:
    """Whether two kernels of one lane lie over each other."""
    order = np.lexsort((start, lane))
    same = lane[order[1:]] == lane[order[:-1]]
    return bool((same & (start[order[1:]] < end[order[:-1]])).any())


def _time(events: Events, one: OwnStep | None) -> StepTime:
    if one is None:
        return StepTime(
            0,
            0,
            communication_ns=0,
            communication_not_overlapped_ns=0,
            communication_wait_ns=0,
            overlapped_ns=0,
            free_ns=0,
        )
    mine = _moved(events, one)
    return step_times(mine, [one.step], waiting_lanes(mine, {}))[0]


def _moved(events: Events, one: OwnStep) -> Events:
    """The rows of the device of one step, where it shows them, in order of start; launches are left as they are."""
    columns, keep = _told(events, one, one.rows)
    order = np.flatnonzero(keep)[np.lexsort((-columns["duration_ns"][keep], columns["start_ns"][keep]))]
    return Events(**{name: column[order] for name, column in columns.items()}, facts=events.facts)


def _told(events: Events, one: OwnStep, rows: Int64) -> tuple[dict[str, Any], Any]:
    """The columns of `rows`, the first of which are the step's own, and which of them are shown: its own lie within it,
    moved and cut at its end."""
    columns = {name: getattr(events, name)[rows] for name in COLUMN_TYPES}
    count = len(one.rows)
    start, length = columns["start_ns"].copy(), columns["duration_ns"].copy()
    start[:count] -= one.moved_ns
    length[:count] = np.clip(length[:count], 0, np.maximum(0, one.step.end_ns - start[:count]))
    after = columns["issued_after_ns"].astype(np.int64)
    after[:count] -= one.moved_ns
    keep = np.ones(len(rows), dtype=bool)
    keep[:count] = (start[:count] >= one.step.start_ns) & (start[:count] < one.step.end_ns)
    after = np.clip(after, -(2**31), 2**31 - 1).astype(np.int32)
    return columns | {"start_ns": start, "duration_ns": length, "issued_after_ns": after}, keep


def _alone(capture: Capture, one: OwnStep) -> tuple[Capture, Step]:
    """A capture of one step: its rows, the host's calls in its mark, those that launched its rows, and the first kernel
    of the next step, which ends the idle time behind its last."""
    events = capture.events
    host = events.rows(Kind.HOST, Kind.STEP)
    starts = events.start_ns[host]
    host = host[(starts >= one.step.host_start_ns) & (starts < one.step.host_end_ns)]
    # Of a step that is shown to the end of its last kernel, the next step's first lies within it.
    following = np.array([one.next_row] if one.period else [], dtype=np.intp)
    callers = np.setdiff1d(_callers(events, np.concatenate((one.rows, following))), host)
    rows = np.concatenate((one.rows, host, callers, following)).astype(np.intp)
    columns, keep = _told(events, one, rows)
    order = np.flatnonzero(keep)[np.lexsort((-columns["duration_ns"][keep], columns["start_ns"][keep]))]
    went = np.full(len(events), NO_ROW, dtype=np.int32)
    went[rows[order]] = np.arange(len(order), dtype=np.int32)
    columns = {name: column[order] for name, column in columns.items()}
    launched = columns["launched_by"]
    columns["launched_by"] = np.where(launched >= 0, went[np.maximum(launched, 0)], NO_ROW).astype(np.int32)
    waits = {int(went[row]): ns for row, ns in capture.collective_waits_ns.items() if went[row] >= 0}
    alone = replace(
        capture,
        events=Events(**columns, facts=events.facts),
        steps=(one.step,),
        collective_waits_ns=waits,
        own_steps=None,
    )
    return alone, one.step


def _callers(events: Events, rows: Int64) -> Int64:
    """The rows of all calls in the launches of `rows`."""
    callers: list[Int64] = []
    at = np.unique(events.launched_by[rows])
    for _ in range(8):
        at = at[at != NO_ROW].astype(np.int64)
        if not len(at):
            break
        callers.append(at)
        at = np.unique(events.launched_by[at])
    return np.unique(np.concatenate(callers)) if callers else np.empty(0, dtype=np.int64)


def overlapping(views: Views, number: int) -> str:
    """What has to be said of a step that overlaps with others on the device, "" where none does."""
    own = views.own[number] if views.own else None
    if own is None:
        return ""
    text = f"steps overlap on the device, this one by {own.overlap_ns / 1e6:,.3f} ms: kernels are those it launched"
    if own.period:
        moved = int((own.moved_ns[np.isin(views.capture.events.kind[own.rows], _COUNTED)] != 0).sum())
        laid = f"; {moved:,} of its kernels run later and are laid into it by whole periods" if moved else ""
        return f"{text}, its time is from its first kernel to the next step's first{laid}"
    every = f"; a step starts every {own.period_ns / 1e6:,.3f} ms" if own.period_ns else ""
    return f"{text}, its time is from its first kernel to the end of its last{every}"


def place_of(steps: Sequence[Step], step_id: str) -> int | None:
    """The place of the step called `step_id`, or of that ordinal (from 1) where ids are no numbers; else None."""
    ids = [step.id for step in steps]
    if step_id in ids:
        return ids.index(step_id)
    if step_id.isascii() and step_id.isdigit() and len(step_id) < 10 and not any(name.isdigit() for name in ids):
        return int(step_id) - 1 if 1 <= int(step_id) <= len(ids) else None
    return None
