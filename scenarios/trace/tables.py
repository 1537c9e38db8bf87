"""torch_npu's tables of a step, so that tools which compare its profiles read ours too."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from scenarios.timeline import COMPUTE, Span, Timeline, is_kernel, step_time
from scenarios.trace.layout import KernelArgs, Value, check, lanes_of, merged_args, us

STEP_COLUMNS = (
    "Device_id", "Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free", "Stage",
    "Bubble", "Communication(Not Overlapped and Exclude Receive)", "Preparing",
)  # fmt: skip

#: Columns whose value is an argument of the span or its kernel.
KERNEL_ARG_COLUMNS = (
    "Block Dim", "Mix Block Dim", "HF32 Eligible", "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes",
    "Output Data Types", "Output Formats",
)  # fmt: skip
KERNEL_COLUMNS = (
    "Step Id", "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core",
    "Start Time(us)", "Duration(us)", "Wait Time(us)", *KERNEL_ARG_COLUMNS,
)  # fmt: skip

#: torch_npu's number for a kernel of no model.
NO_MODEL = 2**32 - 1
NOT_KNOWN = "N/A"

_STREAM = re.compile(r"Stream ([0-9]{1,9})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def step_trace_time_csv(timelines: Timeline | Iterable[Timeline]) -> str:
    """step_trace_time.csv: one row for each timeline, µs. Raises ValueError for a timeline that is none.

    Stage is the whole step and Free all of it that neither computes nor communicates, so that the columns add up as
    `step_time` does. torch_npu counts the time before a profile's first kernel as Preparing only; here, as in every
    later step of its profiles, it is Free as well. Bubble is the time in hcom_receive, as it has it.
    """
    return _csv(STEP_COLUMNS, [_step_row(timeline) for timeline in _several(timelines)])


def _step_row(timeline: Timeline) -> list[Value]:
    time = step_time(timeline)
    device = [s for s in timeline.spans if is_kernel(s) or s.process == "Communication"]
    bubble_ns = sum(s.duration_ns for s in device if s.name.lower().startswith("hcom_receive") and _is_collective(s))
    first_ns = min((s.start_ns for s in device), default=timeline.end_ns)
    times_ns = (
        time.computing_ns,
        time.communication_not_overlapped_ns,
        time.overlapped_ns,
        time.communication_ns,
        time.free_ns,
        time.total_ns - bubble_ns,
        bubble_ns,
        time.communication_not_overlapped_ns - bubble_ns,
        first_ns - timeline.start_ns,
    )
    # A receive that computing hides would make a remainder negative.
    return [timeline.rank, 0, *(us(max(0, ns)) for ns in times_ns)]


def kernel_details_csv(timelines: Timeline | Iterable[Timeline], kernel_args: KernelArgs | None = None) -> str:
    """kernel_details.csv: a row for each kernel and collective, in order of start.

    What is not known is N/A. Accelerator Core is the argument `Task Type`, and the KERNEL_ARG_COLUMNS are arguments of
    their own names, of the span or else of its kernel. Wait Time counts from the end of the row before, as torch_npu's.
    Raises ValueError as `trace_events`.
    """
    rows: list[list[Value]] = []
    for timeline in _several(timelines):
        check(timeline)
        rows += _kernel_rows(timeline, kernel_args or {})
    return _csv(KERNEL_COLUMNS, rows)


def _kernel_rows(timeline: Timeline, kernel_args: KernelArgs) -> list[list[Value]]:
    spans = timeline.spans
    task_ids = {i: n for lane in lanes_of(spans) for n, i in enumerate(lane.spans)}
    listed = [i for i, s in enumerate(spans) if is_kernel(s) or _is_collective(s)]
    rows: list[list[Value]] = []
    ready_ns = None
    for i in sorted(listed, key=lambda i: (spans[i].start_ns, i)):
        span = spans[i]
        args = merged_args(span, kernel_args)
        stream = _STREAM.fullmatch(span.thread)
        kernel = span.process in COMPUTE
        core = "COMMUNICATION" if not kernel else "AI_CPU" if span.process == "AI CPU" else NOT_KNOWN
        wait_ns = 0 if ready_ns is None else max(0, span.start_ns - ready_ns)
        ready_ns = span.end_ns
        rows.append(
            [
                0,
                timeline.rank,
                NO_MODEL,
                task_ids[i] if kernel else NOT_KNOWN,
                int(stream[1]) if kernel and stream else NOT_KNOWN,
                span.name,
                span.op_type or NOT_KNOWN,
                args.get("OP State", NOT_KNOWN),
                args.get("Task Type", core),
                us(span.start_ns),
                us(span.duration_ns),
                us(wait_ns),
                *(_argument(column, args.get(column)) for column in KERNEL_ARG_COLUMNS),
            ]
        )
    return rows


def _argument(column: str, value: Value | None) -> Value:
    """Shapes stand in quotation marks of their own in torch_npu's tables."""
    if value is None:
        return NOT_KNOWN
    if column.endswith("Shapes") and isinstance(value, str) and not value.startswith('"') and value != NOT_KNOWN:
        return f'"{value}"'
    return value


def _is_collective(span: Span) -> bool:
    """Whether the span is a whole collective; planes hold its pieces, and waiting is part of it."""
    return span.process == "Communication" and not span.thread.startswith("Plane") and not span.is_wait


def _several(timelines: Timeline | Iterable[Timeline]) -> Iterable[Timeline]:
    return (timelines,) if isinstance(timelines, Timeline) else timelines


def _csv(columns: tuple[str, ...], rows: list[list[Value]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Value) -> Value:
    """One line of text that does not start as a formula: a spreadsheet that opens the file would run it."""
    if not isinstance(value, str):
        return value
    value = _CONTROL.sub(" ", value)
    return f"'{value}" if value.startswith(("=", "+", "-", "@")) else value
