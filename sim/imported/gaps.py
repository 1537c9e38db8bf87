"""Where the device idles in a measured step, and for which call of the host it waited.

A gap is a piece of torch_npu's lane Free. Whatever starts at its end was launched by a call of the host: if that call
ended its work after the gap started, the host was late, by that much; if it had launched before, the kernel lay in its
queue, and the gap is the device's own (the start of a kernel, a wait between streams, a copy).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scenarios.profile import NO_ROW, Capture, Kind, Step
from scenarios.profile.steps import overlap_lanes

#: Names of calls that only hand on what an operator of torch asked for.
_QUEUE = ("Enqueue", "Dequeue")


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
    starts, ends = overlap_lanes(capture.events)[3]
    here = (starts >= step.start_ns) & (starts < step.end_ns)
    starts, ends = starts[here], ends[here]
    events = capture.events
    device = events.rows(Kind.KERNEL, Kind.COLLECTIVE)
    next_row = device[np.minimum(np.searchsorted(events.start_ns[device], ends), max(0, len(device) - 1))]
    launch = events.launched_by[next_row] if len(device) else np.empty(0, dtype=np.int32)
    known = launch != NO_ROW
    launched_ns = np.where(known, events.start_ns[launch] + events.issued_after_ns[next_row], 0)
    late = np.where(known, np.clip(np.minimum(launched_ns, ends) - starts, 0, None), 0)
    lengths = ends - starts
    calls: dict[str, list[int]] = {}
    threads: dict[int, NDArray[np.intp]] = {}
    for row, ns in zip(launch[known & (late > 0)].tolist(), late[known & (late > 0)].tolist(), strict=True):
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
