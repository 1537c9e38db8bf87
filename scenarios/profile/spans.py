"""One step of an imported capture as a `Timeline`: measured spans on the lanes that predictions have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from scenarios.profile.steps import waiting_lanes
from scenarios.profile.table import NO_ROW, Capture, Kind, Step
from scenarios.timeline import Span, Timeline

#: Most spans of one timeline: each is an object, and a drawing of more helps nobody.
MAX_SPANS = 400_000

#: `Span.kind` of the events that are neither kernels nor whole collectives.
SPAN_KINDS = {
    Kind.TRANSFER: "transfer", Kind.WAIT: "notify_wait", Kind.COPY: "copy", Kind.RECORD: "event_record",
    Kind.EVENT_WAIT: "event_wait", Kind.TASK: "task",
}  # fmt: skip


def timeline_of(capture: Capture, step: Step, tasks: bool = False) -> Timeline:
    """The spans of one step, from 0 at the host's mark (or the window's start, where that is earlier).

    `Timeline.start_ns` is the start of the step's first kernel or collective and `end_ns` the end of its last (or the
    start of the next step's first, where torch_npu counts the gap for this step), so that
    `scenarios.timeline.step_time` gives what step_trace_time.csv reports. Span.index is the row of the event in
    `capture.events`. tasks: whether copies, waits between streams and the parts of collectives come along; their
    `Span.kind` is one of SPAN_KINDS, which `step_time` does not count as computing.
    Raises ValueError where the step holds more than MAX_SPANS.
    """
    events = capture.events
    rows = rows_of(capture, step, tasks)
    if len(rows) > MAX_SPANS:
        raise ValueError(f"step {step.id} holds {len(rows):,} events, more than {MAX_SPANS:,}")
    origin = min(step.start_ns, step.host_start_ns, int(events.start_ns[rows].min()) if len(rows) else step.start_ns)
    place = {int(row): i for i, row in enumerate(rows)}
    spans = [_span(capture, int(row), origin, place) for row in rows]
    spans += _waits(capture, step, origin)
    counted = rows[np.isin(events.kind[rows], (int(Kind.KERNEL), int(Kind.COLLECTIVE)))]
    first = int(events.start_ns[counted].min()) if len(counted) and not step.whole else step.start_ns
    last = int(events.end_ns[counted].max()) if len(counted) else first
    return Timeline(
        spans=tuple(spans),
        start_ns=first - origin,
        end_ns=(step.end_ns if step.whole else _end_ns(capture, step, last)) - origin,
        label=capture.label,
        rank=capture.rank,
        device=capture.device,
    )


def rows_of(capture: Capture, step: Step, tasks: bool = False) -> NDArray[np.intp]:
    """The rows that belong to `step`: what starts in its window on the device, in its mark on the host, and the host
    calls that launched the step's kernels from before it."""
    events = capture.events
    wanted = [Kind.KERNEL, Kind.COLLECTIVE, *(SPAN_KINDS if tasks else ())]
    device = events.rows(*wanted)
    starts = events.start_ns[device]
    device = device[(starts >= step.start_ns) & (starts < step.end_ns)]
    host = events.rows(Kind.HOST)
    starts = events.start_ns[host]
    host = host[(starts >= step.host_start_ns) & (starts < step.host_end_ns)]
    launching = events.launched_by[device]
    chain = [device, host]
    while len(launching := launching[launching != NO_ROW]):
        launching = np.setdiff1d(launching, np.concatenate(chain))
        chain.append(launching.astype(np.intp))
        launching = events.launched_by[launching]
    return np.unique(np.concatenate(chain))


def _end_ns(capture: Capture, step: Step, last_ns: int) -> int:
    """The end of the step: of its last kernel, or the start of the next one where the gap counts for this step."""
    events = capture.events
    device = events.rows(Kind.KERNEL, Kind.COLLECTIVE)
    later = events.start_ns[device]
    later = later[later >= max(last_ns, step.end_ns)]
    return int(later.min()) if len(later) and last_ns < step.end_ns else last_ns


def _span(capture: Capture, row: int, origin: int, place: dict[int, int]) -> Span:
    events, lane = capture.events, capture.lanes[int(capture.events.lane[row])]
    start = int(events.start_ns[row]) - origin
    kind = Kind(int(events.kind[row]))
    return Span(
        name=capture.text(row),
        # NCCL's kernels lie on streams of the device; whole collectives are communication wherever they lie.
        process="Communication" if kind == Kind.COLLECTIVE else lane.process,
        thread=lane.thread,
        start_ns=start,
        end_ns=start + int(events.duration_ns[row]),
        kind=SPAN_KINDS.get(kind, ""),
        op_type=capture.text(row, "op_type"),
        index=row if kind != Kind.HOST else -1,
        launched_by=place.get(int(events.launched_by[row]), -1),
        args=tuple(_args(capture, row)) if kind != Kind.HOST else (),
    )


def _args(capture: Capture, row: int) -> Iterator[tuple[str, str | int | float]]:
    for key, column in (
        ("Task Type", "task_type"),
        ("Input Shapes", "shapes"),
        ("Input Data Types", "dtypes"),
        ("Output Shapes", "output_shapes"),
        ("Group", "group"),
        ("Busiest Pipe", "pipe"),
    ):
        if text := capture.text(row, column):
            yield key, text
    if cores := int(capture.events.facts.block_dim[capture.events.fact[row]]):
        yield "Block Dim", cores


def _waits(capture: Capture, step: Step, origin: int) -> Iterator[Span]:
    """What collectives wait, as spans of their own next to them, as predictions have it."""
    events = capture.events
    rows = events.rows(Kind.COLLECTIVE)
    for start, end in zip(*waiting_lanes(events, capture.collective_waits_ns), strict=True):
        if step.start_ns <= start < step.end_ns:
            at = int(np.searchsorted(events.start_ns[rows], start, side="right")) - 1
            row = int(rows[max(0, at)])
            thread = capture.lanes[int(events.lane[row])].thread
            name = f"wait of {capture.text(row)}"
            yield Span(name, "Communication", thread, int(start) - origin, int(end) - origin, "wait", index=row)
