"""Whether a capture holds what it should, before anything is advised on it.

Profilers lose events without a word: buffers overflow, a graph's kernels are not recorded, a device's clock jumps, a
window opens while kernels run. Each leaves a contradiction: a launch without its kernel, a kernel before its launch,
idle time in which kernels lay queued, files that count differently. A profile that was recorded whole has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import printable
from scenarios.profile import NO_ROW, Capture, Events, Kind
from scenarios.profile.issue import issued_ns
from scenarios.profile.steps import length, merged, minus
from scenarios.records import dataclass
from scenarios.timeline import COMPUTE, StepTime
from sim.imported.chosen import Chosen
from sim.imported.gaps import idle_of

#: So many launches without their kernels happen at the edges of a recording; more is loss. And as a share of them.
FEW, FEW_SHARE = 1, 0.01
#: A kernel that starts before its launch by more than this, ns: the two clocks agree to some microseconds.
CLOCKS_NS = 1_000_000
#: Idle time of a kernel that was queued longer than both of these, ns and as a share of the step, has no cause in the
#: profile: on the longest complete profiles that were looked at, 5.6 ms of 130 were queued in all.
QUEUED_NS, QUEUED_SHARE = 10_000_000, 0.1
#: Nothing recorded, neither on the host nor on the device, for more than this share of the step.
SILENT_SHARE = 0.2
#: Kernels without a launch where others have one; and calls that overlap without nesting; as shares of all.
UNLAUNCHED, CROSSING = 0.02, 0.002
#: Launches that torch.profiler's marks leave out, as a share of all; they follow each other without a gap.
UNMARKED = 0.05
#: The largest difference between the reported step and the recomputed one, as a share.
REPORTED = 0.001

_GRAPH = re.compile(r"graph_?launch|aclmdlRIExecute|AclmdlRIExecute|ModelExecute|aclmdlExecute", re.I)
_LAUNCH = re.compile(r"launch|dequeue@|^aclnn|enqueue|execute", re.I)
_DEVICE = tuple(k for k in Kind if k not in (Kind.HOST, Kind.STEP))
_Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Completeness:
    """Whether the profile is complete, and why not, one line each."""

    verdict: Literal["complete", "partial"]
    reasons: tuple[str, ...]


def completeness_of(chosen: Chosen, recomputed: StepTime, reported: StepTime | None) -> Completeness:
    """The verdict on one rank's capture and step. recomputed, reported: the step by the profiler's own rule."""
    reasons = [
        *chosen.whole.lost,
        *_lost_launches(chosen),
        *_graphs(chosen.whole),
        *_unlaunched(chosen.whole),
        *_clocks(chosen.whole),
        *_unmarked(chosen.whole),
        *_queued(chosen),
        *_silent(chosen),
        *_other_phases(chosen.whole),
        *_differs(recomputed, reported),
    ]
    return Completeness("partial" if reasons else "complete", tuple(dict.fromkeys(reasons)))


def _lost_launches(chosen: Chosen) -> Iterator[str]:
    """Launches of the step whose kernels are not there, and where in the step they lie."""
    capture, step = chosen.whole, chosen.capture.steps[chosen.capture.steps.index(chosen.step)]
    if capture.lost_launches is None or not len(capture.lost_launches.issued_ns):
        return
    names = np.array([not word or bool(_LAUNCH.search(word)) for word in capture.texts], dtype=bool)
    lost = capture.lost_launches.issued_ns[names[capture.lost_launches.name]]
    lost = lost[(lost >= step.host_start_ns) & (lost < step.host_end_ns)] if step.id else lost
    issued = issued_ns(chosen.capture.events, chosen.capture.events.rows(*_DEVICE))
    issued = issued[(issued >= step.host_start_ns) & (issued < step.host_end_ns)] if step.id else issued[issued >= 0]
    if len(lost) <= max(FEW, FEW_SHARE * (len(lost) + len(issued))):
        return
    where = ""
    if len(issued):
        before, behind = (lost < issued.min()).mean(), (lost > issued.max()).mean()
        where = ", at the head of the step" if before > 0.9 else ", at its end" if behind > 0.9 else ""
    yield f"{len(lost):,} of {len(lost) + len(issued):,} launches have no kernel{where}: events of the device were lost"


def _graphs(capture: Capture) -> Iterator[str]:
    """Launches of captured graphs under which no kernel was recorded."""
    events = capture.events
    host = events.rows(Kind.HOST)
    is_graph = np.array([bool(_GRAPH.search(word)) for word in capture.texts], dtype=bool)
    graphs = host[is_graph[events.name[host]]]
    if not len(graphs):
        return
    launching = np.unique(events.launched_by[events.launched_by != NO_ROW])
    # Several layers call each other to launch one graph: the launch may be known by any of them.
    starts, ends = events.start_ns[graphs], events.start_ns[graphs] + events.duration_ns[graphs]
    at = np.sort(events.start_ns[launching])
    launches = np.searchsorted(at, ends, side="right") - np.searchsorted(at, starts, side="left")
    empty = int((launches == 0).sum())
    if empty > max(FEW, FEW_SHARE * len(graphs)) or empty == len(graphs):
        yield f"{empty:,} of {len(graphs):,} launches of a graph have no kernels: the graph's own were not recorded"


def _unlaunched(capture: Capture) -> Iterator[str]:
    """Kernels without a launch, where others have one: calls of the host were lost."""
    rows = capture.events.rows(Kind.KERNEL)
    unknown = int((capture.events.launched_by[rows] == NO_ROW).sum())
    if UNLAUNCHED * len(rows) < unknown < len(rows):
        yield f"{unknown:,} of {len(rows):,} kernels have no launch though others have: calls of the host were lost"


def _clocks(capture: Capture) -> Iterator[str]:
    """Effects before their causes, and calls of one thread that overlap without one lying in the other."""
    events = capture.events
    rows = events.rows(*_DEVICE)
    rows = rows[events.launched_by[rows] != NO_ROW]
    issued = events.start_ns[events.launched_by[rows]] + events.issued_after_ns[rows]
    early = issued - events.start_ns[rows]
    if (count := int((early > CLOCKS_NS).sum())) > max(FEW, FEW_SHARE * len(rows)):
        yield (
            f"{count:,} kernels start before they were launched, by up to {early.max() / 1e6:,.1f} ms: the clocks of "
            "host and device do not fit, or one of them jumped"
        )
    if reversed_ := _out_of_order(capture):
        yield f"{reversed_:,} kernels start before one that was launched earlier on their stream: a clock jumped back"
    crossing = _crossing(events)
    if crossing > max(FEW, CROSSING * len(events.rows(Kind.HOST))):
        yield f"{crossing:,} calls of the host overlap on their thread without nesting: its clock jumped"


def _out_of_order(capture: Capture) -> int:
    """Kernels that start on their stream before one that was launched a good while before them; 0 for a few."""
    events = capture.events
    of_stream = np.array([lane.process in COMPUTE and lane.stream >= 0 for lane in capture.lanes], dtype=bool)
    rows = events.rows(Kind.KERNEL)
    rows = rows[of_stream[events.lane[rows]] & (events.launched_by[rows] != NO_ROW)]
    reversed_ = 0
    for lane in np.unique(events.lane[rows]).tolist():
        here = rows[events.lane[rows] == lane]
        issued = events.start_ns[events.launched_by[here]] + events.issued_after_ns[here]
        reversed_ += int((issued < np.maximum.accumulate(issued) - CLOCKS_NS).sum())
    return reversed_ if reversed_ > max(FEW, FEW_SHARE * len(rows)) else 0


def _crossing(events: Events) -> int:
    """Calls that start within another call of their thread and end behind it, by more than a microsecond."""
    host = events.rows(Kind.HOST)
    order = host[np.argsort(events.lane[host], kind="stable")]
    starts, ends = events.start_ns[order].tolist(), (events.start_ns[order] + events.duration_ns[order]).tolist()
    crossing, lane_now = 0, None
    open_ends: list[int] = []
    for start, end, lane in zip(starts, ends, events.lane[order].tolist(), strict=True):
        if lane != lane_now:
            open_ends, lane_now = [], lane
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        crossing += bool(open_ends) and end > open_ends[-1] + 1_000
        open_ends.append(end)
    return crossing


def _unmarked(capture: Capture) -> Iterator[str]:
    """Launches outside of torch.profiler's marks, which follow each other: a clock that jumped leaves them there."""
    events = capture.events
    marks = events.rows(Kind.STEP)
    if not len(marks) or not capture.text(int(marks[0])).startswith("ProfilerStep#"):
        return
    issued = issued_ns(events, events.rows(Kind.KERNEL, Kind.COLLECTIVE))
    issued = issued[issued >= 0]
    starts, ends = events.start_ns[marks], events.start_ns[marks] + events.duration_ns[marks]
    at = np.searchsorted(starts, issued, side="right") - 1
    outside = int(((at < 0) | (issued > ends[np.maximum(at, 0)])).sum())
    if outside > UNMARKED * len(issued) and outside > FEW:
        yield (
            f"{outside:,} of {len(issued):,} kernels were launched outside of the steps' marks: a clock jumped, or "
            "marks were lost"
        )


