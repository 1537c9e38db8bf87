"""The writer: a Chrome trace in the array form, one event a line.

`ph` is the last key of an event and occurs nowhere else as a whole string: MindStudio Insight cuts large files behind
it. The lane "SIMULATED step" (or "MEASURED step") and the labels of all processes keep a prediction from being taken
for a measurement.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from scenarios.files.atomic import write_text
from scenarios.timeline import COMPUTE, Span, Timeline
from scenarios.trace.layout import (
    HOST,
    LAYERS,
    OVERLAP_THREADS,
    SPAN_ARG,
    STEP_NAME,
    STEP_TID,
    KernelArgs,
    Lane,
    Value,
    check,
    lanes_of,
    merged_args,
    overlap_analysis,
    us,
)

_STREAM = re.compile(r"Stream ([0-9]{1,9})")


def write_trace(
    path: str | os.PathLike[str],
    timelines: Timeline | Iterable[Timeline],
    kernel_args: KernelArgs | Sequence[KernelArgs] | None = None,
) -> None:
    """Write the trace to `path`, whole or not at all. Raises OutputError, and ValueError as `trace_events`."""
    write_text(path, trace_text(timelines, kernel_args))


def trace_text(
    timelines: Timeline | Iterable[Timeline], kernel_args: KernelArgs | Sequence[KernelArgs] | None = None
) -> str:
    """The whole trace file. Raises ValueError as `trace_events`."""
    return "[\n" + ",\n".join(trace_events(timelines, kernel_args)) + "\n]\n"


def trace_events(
    timelines: Timeline | Iterable[Timeline], kernel_args: KernelArgs | Sequence[KernelArgs] | None = None
) -> Iterator[str]:
    """The events of a trace as JSON texts; the same timelines always give the same texts.

    Several timelines (ranks, or a prediction and its measurement) get a set of processes each. `kernel_args` adds
    arguments to the device spans of an index, a sequence to those of each timeline; those that the span itself has
    win. "Overlap Analysis" and, where `hbm_bytes` is known, the HBM counter are computed here. Raises ValueError for a
    timeline that has no trace: times before 0, an end before its start, a name of the writer's own among the
    arguments, a number that JSON has not.
    """
    texts = _Texts()
    spans_before = 0
    for slot, timeline in enumerate((timelines,) if isinstance(timelines, Timeline) else timelines):
        check(timeline)
        args = kernel_args[slot] if isinstance(kernel_args, Sequence) else kernel_args
        yield from _Writer(timeline, slot, spans_before, args or {}, texts).events()
        spans_before += len(timeline.spans)


class _Texts(dict[str, str]):
    """The JSON text of each string, made once."""

    def __missing__(self, text: str) -> str:
        escaped = self[text] = r'"\u0070h"' if text == "ph" else json.dumps(text)
        return escaped

    def value(self, value: Value) -> str:
        if isinstance(value, str):
            return self[value]
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, int) else _fixed_point(value)


def _fixed_point(value: float) -> str:
    """The shortest digits that read back as `value`, without an exponent and not to be taken for an integer."""
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be an argument: JSON has no such number")
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


class _Writer:
    """One timeline. `slot` and `first` count the timelines and the spans before it in the file."""

    def __init__(self, timeline: Timeline, slot: int, first: int, kernel_args: KernelArgs, texts: _Texts) -> None:
        self.timeline, self.spans = timeline, timeline.spans
        self.slot, self.first, self.texts = slot, first, texts
        self.args = [merged_args(span, kernel_args) for span in self.spans]
        self.launchers = {span.launched_by for span in self.spans}
        self.lanes = lanes_of(self.spans)
        self.threads: dict[str, list[str]] = {"Python": [f"{timeline.label} step"]}
        self.place: dict[int, tuple[int, int]] = {}  # span -> pid, tid
        for lane in self.lanes:
            threads = self.threads.setdefault(lane.process, [])
            threads.append(lane.thread)
            self.place |= dict.fromkeys(lane.spans, (self.pid(lane.process), len(threads)))
        self.threads["Overlap Analysis"] = list(OVERLAP_THREADS)

    def pid(self, process: str) -> int:
        return (self.slot + 1) << 10 | LAYERS[process] << 5 | self.timeline.rank % 31

    def events(self) -> Iterator[str]:
        counters = list(self._hbm_counters())
        if counters:
            self.threads.setdefault("HBM", [])
        yield from self._names()
        yield self._plain_slice(STEP_NAME, "Python", STEP_TID, self.timeline.start_ns, self.timeline.end_ns)
        for lane in self.lanes:
            for number, i in enumerate(lane.spans):
                yield self._span(i, lane, number)
        yield from self._arrows()
        for tid, (name, intervals) in enumerate(zip(OVERLAP_THREADS, overlap_analysis(self.timeline), strict=True), 1):
            for start, end in intervals:
                yield self._plain_slice(name, "Overlap Analysis", tid, start, end)
        yield from counters

    def _names(self) -> Iterator[str]:
        """What processes and threads are called, and their order from top to bottom."""
        for process in sorted(self.threads, key=LAYERS.__getitem__):
            pid = self.pid(process)
            where = "CPU" if process in HOST else f"{self.timeline.device} {self.timeline.rank}"
            yield _name("process_name", pid, 0, f'"name": "{process}"')
            yield _name("process_labels", pid, 0, f'"labels": "{where} {self.timeline.label}"')
            yield _name("process_sort_index", pid, 0, f'"sort_index": {self.slot * 32 + LAYERS[process]}')
            for tid, thread in enumerate(self.threads[process], 1):
                yield _name("thread_name", pid, tid, f'"name": {self.texts[thread]}')
                yield _name("thread_sort_index", pid, tid, f'"sort_index": {tid}')

    def _plain_slice(self, name: str, process: str, tid: int, start_ns: int, end_ns: int) -> str:
        """A slice that is no span."""
        cat = '"cat": "cpu_op", ' if process == "Python" else ""
        return (
            f'{{"name": "{name}", "pid": {self.pid(process)}, "tid": {tid}, "ts": "{us(start_ns)}", '
            f'"dur": {us(end_ns - start_ns)}, {cat}"ph": "X"}}'
        )

    def _span(self, i: int, lane: Lane, number: int) -> str:
        """Span `i` as a slice, the `number`th of its lane."""
        span, texts = self.spans[i], self.texts
        pid, tid = self.place[i]
        args = "".join([f", {texts[key]}: {texts.value(value)}" for key, value in self.args[i].items()])
        return (
            f'{{"name": {texts[span.name]}, "pid": {pid}, "tid": {tid}, "ts": "{us(span.start_ns)}", '
            f'"dur": {us(span.end_ns - span.start_ns)}, {_category(span)}'
            f'"args": {{{self._own_args(i, lane, number)}"{SPAN_ARG}": {i}{args}}}, "ph": "X"}}'
        )

    def _own_args(self, i: int, lane: Lane, number: int) -> str:
        """Where the span belongs and who launched it: with `span`, enough to read it back."""
        span, own = self.spans[i], ""
        launched_by = self.first + span.launched_by if span.launched_by >= 0 else None
        if lane.process in ("Ascend Hardware", "Device"):
            if span.process == "AI CPU" and "Task Type" not in self.args[i]:
                own += '"Task Type": "AI_CPU", '
            if stream := _STREAM.fullmatch(span.thread):
                own += f'"Physic Stream Id": {int(stream[1])}, '
            own += f'"Task Id": {number}, '
        if span.process not in HOST:
            own += f'"connection_id": {launched_by}, ' if launched_by is not None else ""
        else:
            own += f'"connection_id": {self.first + i}, ' if i in self.launchers else ""
            own += f'"correlation_id": {launched_by}, ' if launched_by is not None else ""
        own += f'"kind": {self.texts[span.kind]}, ' if span.kind else ""
        own += f'"op_type": {self.texts[span.op_type]}, ' if span.op_type else ""
        own += f'"index": {span.index}, ' if span.index != -1 else ""
        own += f'"layer": {span.layer}, ' if span.layer != -1 else ""
        own += f'"process": "{span.process}", ' if span.process != lane.process else ""
        own += f'"thread": {self.texts[span.thread]}, ' if span.thread != lane.thread else ""
        return own

    def _arrows(self) -> Iterator[str]:
        """From who launched to what was launched, in the categories of torch_npu, or of torch where it is no NPU; both
        ends lie inside their slices."""
        to_device = ("async_npu", "torch_to_npu") if self.timeline.device == "NPU" else ("ac2g", "ac2g")
        for i, span in enumerate(self.spans):
            source, number = span.launched_by, self.first + i
            if source < 0:
                continue
            if span.process in HOST:
                yield from self._arrow(source, i, "async_task_queue", "enqueue_to_dequeue", str(number))
                continue
            yield from self._arrow(source, i, "HostToDevice", f"HostToDevice{number}", f'"{number}"')
            operator = self._python_ancestor(source)
            if operator >= 0:
                yield from self._arrow(operator, i, *to_device, str(number))

    def _python_ancestor(self, i: int) -> int:
        """The Python span that `i` is or goes back to, -1 where there is none. Bounded, should launches form a ring."""
        for _ in range(8):
            if i < 0 or self.spans[i].process == "Python":
                break
            i = self.spans[i].launched_by
        else:
            return -1
        return i

    def _arrow(self, source: int, target: int, cat: str, name: str, number: str) -> Iterator[str]:
        tail, head = self.spans[source], self.spans[target]
        # An empty slice holds no point an arrow could touch, and a measured clock may put a cause after its effect.
        if tail.duration_ns <= 0 or head.duration_ns <= 0 or tail.start_ns > head.start_ns:
            return
        for phase, i, ns in (("s", source, tail.start_ns), ("f", target, head.start_ns)):
            pid, tid = self.place[i]
            yield (
                f'{{"name": "{name}", "cat": "{cat}", "id": {number}, "pid": {pid}, "tid": {tid}, '
                f'"ts": "{us(ns)}", "bp": "e", "ph": "{phase}"}}'
            )

    def _hbm_counters(self) -> Iterator[str]:
        """HBM traffic over time, MB/s: the bytes of each kernel spread evenly over its duration."""
        change: dict[int, int] = {}
        for span, args in zip(self.spans, self.args, strict=True):
            moved = args.get("hbm_bytes")
            if span.process not in (*COMPUTE, "Communication") or not isinstance(moved, int) or span.duration_ns == 0:
                continue
            rate = moved * 1000 // span.duration_ns
            change[span.start_ns] = change.get(span.start_ns, 0) + rate
            change[span.end_ns] = change.get(span.end_ns, 0) - rate
        level = 0
        for ns in sorted(ns for ns in change if change[ns]):
            level += change[ns]
            yield (
                f'{{"name": "HBM/Traffic", "pid": {self.pid("HBM")}, "tid": 0, "ts": "{us(ns)}", '
                f'"args": {{"Traffic(MB/s)": {level}}}, "ph": "C"}}'
            )


def _name(what: str, pid: int, tid: int, arg: str) -> str:
    return f'{{"name": "{what}", "pid": {pid}, "tid": {tid}, "args": {{{arg}}}, "ph": "M"}}'


def _category(span: Span) -> str:
    if span.process != "Python":
        return ""
    for start in ("Enqueue", "Dequeue"):
        if span.name.startswith(start):
            return f'"cat": "{start.lower()}", '
    return '"cat": "cpu_op", '
