"""One rank's `*_ascend_pt` folder: trace_view.json where there is one, and the tables next to it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from scenarios.profile.read.build import Columns, FactTable, Lanes, Texts, ordered
from scenarios.profile.read.choose import WHATEVER, Only
from scenarios.profile.read.files import fail
from scenarios.profile.read.join import communicate, joined
from scenarios.profile.read.kernel_details import NEEDED, TASK_TIME, KernelDetails, read_kernel_details
from scenarios.profile.read.marks import is_mark
from scenarios.profile.read.statistics import differs_from_op_statistic, read_api_statistic
from scenarios.profile.read.streams import fifo
from scenarios.profile.read.torch_npu_files import read_communication, read_info, read_reported
from scenarios.profile.read.torch_npu_steps import steps_of_ids, steps_of_marks
from scenarios.profile.read.trace import Thread, Trace, placed, read_trace_events
from scenarios.profile.table import Capture, Events, Int32, Kind, Lane, LostLaunches, Step
from scenarios.records import dataclass

OUTPUT = "ASCEND_PROFILER_OUTPUT"
#: Task types that count as computing (msprof lists them among the kernels).
KERNEL_TASKS = frozenset(
    {"AI_CORE", "AI_VECTOR_CORE", "AI_CPU", "MIX_AIC", "MIX_AIV", "DSA_SQE", "DVPP", "KERNEL_AICORE", "KERNEL_AIVEC"}
    | {"KERNEL_AICPU", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV", "AICORE", "AIVEC", "AICPU", "AIV_SQE", "FUSION"}
)
_COPIES = frozenset({"SDMA_SQE", "PCIE_DMA_SQE", "MEMCPY_ASYNC", "MEMCPY"})
#: Tasks of collectives, on planes or, at level 0, on the device's streams.
_TRANSFERS = frozenset({"SDMA", "RDMA", "Memcpy", "Reduce_Inline", "Inter_Processor_Reduce", "RDMASend", "UB_DMA"})
_WAITS = frozenset({"Notify Wait", "Notify_Wait", "NOTIFY_WAIT_SQE"})
_STREAM = re.compile(r"Stream ([0-9]{1,9})")
#: Rows of the lanes that torch_npu works out from the others.
_OVERLAP_ANALYSIS = frozenset({"Computing", "Communication", "Communication(Not Overlapped)", "Free"})
_CANN_CALL = re.compile(r"(?:Node|AscendCL|Model|Runtime|Hccl|Communication|ACL|HCCL)@")


def read_torch_npu(folder: Path, only: Only = WHATEVER) -> Capture:
    """The capture of one rank. `folder`: `*_ascend_pt`, or the folder of its files. only: see `read_pytorch`.

    Raises CaptureError, one line, for a file that is broken or a folder that has neither trace_view.json nor
    kernel_details.csv.
    """
    output = folder / OUTPUT if (folder / OUTPUT).is_dir() else folder
    above = output.parent if output.name == OUTPUT else output
    texts, info = Texts(output), read_info(above)
    reported = read_reported(output / "step_trace_time.csv") if _has(output, "step_trace_time.csv") else ()
    communicated = read_communication(output / "communication.json") if _has(output, "communication.json") else ()
    rows = _rows(output, texts, only)
    events, waits, lost = communicate(rows.events, communicated, texts, rows.facts)
    notes, lost = [*info.notes, *rows.notes], [*rows.lost, *lost]
    if not _has(output, "step_trace_time.csv"):
        notes.append("step_trace_time.csv is missing")
    if rows.in_part:
        lost = []  # the tables are of the whole trace, of which a part was read
    elif _has(output, "op_statistic.csv"):
        fewer, differs = differs_from_op_statistic(output / "op_statistic.csv", events, texts.tuple())
        lost, notes = [*lost, *fewer], [*notes, *differs]
    device = reported[0].device if reported else 0
    return Capture(
        source=str(folder),
        kind="torch_npu",
        rank=info.rank if info.rank is not None else _rank_of_name(above.name, device),
        device="NPU",
        texts=texts.tuple(),
        lanes=rows.lanes,
        events=events,
        steps=rows.steps,
        reported=reported,
        metadata=info.metadata,
        groups=info.groups,
        collective_waits_ns=waits,
        dropped=rows.dropped,
        notes=tuple(notes),
        own_steps=rows.own_steps,
        lost=tuple(lost),
        lost_launches=rows.lost_launches,
        host_apis=read_api_statistic(output / "api_statistic.csv") if _has(output, "api_statistic.csv") else (),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """The events of a rank's trace and table of kernels."""

    events: Events
    lanes: tuple[Lane, ...]
    facts: FactTable
    steps: tuple[Step, ...]
    dropped: dict[str, int]
    notes: list[str]
    own_steps: Int32 | None = None
    lost: tuple[str, ...] = ()
    lost_launches: LostLaunches | None = None
    in_part: bool = False