def _queued(chosen: Chosen) -> Iterator[str]:
    """Idle time in which the next kernel lay queued and nothing else ran on the device either."""
    capture, step, total = chosen.capture, chosen.step, chosen.time.total_ns
    starts, ends, launched = idle_of(capture, step)
    since = np.maximum(starts, launched)
    long = (launched >= 0) & (ends - since > max(QUEUED_NS, QUEUED_SHARE * total))
    if not long.any():
        return
    rows = capture.events.rows(*(k for k in _DEVICE if k not in (Kind.KERNEL, Kind.COLLECTIVE)))
    others = merged(capture.events.start_ns[rows], capture.events.end_ns[rows])
    for start, end in zip(since[long].tolist(), ends[long].tolist(), strict=True):
        piece = np.array([start], dtype=np.int64), np.array([end], dtype=np.int64)
        left = length(minus(piece, others))
        if left > max(QUEUED_NS, QUEUED_SHARE * total):
            yield (
                f"the device idles for {left / 1e6:,.1f} ms of the step though its next kernel was launched before: "
                "events of the device were lost, or its clock jumped"
            )
            return


def _silent(chosen: Chosen) -> Iterator[str]:
    """Time of the step in which nothing is recorded at all."""
    events, step, total = chosen.capture.events, chosen.step, chosen.time.total_ns
    host = events.rows(Kind.HOST)
    if not len(host):
        return
    rows = events.rows(*_DEVICE, Kind.HOST)
    busy = merged(events.start_ns[rows], events.end_ns[rows])
    window = np.array([step.start_ns], dtype=np.int64), np.array([step.start_ns + total], dtype=np.int64)
    silent = minus(window, busy)
    longest = int((silent[1] - silent[0]).max()) if len(silent[0]) else 0
    if longest > SILENT_SHARE * total and longest > QUEUED_NS:
        yield (
            f"nothing is recorded for {longest / 1e6:,.1f} ms of the step's {total / 1e6:,.1f}, neither on the host "
            "nor on the device: events were lost, a clock jumped, or nothing was asked of it"
        )


