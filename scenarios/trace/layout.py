"""Where each span goes in a trace: processes, threads, and slices that nest.

The rules, and whom each serves:

- Times are from the start of the step and become text with three decimals by integer arithmetic. Perfetto drops
  what overlaps, and a start and a duration that are rounded apart overlap; and it keeps microseconds in a double, so
  an epoch in front would cost it the nanoseconds.
- Slices of one thread nest (Perfetto). Where two overlap in part, the later one moves to a second thread, `... (2)`.
- AI CPU kernels lie on their stream's thread in "Ascend Hardware" with Task Type AI_CPU, as torch_npu puts them;
  MindStudio Insight knows layers by their exact names, and a process "AI CPU" would be none.
- A pid is (timeline + 1) << 10 | layer << 5 | device, as torch_npu's; Insight takes the device from the low five bits.
- A tid counts from 1: Perfetto gives tid 0 to the process itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scenarios.timeline import Span, Timeline, is_kernel, union_ns

Value = str | int | float

#: What to show of a kernel, by Span.index: `Task Type`, `Block Dim`, `Input Shapes` and so on as kernel_details.csv
#: spells them, `hbm_bytes` for the HBM lane, and anything else.
KernelArgs = Mapping[int, Mapping[str, Value]]

#: Process names and sort indices of torch_npu.
LAYERS: dict[str, int] = {
    "Python": 0, "CANN": 7, "Ascend Hardware": 13, "Device": 14, "Communication": 15, "HBM": 17, "Overlap Analysis": 23,
}  # fmt: skip
HOST = ("Python", "CANN")
OVERLAP_THREADS = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")

#: The step itself, on the first thread of Python; msprof-analyze looks for this name.
STEP_NAME, STEP_TID = "ProfilerStep#0", 1

#: The last of the writer's own arguments of a slice: what stands behind it belongs to the span and its kernel.
SPAN_ARG = "span"
OWN_ARGS = frozenset(
    {"Physic Stream Id", "Task Id", "connection_id", "correlation_id", "kind", "op_type", "index", "layer"}
    | {"process", "thread", SPAN_ARG}
)

#: Beyond this (26 days) a double of microseconds does not keep the nanoseconds.
MAX_NS = 2**51

Intervals = list[tuple[int, int]]

_INSIGHT_NAME = re.compile(r"(trace_view|trace|msprof(_slice)?(_[0-9]{1,15}){1,4})\.json")
_DEVICE = re.compile(r"[A-Z]{1,8}")
_DIGITS = re.compile(r"([0-9]+)")


def insight_name_ok(name: str) -> bool:
    """Whether MindStudio Insight opens a trace with this file name (without its folder)."""
    return _INSIGHT_NAME.fullmatch(name) is not None


def us(ns: int) -> str:
    """Nanoseconds (0 or more) as microseconds with three decimals: 1234567 is 1234.567."""
    return f"{ns // 1000}.{ns % 1000:03d}"


@dataclass(slots=True)
class Lane:
    """One thread of a trace and the positions of its spans, parents before children."""

    process: str
    thread: str
    spans: list[int] = field(default_factory=list)
    open_until_ns: list[int] = field(default_factory=list)

    def takes(self, i: int, span: Span) -> bool:
        """Add span `i`, which starts no earlier than those before it, unless it overlaps one of them in part."""
        ends = self.open_until_ns
        while ends and ends[-1] <= span.start_ns:
            ends.pop()
        if ends and span.end_ns > ends[-1]:
            return False
        ends.append(span.end_ns)
        self.spans.append(i)
        return True


def lanes_of(spans: Sequence[Span]) -> list[Lane]:
    """The threads of a trace from top to bottom; each span is on one."""
    threads: dict[tuple[str, str], list[int]] = {}
    for i, span in enumerate(spans):
        layer = "Ascend Hardware" if span.process == "AI CPU" else span.process
        threads.setdefault((layer, span.thread), []).append(i)
    lanes: list[Lane] = []
    for process, thread in sorted(threads, key=_top_to_bottom):
        here = [Lane(process, thread)]
        for i in sorted(threads[process, thread], key=lambda i: (spans[i].start_ns, -spans[i].end_ns)):
            if not any(lane.takes(i, spans[i]) for lane in here):
                here.append(Lane(process, f"{thread} ({len(here) + 1})"))
                here[-1].takes(i, spans[i])
        lanes += here
    return lanes


def _top_to_bottom(lane: tuple[str, str]) -> tuple[int, list[tuple[int, str]]]:
    """By layer; host threads as they come (sorting is stable), device threads so that Stream 10 follows Stream 2."""
    process, thread = lane
    if process in HOST:
        return LAYERS[process], []
    parts = (part for part in _DIGITS.split(thread) if part)
    return LAYERS[process], [(int(part), "") if _DIGITS.fullmatch(part) else (-1, part) for part in parts]


def overlap_analysis(timeline: Timeline) -> Iterator[Intervals]:
    """The four lanes of OVERLAP_THREADS, in order. Their lengths are those of `timeline.step_time`."""
    computing = union_ns((s.start_ns, s.end_ns) for s in timeline.spans if is_kernel(s))
    communication = union_ns((s.start_ns, s.end_ns) for s in timeline.spans if s.process == "Communication")
    yield computing
    yield communication
    yield minus(communication, computing)
    yield minus([(timeline.start_ns, timeline.end_ns)], union_ns(computing + communication))


def minus(a: Intervals, b: Intervals) -> Intervals:
    """What of `a` is not in `b`; both are disjoint and in order."""
    left: Intervals = []
    first = 0
    for start, end in a:
        while first < len(b) and b[first][1] <= start:
            first += 1
        j = first
        while j < len(b) and b[j][0] < end:
            if b[j][0] > start:
                left.append((start, b[j][0]))
            start = max(start, b[j][1])
            j += 1
        if start < end:
            left.append((start, end))
    return left


def check(timeline: Timeline) -> None:
    """Raise ValueError where `timeline` could not be drawn or read back."""
    if timeline.rank < 0:
        raise ValueError(f"rank {timeline.rank} is negative")
    if not _DEVICE.fullmatch(timeline.device):
        raise ValueError(f"device {timeline.device!r} is not one word of up to 8 capitals")
    if not 0 <= timeline.start_ns <= timeline.end_ns < MAX_NS:
        raise ValueError(f"the step lasts from {timeline.start_ns} to {timeline.end_ns} ns")
    count = len(timeline.spans)
    for i, span in enumerate(timeline.spans):
        if not 0 <= span.start_ns <= span.end_ns < MAX_NS:
            raise ValueError(f"span {i} ({span.name}) lasts from {span.start_ns} to {span.end_ns} ns")
        if not -1 <= span.launched_by < count or span.launched_by == i:
            raise ValueError(f"span {i} ({span.name}) is launched by span {span.launched_by} of {count}")
        if span.process == "Overlap Analysis":
            raise ValueError(f"span {i} ({span.name}) is on Overlap Analysis, which is computed from the others")


def merged_args(span: Span, kernel_args: KernelArgs) -> dict[str, Value]:
    """The span's own arguments, then those of its kernel that it has not. Raises ValueError for a reserved name."""
    args: dict[str, Value] = dict(span.args)
    if span.index >= 0 and span.process not in HOST:
        for key, value in kernel_args.get(span.index, {}).items():
            args.setdefault(key, value)
    for key in args:
        if key in OWN_ARGS or key == "ph":
            raise ValueError(f"{key!r} cannot be an argument of {span.name}: the trace format needs the name itself")
    return args