def _rows(output: Path, texts: Texts, only: Only) -> _Rows:
    """The rows of trace_view.json with what kernel_details.csv knows of them, or of the table alone."""
    details = read_kernel_details(output / "kernel_details.csv", texts) if _has(output, "kernel_details.csv") else None
    if _has(output, "trace_view.json"):
        return _of_trace(read_trace_events(output / "trace_view.json", texts, only), details, only)
    if details is None:
        fail(output, "has neither trace_view.json nor kernel_details.csv")
    _no_host(output, only.mark)
    events, lanes, facts = _of_details(output, details, texts)
    events, clipped = fifo(events, lanes)
    steps, own = steps_of_ids(events, details, texts.tuple())
    note = "trace_view.json is missing: kernels and collectives only, no host calls and no launches"
    return _Rows(events, lanes, facts=facts, steps=steps, dropped={}, notes=[note, *clipped], own_steps=own)


def _no_host(path: Path, mark: str) -> None:
    """Raise CaptureError where marks are asked for and there are no calls of the host that could be any."""
    if mark:
        fail(path, "--step-mark: the profile has no calls of the host, only a table of kernels")


def _of_trace(trace: Trace, details: KernelDetails | None, only: Only) -> _Rows:
    columns, lanes = placed(trace, place, partial(classify, mark=only.mark))
    texts, facts, dropped = trace.texts, trace.facts, dict(trace.dropped)
    in_part = trace.part is not None
    events, notes, lost = joined(ordered(columns, facts.facts()), details, texts, facts, in_part)
    if trace.part is not None:
        notes.append(trace.part.note)
    events, clipped = fifo(events, lanes)
    events, steps = steps_of_marks(events, texts.tuple())
    return _Rows(
        events,
        lanes,
        facts=facts,
        steps=steps,
        dropped=dropped,
        notes=[*notes, *clipped],
        own_steps=None,
        lost=tuple(lost),
        lost_launches=trace.flows.lost,
        in_part=in_part,
    )


def read_trace_view(path: Path, only: Only = WHATEVER) -> Capture:
    """The capture of a trace_view.json alone: no shapes, no reported step times.

    An array of events without a device of torch_npu is read as a trace of PyTorch.
    """
    texts = Texts(path)
    trace = read_trace_events(path, texts, only)
    # Kernels of torch_npu say their task type, also where a trimmed file no longer names their process.
    if "Ascend Hardware" not in trace.process_names.values() and not trace.has_tasks():
        from scenarios.profile.read.pytorch import capture_of_trace

        return capture_of_trace(path, trace, only)
    rows = _of_trace(trace, None, only)
    if not len(rows.events.rows(Kind.KERNEL, Kind.COLLECTIVE)):
        fail(path, "holds no kernels of a device")
    return _alone(path, texts, rows, (*rows.notes, "step_trace_time.csv is missing"))


def read_op_summary(path: Path, only: Only = WHATEVER) -> Capture:
    """The capture of msprof's op_summary_*.csv (or task_time_*.csv, or a kernel_details.csv alone): kernels and
    collectives of a device."""
    texts = Texts(path)
    _no_host(path, only.mark)
    details = read_kernel_details(path, texts, TASK_TIME if path.name.startswith("task_time") else NEEDED)
    events, lanes, facts = _of_details(path, details, texts)
    events, clipped = fifo(events, lanes)
    steps, own = steps_of_ids(events, details, texts.tuple())
    rows = _Rows(events, lanes, facts=facts, steps=steps, dropped={}, notes=clipped, own_steps=own)
    capture = _alone(
        path,
        texts,
        rows,
        (
            "a table of kernels alone: no host calls, no launches, no reported step times",
            *([f"{details.unnamed:,} tasks are no kernels and left out"] if details.unnamed else []),
            *rows.notes,
        ),
    )
    device = next((name for name in details.devices if name.isdigit() and len(name) < 7), "0")
    return replace(capture, kind="msprof", rank=int(device))