def _other_phases(capture: Capture) -> Iterator[str]:
    """Events that have a start and an end of their own, which are not read."""
    count = sum(n for what, n in capture.dropped.items() if what in ("phase B", "phase E"))
    if count:
        yield f"{count:,} events are of phases B and E, which are not read: write complete events (phase X)"


def _differs(recomputed: StepTime, reported: StepTime | None) -> Iterator[str]:
    """A step that is not what its own profiler reported."""
    if reported is None:
        return
    total = max(1, reported.total_ns)
    parts = ("total_ns", "computing_ns", "communication_ns", "free_ns")
    off = {part: getattr(recomputed, part) - getattr(reported, part) for part in parts}
    worst = max(parts, key=lambda part: abs(off[part]))
    if abs(off[worst]) > REPORTED * total:
        theirs, mine = (getattr(time, worst) / 1e6 for time in (reported, recomputed))
        part = worst.removesuffix("_ns")
        yield (
            f"step_trace_time.csv reports {theirs:,.3f} ms of {part}, the events {mine:,.3f}: events were lost or moved"
        )


def withheld(completeness: Completeness) -> str:
    """What is said where advice would stand, "" where there is no reason to hold it back."""
    if completeness.verdict == "complete":
        return ""
    return f"the profile is partial, so nothing is advised: {printable(completeness.reasons[0], 400)}"
