"""Where the device idles in a measured step, and for which call of the host it waited.

A gap is a piece of torch_npu's lane Free. Whatever starts at its end was launched by a call of the host: if that call
ended its work after the gap started, the host was late, by that much; if it had launched before, the kernel lay in its
queue, and the gap is the device's own (the start of a kernel, a wait between streams, a copy).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scenarios.profile import NO_ROW, Capture, Kind, Step
from scenarios.profile.steps import Intervals, minus, overlap_lanes
from scenarios.profile.table import Int32, Int64
from scenarios.records import dataclass

#: Names of calls that only hand on what an operator of torch asked for.
_QUEUE = ("Enqueue", "Dequeue")
#: What the host is late with behind the last kernel of a whole step.
BEHIND = "(behind the last kernel)"


@dataclass(frozen=True, slots=True)
class HostCall:
    """One name of host calls: how often the device waited for it and how long in all."""

    name: str
    gaps: int
    late_us: float


@dataclass(frozen=True, slots=True)
class Gaps:
    """The idle time of a step. late: the host had not launched yet; queued: it had; unknown: no launch is known.

    count: gaps. calls: what the host was late with, the most time first.
    """

    count: int
    total_us: float
    late_us: float
    queued_us: float
    unknown_us: float
    calls: tuple[HostCall, ...]

    @property
    def launches_known(self) -> bool:
        """Whether the capture says for most of the idle time who launched what ended it."""
        return self.unknown_us <= 0.5 * self.total_us


def gaps_of(capture: Capture, step: Step) -> Gaps:
    """The gaps that start in the step's window."""
    starts, ends = _idle(capture, step)
    launch, launched_ns, last = _launched(capture, ends)
    known = launch != NO_ROW
    late = np.where(known, np.clip(np.minimum(launched_ns, ends) - starts, 0, None), 0)
    lengths = ends - starts
    calls: dict[str, list[int]] = {}
    threads: dict[int, NDArray[np.intp]] = {}
    behind = int(late[known & last].sum())
    if behind:
        calls[BEHIND] = [1, behind]
    known_late = known & (late > 0) & ~last
    for row, ns in zip(launch[known_late].tolist(), late[known_late].tolist(), strict=True):
        counted = calls.setdefault(_call_name(capture, row, threads), [0, 0])
        counted[0] += 1
        counted[1] += ns
    named = [HostCall(name, count, ns / 1000) for name, (count, ns) in calls.items()]
    return Gaps(
        count=len(starts),
        total_us=int(lengths.sum()) / 1000,
        late_us=int(late.sum()) / 1000,
        queued_us=int((lengths - late)[known].sum()) / 1000,
        unknown_us=int(lengths[~known].sum()) / 1000,
        calls=tuple(sorted(named, key=lambda call: (-call.late_us, call.name))),
    )


def idle_of(capture: Capture, step: Step) -> tuple[Int64, Int64, Int64]:
    """Starts and ends of the gaps, and when what ends each was launched, -1 where unknown; ns."""
    starts, ends = _idle(capture, step)
    launch, launched_ns, _ = _launched(capture, ends)
    return starts, ends, np.where(launch != NO_ROW, launched_ns, -1)


def _launched(capture: Capture, ends: Int64) -> tuple[Int32, Int64, NDArray[np.bool_]]:
    """What starts at the end of each gap: the call that launched it, when, and whether there is nothing any more."""
    events = capture.events
    device = events.rows(Kind.KERNEL, Kind.COLLECTIVE)
    at = np.searchsorted(events.start_ns[device], ends)
    last: NDArray[np.bool_] = at >= len(device)  # nothing is launched any more: the host is at work
    next_row = device[np.minimum(at, max(0, len(device) - 1))] if len(device) else at
    launch = events.launched_by[next_row] if len(device) else np.empty(0, dtype=np.int32)
    issued = events.start_ns[launch].astype(np.int64) + events.issued_after_ns[next_row]
    return launch, np.where(last, ends, np.where(launch != NO_ROW, issued, 0)), last


def _idle(capture: Capture, step: Step) -> Intervals:
    """The pieces of idle time that belong to the step: those that start in its window, as torch_npu has it; of a step
    that is whole also what lies before its first kernel and behind its last, so that they sum to its free time."""
    computing, communication, _, free = overlap_lanes(capture.events)
    if not step.whole:
        here = (free[0] >= step.start_ns) & (free[0] < step.end_ns)
        return free[0][here], free[1][here]
    window = np.array([step.start_ns], dtype=np.int64), np.array([step.end_ns], dtype=np.int64)
    return minus(minus(window, computing), communication)


def _call_name(capture: Capture, row: int, threads: dict[int, NDArray[np.intp]]) -> str:
    """What a person knows the launching call `row` by: the operator of torch around it, else what was dequeued.

    threads: the rows of each thread that was looked at so far.
    """
    events, names = capture.events, []
    for _ in range(8):
        names.append(capture.text(row))
        above = int(events.launched_by[row])
        if above == NO_ROW:
            break
        row = above
    around = _operator(capture, row, threads)
    if around is not None:
        return around
    for name in names:
        if name.startswith("Dequeue@"):
            return name.removeprefix("Dequeue@")
    return names[-1]


def _operator(capture: Capture, row: int, threads: dict[int, NDArray[np.intp]]) -> str | None:
    """The outermost operator of torch on the thread of `row` that is open when it starts, None where there is none."""
    events = capture.events
    if capture.process(row) != "Python":
        return None
    lane = int(events.lane[row])
    if lane not in threads:
        threads[lane] = np.flatnonzero((events.lane == lane) & (events.kind == Kind.HOST))
    rows = threads[lane]
    at = int(np.searchsorted(events.start_ns[rows], events.start_ns[row], side="right"))
    operator = None
    for other in rows[max(0, at - 64) : at][::-1].tolist():
        name = capture.text(other)
        if events.end_ns_of(other) >= events.start_ns[row] and not name.startswith(_QUEUE):
            operator = name
    return operator