def _alone(path: Path, texts: Texts, rows: _Rows, notes: tuple[str, ...]) -> Capture:
    """The capture of one file that nothing lies next to."""
    return Capture(
        source=str(path),
        kind="torch_npu",
        rank=0,
        device="NPU",
        texts=texts.tuple(),
        lanes=rows.lanes,
        events=rows.events,
        steps=rows.steps,
        reported=(),
        metadata={},
        groups={},
        collective_waits_ns={},
        dropped=rows.dropped,
        notes=notes,
        own_steps=rows.own_steps,
        lost=rows.lost,
        lost_launches=rows.lost_launches,
    )


def _has(output: Path, name: str) -> bool:
    return (output / name).exists() or (output / name).is_symlink()


def _rank_of_name(name: str, device: int) -> int:
    """`rank_3_ascend_pt` and `rank3_ascend_pt` are rank 3; else the device's number stands for it."""
    match = re.match(r"rank_?([0-9]{1,6})(?![0-9])", name)
    return int(match[1]) if match else device


def place(thread: Thread) -> Lane | None:
    """The lane of a thread of torch_npu's trace; None for counters and what is computed from the others."""
    if not thread.process:
        thread = _named(thread)
    source = f"{thread.process}/{thread.name or thread.tid}"
    if thread.process in ("Python", "CANN"):
        return Lane(
            "Python" if thread.process == "Python" else "CANN", thread.name or f"Thread {thread.tid}", -1, source
        )
    if thread.process in ("HCCL", "Communication"):
        return Lane("Communication", thread.name or f"Thread {thread.tid}", -1, source)
    if thread.process == "Ascend Hardware":
        match = _STREAM.fullmatch(thread.name)
        stream = int(match[1]) if match else thread.tid if isinstance(thread.tid, int) else -1
        return Lane("Ascend Hardware", thread.name or f"Stream {thread.tid}", stream, source)
    return None


def _named(thread: Thread) -> Thread:
    """A thread of a process that the file does not name, as its rows say: tasks of a device, collectives and their
    parts, calls of CANN (`Node@launch`), calls of Python."""
    if thread.tasks:
        return replace(thread, process="Ascend Hardware")
    if any(name.startswith("hcom_") for name in thread.names):
        return replace(thread, process="Communication")
    if thread.names & (_TRANSFERS | _WAITS):
        return replace(thread, process="Communication", name=thread.name or f"Plane {thread.tid}")
    if thread.names & _OVERLAP_ANALYSIS:
        return thread
    if any(_CANN_CALL.match(name) for name in thread.names):
        return replace(thread, process="CANN")
    return replace(thread, process="Python")


def classify(lane: Lane, name: str, task_type: str, category: str, mark: str = "") -> Kind:
    """What an event of torch_npu's trace is. mark: the name of the marks of steps, "" for the best that are there."""
    if lane.process in ("Python", "CANN"):
        return Kind.STEP if (mark or lane.process == "Python") and is_mark(name, mark) else Kind.HOST
    if lane.process == "Communication" and not lane.thread.startswith("Plane"):
        return Kind.COLLECTIVE
    task = name if lane.process == "Communication" else task_type
    if task in KERNEL_TASKS:
        return Kind.KERNEL
    if task in _WAITS:
        return Kind.WAIT
    if task in _COPIES or name.startswith("MEMCPY"):
        return Kind.COPY
    if task in _TRANSFERS:
        return Kind.TRANSFER
    if "EVENT_RECORD" in task or name == "EVENT_RECORD":
        return Kind.RECORD
    return Kind.EVENT_WAIT if "EVENT_WAIT" in task or name == "EVENT_WAIT" else Kind.TASK


def _of_details(output: Path, details: KernelDetails, texts: Texts) -> tuple[Events, tuple[Lane, ...], FactTable]:
    """Events of kernel_details.csv alone."""
    lanes, columns, facts = Lanes(), Columns(output), FactTable(output)
    collective = details.column("collective") != 0
    streams = details.column("stream")
    lane = np.empty(len(details), dtype=np.int16)
    for stream in np.unique(streams[~collective]).tolist():
        name = f"Stream {stream}" if stream >= 0 else "Stream unknown"
        lane[~collective & (streams == stream)] = lanes[Lane("Ascend Hardware", name, stream)]
    if collective.any():
        lane[collective] = lanes[Lane("Communication", "Communication")]
    kinds = np.where(collective, np.int8(Kind.COLLECTIVE), np.int8(Kind.KERNEL))
    shared = {name: details.column(name) for name in ("start_ns", "duration_ns", "name")}
    columns.add(kind=kinds, lane=lane, fact=details.facts(facts, texts), **shared)
    return ordered(columns.take(), facts.facts()), tuple(lanes), facts
