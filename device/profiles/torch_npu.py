"""One rank's `*_ascend_pt` folder: trace_view.json where there is one, and the tables beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from device.profiles.build import Columns, Lanes, Texts, ordered
from device.profiles.files import fail
from device.profiles.kernel_details import KernelDetails, op_type_of, read_kernel_details
from device.profiles.torch_npu_files import Communicated, read_communication, read_info, read_reported
from device.profiles.torch_npu_steps import steps_of_ids, steps_of_marks
from device.profiles.trace import Thread, placed, read_trace_events
from scenarios.profile.table import Events, Kind, Lane, Profile

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
#: From this share of the kernels in kernel_details.csv found in the trace on, the table says what a kernel is.
MATCHED = 0.9


def read_torch_npu(folder: Path) -> Profile:
    """The profile of one rank. `folder`: `*_ascend_pt`, or its ASCEND_PROFILER_OUTPUT.

    Raises ProfileError, one line, for a file that is broken or a folder that has neither trace_view.json nor
    kernel_details.csv.
    """
    output = folder if folder.name == OUTPUT else folder / OUTPUT
    above = output.parent
    texts = Texts(output)
    info = read_info(above)
    notes = list(info.notes)
    details = read_kernel_details(output / "kernel_details.csv", texts) if _has(output, "kernel_details.csv") else None
    reported = read_reported(output / "step_trace_time.csv") if _has(output, "step_trace_time.csv") else ()
    communicated = read_communication(output / "communication.json") if _has(output, "communication.json") else ()
    notes += [f"{name} is missing" for name in ("step_trace_time.csv",) if not _has(output, name)]
    dropped: dict[str, int] = {}
    if _has(output, "trace_view.json"):
        trace = read_trace_events(output / "trace_view.json", texts)
        columns, lanes = placed(trace, place, classify)
        dropped = dict(trace.dropped)
        del trace
        events, _ = ordered(columns)
        notes += _join(events, details, texts, lanes)
        steps = steps_of_marks(events, texts.tuple())
    elif details is not None:
        notes.append("trace_view.json is missing: kernels and collectives only, no host calls and no launches")
        events, lanes = _of_details(output, details, texts)
        steps = steps_of_ids(events, details, texts.tuple())
    else:
        fail(output, "has neither trace_view.json nor kernel_details.csv")
    waits = _communicated(events, communicated, texts)
    device = reported[0].device if reported else 0
    return Profile(
        source=str(folder),
        kind="torch_npu",
        rank=info.rank if info.rank is not None else _rank_of_name(above.name, device),
        device="NPU",
        texts=texts.tuple(),
        lanes=lanes,
        events=events,
        steps=steps,
        reported=reported,
        metadata=info.metadata,
        groups=info.groups,
        collective_waits_ns=waits,
        dropped=dropped,
        notes=tuple(notes),
    )


def _has(output: Path, name: str) -> bool:
    return (output / name).exists() or (output / name).is_symlink()


def _rank_of_name(name: str, device: int) -> int:
    """`rank_3_ascend_pt` and `rank3_ascend_pt` are rank 3; else the device's number stands for it."""
    match = re.match(r"rank_?([0-9]{1,6})(?![0-9])", name)
    return int(match[1]) if match else device


def place(thread: Thread) -> Lane | None:
    """The lane of a thread of torch_npu's trace; None for counters and what is computed from the others."""
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


def classify(lane: Lane, name: str, task_type: str, category: str) -> Kind:
    """What an event of torch_npu's trace is."""
    if lane.process in ("Python", "CANN"):
        return Kind.STEP if name.startswith("ProfilerStep#") else Kind.HOST
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


