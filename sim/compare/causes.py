"""Where the time of a step goes: every nanosecond of it under one cause, so that causes sum to the step.

- Computing goes to the family of the kernel that runs; of kernels that run together to the one that started first.
- A collective with no computing alongside is waiting for other ranks where the timeline says so, else transfer.
- The device idles because the host is late, as long as the call that launches the next kernel has not returned; after
  that for reasons of its own: start-up, a gap in a graph, an event. Where the timeline does not say who launched the
  kernel, it is just idle.
"""

from __future__ import annotations

from bisect import bisect_left

from scenarios.timeline import Span, Timeline, union_ns
from scenarios.timeline import is_kernel as on_stream
from scenarios.trace.layout import minus
from sim.compare.classes import TRANSFER, WAIT, family_of, is_kernel

HOST_LATE, DEVICE_GAP, IDLE = "device idle, host late", "device idle, launched", "device idle"
BEFORE, AFTER = "before the first kernel", "after the last kernel"

Intervals = list[tuple[int, int]]


def causes_ns(timeline: Timeline) -> dict[str, int]:
    """Nanoseconds by cause; they sum to the length of the step. What lies outside the step is left out."""
    inside = [(timeline.start_ns, timeline.end_ns)]
    computing = union_ns((s.start_ns, s.end_ns) for s in timeline.spans if on_stream(s))
    communication = union_ns((s.start_ns, s.end_ns) for s in timeline.spans if s.process == "Communication")
    waiting = union_ns((s.start_ns, s.end_ns) for s in timeline.spans if s.process == "Communication" and s.is_wait)
    times = _computing(timeline)
    exposed = minus(_within(communication, inside), computing)
    waits = minus(_within(waiting, inside), computing)
    times[WAIT] = _length(waits)
    times[TRANSFER] = _length(minus(exposed, waits))
    for cause, ns in _idle(timeline, minus(inside, union_ns([*computing, *communication]))).items():
        times[cause] = times.get(cause, 0) + ns
    return {cause: ns for cause, ns in times.items() if ns}


def _computing(timeline: Timeline) -> dict[str, int]:
    times: dict[str, int] = {}
    busy_until = timeline.start_ns
    for span in sorted((s for s in timeline.spans if on_stream(s)), key=lambda s: (s.start_ns, s.end_ns, s.name)):
        end = min(span.end_ns, timeline.end_ns)
        if end > busy_until:
            family = family_of(span)
            times[family] = times.get(family, 0) + end - max(span.start_ns, busy_until)
            busy_until = end
    return times


def _idle(timeline: Timeline, free: Intervals) -> dict[str, int]:
    kernels = sorted((s for s in timeline.spans if is_kernel(s)), key=lambda s: s.start_ns)
    starts = [s.start_ns for s in kernels]
    times: dict[str, int] = {}

    def add(cause: str, ns: int) -> None:
        times[cause] = times.get(cause, 0) + ns

    for start, end in free:
        place = bisect_left(starts, end)
        if place == 0 or not starts:
            add(BEFORE, end - start)
        elif place == len(starts):
            add(AFTER, end - start)
        else:
            launched = _launched_ns(timeline, kernels[place])
            if launched is None:
                add(IDLE, end - start)
                continue
            late_until = min(end, max(start, launched))
            add(HOST_LATE, late_until - start)
            add(DEVICE_GAP, end - late_until)
    return times


def _launched_ns(timeline: Timeline, kernel: Span) -> int | None:
    """When the call that launched a kernel was through with it, None where that is unknown."""
    if kernel.launched_by < 0:
        return None
    return timeline.spans[kernel.launched_by].end_ns


def _within(intervals: Intervals, inside: Intervals) -> Intervals:
    low, high = inside[0]
    return [(max(start, low), min(end, high)) for start, end in intervals if min(end, high) > max(start, low)]


def _length(intervals: Intervals) -> int:
    return sum(end - start for start, end in intervals)
