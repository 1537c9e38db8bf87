"""Traces that `whatif run --trace` wrote, predictions and measurements, as captures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scenarios.profile.read.build import Columns, FactTable, Lanes, Texts, ordered
from scenarios.profile.read.files import LIMITS, fail
from scenarios.profile.table import NO_ROW, Capture, Kind, Lane, Step
from scenarios.timeline import QUEUED, Span, Timeline, is_kernel
from scenarios.trace import read_trace

_HOST = ("Python", "CANN")
_KINDS = {
    "transfer": Kind.TRANSFER, "notify_wait": Kind.WAIT, "wait": Kind.WAIT, "copy": Kind.COPY,
    "event_record": Kind.RECORD, "event_wait": Kind.EVENT_WAIT,
}  # fmt: skip
#: Arguments of a span that are facts of a kernel, in the order of FACTS behind op_type.
_FACT_ARGS = ("Task Type", "Input Shapes", "Input Data Types", "Output Shapes", "Group", "Busiest Pipe")


def read_own(path: Path) -> list[Capture]:
    """The timelines of a trace of ours. Where it holds a prediction next to its measurement, the measurement.

    Raises TraceError or CaptureError, one line.
    """
    timelines = read_trace(path)
    measured = [timeline for timeline in timelines if timeline.label == "MEASURED"]
    notes = ["a trace of this tool: one step, no reported step times"]
    if measured and len(measured) < len(timelines):
        notes.append("the prediction beside it in the file was left out")
        timelines = measured
    elif not measured:
        notes.append("a PREDICTION, not a measurement")
    return [_capture(path, timeline, tuple(notes)) for timeline in timelines]


def _capture(path: Path, timeline: Timeline, notes: tuple[str, ...]) -> Capture:
    if len(timeline.spans) > LIMITS.events:
        fail(path, f"holds more than {LIMITS.events:,} events")
    texts, facts, lanes, columns = Texts(path), FactTable(path), Lanes(), Columns(path)
    spans = timeline.spans
    columns.add(
        kind=[int(_kind(span)) for span in spans],
        lane=[lanes[Lane(span.process, span.thread, _stream(span.thread))] for span in spans],
        start_ns=[span.start_ns for span in spans],
        duration_ns=[span.duration_ns for span in spans],
        launched_by=[span.launched_by if span.launched_by >= 0 else NO_ROW for span in spans],
        name=[texts[span.name] for span in spans],
        fact=[_fact(span, texts, facts) for span in spans],
    )
    step = Step("", timeline.start_ns, timeline.end_ns, timeline.start_ns, timeline.end_ns, whole=True)
    return Capture(
        source=str(path),
        kind="what-if trace",
        rank=timeline.rank,
        device=timeline.device,
        texts=texts.tuple(),
        lanes=tuple(lanes),
        events=ordered(columns.take(), facts.facts()),
        steps=(step,) if spans else (),
        reported=(),
        metadata={},
        groups={},
        collective_waits_ns={},
        dropped={},
        notes=notes,
        label=timeline.label,
    )


def _kind(span: Span) -> Kind:
    if span.process in _HOST:
        return Kind.HOST
    if span.kind in QUEUED or span.is_wait:
        return _KINDS.get(span.kind, Kind.TASK)
    if span.process == "Communication":
        return Kind.COLLECTIVE
    return Kind.KERNEL if is_kernel(span) else Kind.TASK


def _stream(thread: str) -> int:
    number = thread.removeprefix("Stream ")
    return int(number) if thread.startswith("Stream ") and number.isdigit() and len(number) < 10 else -1


def _fact(span: Span, texts: Texts, facts: FactTable) -> int:
    if span.process in _HOST:
        return 0
    args = dict(span.args)
    words: Sequence[str] = [span.op_type, *(str(args.get(key, "")) for key in _FACT_ARGS)]
    cores = args.get("Block Dim", 0)
    number = int(np.clip(cores, 0, 2**31 - 1)) if isinstance(cores, int | float) else 0
    return facts[(*(texts[word] for word in words), number)]
