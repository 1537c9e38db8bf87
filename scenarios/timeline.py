"""Spans on lanes: what the simulator predicts, the device measures and the importer reads, in one form.

Times are integer nanoseconds from the start of the step. A lane is (process, thread) named as torch_npu's profiler
names them, so that habits and tools carry over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from scenarios.records import dataclass

Process = Literal["Python", "CANN", "Ascend Hardware", "AI CPU", "Device", "HBM", "Communication", "Overlap Analysis"]
#: Lanes of kernels: an NPU's streams and AI CPU, and the streams of a device that is no NPU.
COMPUTE: tuple[Process, ...] = ("Ascend Hardware", "AI CPU", "Device")
#: `Span.kind` of a collective that waits for other ranks, of a host that waits for its device, of a copy.
WAIT, SYNCHRONIZE, COPY = "wait", "synchronize", "copy"
#: `Span.kind` of what lies on a stream and is no kernel: copies, marks and waits between streams, parts of collectives.
QUEUED = frozenset({COPY, "event_record", "event_wait", "task", "transfer", "notify_wait"})


@dataclass(frozen=True, slots=True)
class Span:
    """One interval [start_ns, end_ns) on a lane.

    index: place of the op in the Program (-1 where the span belongs to no op). launched_by: index into the timeline's
    spans of the host span that issued this one (-1 where unknown); it becomes the arrow from host to device in a trace.
    """

    name: str
    process: Process
    thread: str
    start_ns: int
    end_ns: int
    kind: str = ""
    op_type: str = ""
    index: int = -1
    layer: int = -1
    launched_by: int = -1
    args: tuple[tuple[str, str | int | float], ...] = ()

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def is_wait(self) -> bool:
        """Whether a collective waits here for its other ranks."""
        return self.kind == WAIT

    @property
    def synchronizes(self) -> bool:
        """Whether the host waits here for the device."""
        return self.kind == SYNCHRONIZE


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step split as torch_npu's step_trace_time.csv does: total = computing + communication_not_overlapped + free,
    ns."""

    total_ns: int
    computing_ns: int
    communication_ns: int
    communication_not_overlapped_ns: int
    communication_wait_ns: int
    overlapped_ns: int
    free_ns: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Spans of one step of one rank, and the step's own start and end (the host's first call to the next step's).

    device: what kind of device the rank has, NPU, CPU or CUDA.
    """

    spans: tuple[Span, ...]
    start_ns: int
    end_ns: int
    label: Literal["SIMULATED", "MEASURED"] = "SIMULATED"
    rank: int = 0
    device: str = "NPU"

    @property
    def device_spans(self) -> tuple[Span, ...]:
        """Kernels on streams and on the AI CPU, in order of start."""
        return tuple(s for s in self.spans if is_kernel(s))


def on_device(timeline: Timeline, device: str) -> Timeline:
    """`timeline` as that of a `device`: what is no NPU has lanes of its own, which nobody takes for Ascend's."""
    if device == timeline.device:
        return timeline
    # What an AI CPU does there, the stream itself does on other devices.
    spans = tuple(
        replace(s, process="Device", thread="Stream 0" if s.process == "AI CPU" else s.thread)
        if s.process in COMPUTE
        else s
        for s in timeline.spans
    )
    return replace(timeline, spans=spans, device=device)


def union_ns(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge [start, end) intervals into disjoint ones in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def length_ns(merged: Iterable[tuple[int, int]]) -> int:
    """Total length of disjoint intervals."""
    return sum(end - start for start, end in merged)


def intersect_ns(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> int:
    """Length common to two lists of disjoint, ordered intervals."""
    total = i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if end > start:
            total += end - start
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total


def is_kernel(span: Span) -> bool:
    """Whether the span is a kernel, which is what counts as computing."""
    return span.process in COMPUTE and span.kind not in QUEUED


def step_time(timeline: Timeline) -> StepTime:
    """Computing, communication, overlap and free time of a step, from its spans.

    Computing is the union of kernels on cube, vector and AI CPU; communication the union of collectives; what both
    cover is overlapped; free is what neither covers between the step's start and end (torch_npu's definition).
    """
    computing = union_ns((s.start_ns, s.end_ns) for s in timeline.spans if is_kernel(s))
    communication = union_ns((s.start_ns, s.end_ns) for s in timeline.spans if s.process == "Communication")
    wait = union_ns((s.start_ns, s.end_ns) for s in timeline.spans if s.process == "Communication" and s.is_wait)
    total = timeline.end_ns - timeline.start_ns
    overlapped = intersect_ns(computing, communication)
    computing_ns, communication_ns = length_ns(computing), length_ns(communication)
    return StepTime(
        total_ns=total,
        computing_ns=computing_ns,
        communication_ns=communication_ns,
        communication_not_overlapped_ns=communication_ns - overlapped,
        communication_wait_ns=length_ns(wait),
        overlapped_ns=overlapped,
        free_ns=total - computing_ns - (communication_ns - overlapped),
    )