def _join(events: Events, details: KernelDetails | None, texts: Texts, lanes: tuple[Lane, ...]) -> list[str]:
    """Write what kernel_details.csv knows into the rows of the trace; notes on what does not fit."""
    device = events.rows(Kind.KERNEL, Kind.COLLECTIVE, Kind.TASK)
    _types_of_names(events, texts, device)
    if details is None:
        return ["kernel_details.csv is missing: no shapes and no data types"]
    starts, names = details.starts(), details.column("name")
    order = np.lexsort((names, starts))
    at = _find(starts[order], names[order], events.start_ns[device], events.name[device])
    matched, rows = device[at >= 0], order[at[at >= 0]]
    for name in ("op_type", "task_type", "shapes", "dtypes", "output_shapes", "block_dim"):
        column, values = getattr(events, name), details.column(name)[rows]
        column[matched] = np.where(values != 0, values, column[matched])
    kernels = matched[details.column("collective")[rows] == 0]
    listed = int((details.column("collective") == 0).sum())
    notes = []
    if len(kernels) < listed:
        notes.append(
            f"{listed - len(kernels):,} of {listed:,} kernels of kernel_details.csv are not in trace_view.json"
        )
    if listed and len(kernels) >= MATCHED * listed:
        events.kind[kernels] = Kind.KERNEL
        others = np.setdiff1d(events.rows(Kind.KERNEL), kernels)
        events.kind[others] = Kind.TASK
        if len(others):
            notes.append(f"{len(others):,} tasks of cores are no kernels to kernel_details.csv and count as neither")
    return notes


def _types_of_names(events: Events, texts: Texts, rows: Any) -> None:
    """Op types from the names, which is all that level 0 has."""
    words = texts.tuple()
    for number in np.unique(events.name[rows]).tolist():
        op_type = texts[op_type_of(words[number])]
        events.op_type[rows[events.name[rows] == number]] = op_type


def _find(starts: Any, names: Any, want_starts: Any, want_names: Any) -> Any:
    """The place of each (start, name) among sorted ones, -1 where it is not."""
    found = np.full(len(want_starts), -1, dtype=np.int64)
    if not len(starts):
        return found
    at = np.searchsorted(starts, want_starts)
    for _ in range(8):  # kernels that start in one nanosecond: on as many streams at most
        here = np.minimum(at, len(starts) - 1)
        same = (found < 0) & (starts[here] == want_starts) & (names[here] == want_names)
        found[same] = here[same]
        at = at + 1
    return found


def _of_details(output: Path, details: KernelDetails, texts: Texts) -> tuple[Events, tuple[Lane, ...]]:
    """Events of kernel_details.csv alone."""
    lanes, columns = Lanes(), Columns(output)
    collective = details.column("collective") != 0
    streams = details.column("stream")
    lane = np.empty(len(details), dtype=np.int32)
    for stream in np.unique(streams[~collective]).tolist():
        name = f"Stream {stream}" if stream >= 0 else "Stream unknown"
        lane[~collective & (streams == stream)] = lanes[Lane("Ascend Hardware", name, stream)]
    if collective.any():
        lane[collective] = lanes[Lane("Communication", "Communication")]
    kinds = np.where(collective, np.int8(Kind.COLLECTIVE), np.int8(Kind.KERNEL))
    shared = (
        "start_ns",
        "duration_ns",
        "block_dim",
        "name",
        "op_type",
        "task_type",
        "shapes",
        "dtypes",
        "output_shapes",
    )
    columns.add(kind=kinds, lane=lane, **{name: details.column(name) for name in shared})
    events, _ = ordered(columns.take())
    return events, tuple(lanes)


def _communicated(events: Events, communicated: tuple[Communicated, ...], texts: Texts) -> dict[int, int]:
    """Groups into the rows of collectives; what communication.json says each waited, by row."""
    rows = events.rows(Kind.COLLECTIVE)
    by_name: dict[int, list[int]] = {}
    for row in rows.tolist():
        by_name.setdefault(int(events.name[row]), []).append(row)
    waits: dict[int, int] = {}
    for said in communicated:
        there = by_name.get(texts.get(said.name, -1), [])
        if not there:
            continue
        # The file keeps a quarter of a microsecond of a start, being a double.
        row = min(there, key=lambda r: abs(int(events.start_ns[r]) - said.start_ns))
        events.group[row] = texts[said.group]
        waits[row] = said.wait_ns
    return waits
