"""kernel_details.csv: what torch_npu knows of each kernel and each collective."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.profile.read.build import FactTable, Texts
from scenarios.profile.read.csv_tables import UNKNOWN, known, table_rows, us_cell, whole_cell
from scenarios.profile.read.files import LIMITS, fail
from scenarios.profile.table import Int32, Int64

NEEDED = ("Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)")
#: Columns of msprof's task_time_*.csv, which says nothing of what a kernel computes.
TASK_TIME = ("Name", "Accelerator Core", "Start Time(us)", "Duration(us)")
#: As msprof's op_summary_*.csv and task_time_*.csv call the same columns; and two that were renamed since.
RENAMED = {
    "kernel_name": "Name", "kernel_type": "Accelerator Core", "task_start(us)": "Start Time(us)",
    "task_time(us)": "Duration(us)", "stream_id": "Stream ID", "device_id": "Device_id",
    "Op Name": "Name", "OP Type": "Type", "Task Type": "Accelerator Core", "Task Start Time(us)": "Start Time(us)",
    "Task Duration(us)": "Duration(us)", "Block Num": "Block Dim",
}  # fmt: skip
OPTIONAL = (
    "Step Id", "Device_id", "Stream ID", "Block Dim", "Input Shapes", "Input Data Types", "Output Shapes",
)  # fmt: skip
#: Time that the cores' pipes were busy, where `aic_metrics` is PipeUtilization; older msprof writes one set for all.
PIPES = {
    f"{core}{pipe}_time(us)": pipe
    for core in ("aic_", "aiv_", "")
    for pipe in ("mac", "mte1", "mte2", "mte3", "fixpipe", "vec", "scalar")
    if (core, pipe) != ("aic_", "scalar")  # a cube core's scalar unit issues and waits for all the others
}
#: Accelerator Core of collectives, in old and in new versions.
COLLECTIVE_CORES = ("HCCL", "COMMUNICATION")
#: Where the table does not say on which stream.
NO_STREAM = -1


@dataclass(slots=True)
class KernelDetails:
    """The rows as columns. texts by number; step: number of the step's id, or of ""; stream: NO_STREAM unknown.

    unnamed: tasks of the device that are no kernels (events, notifications, switches of the profiler), which are left
    out.
    """

    path: Path
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    duration_ns: array[int] = field(default_factory=lambda: array("q"))
    stream: array[int] = field(default_factory=lambda: array("q"))
    block_dim: array[int] = field(default_factory=lambda: array("i"))
    name: array[int] = field(default_factory=lambda: array("i"))
    op_type: array[int] = field(default_factory=lambda: array("i"))
    task_type: array[int] = field(default_factory=lambda: array("i"))
    shapes: array[int] = field(default_factory=lambda: array("i"))
    dtypes: array[int] = field(default_factory=lambda: array("i"))
    output_shapes: array[int] = field(default_factory=lambda: array("i"))
    pipe: array[int] = field(default_factory=lambda: array("i"))
    step: array[int] = field(default_factory=lambda: array("i"))
    collective: array[int] = field(default_factory=lambda: array("b"))
    unnamed: int = 0
    devices: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start_ns)

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """A column as numpy."""
        values: array[int] = getattr(self, name)
        return np.array(values)

    def starts(self) -> Int64:
        """Starts, ns."""
        return np.array(self.start_ns, dtype=np.int64)

    def facts(self, facts: FactTable, texts: Texts) -> Int32:
        """The number of the facts of each row."""
        nothing = texts[""]
        rows = zip(
            self.op_type,
            self.task_type,
            self.shapes,
            self.dtypes,
            self.output_shapes,
            self.pipe,
            self.block_dim,
            strict=True,
        )
        return np.fromiter((facts[*row[:5], nothing, *row[5:]] for row in rows), dtype=np.int32, count=len(self))


def read_kernel_details(path: Path, texts: Texts, needed: Sequence[str] = NEEDED) -> KernelDetails:
    """All rows. Raises CaptureError with file and line for what is missing, no time, or of another form."""
    details = KernelDetails(path)
    for line, row in table_rows(path, needed, (*OPTIONAL, *PIPES), RENAMED):
        if len(details) >= LIMITS.events:
            fail(path, f"holds more than {LIMITS.events:,} kernels; profile fewer steps")
        core, name = known(row["Accelerator Core"]), known(row["Name"])
        if not name and not known(row.get("Type", "")):
            details.unnamed += 1
            continue
        collective = core in COLLECTIVE_CORES or (not core and name.startswith("hcom_"))
        details.start_ns.append(us_cell(path, line, row, "Start Time(us)"))
        details.duration_ns.append(us_cell(path, line, row, "Duration(us)"))
        stream = known(row.get("Stream ID", ""))
        details.stream.append(whole_cell(stream) if stream else NO_STREAM)
        details.block_dim.append(whole_cell(row.get("Block Dim", "")))
        details.name.append(texts[name])
        details.op_type.append(texts[known(row.get("Type", "")) or op_type_of(name)])
        details.task_type.append(texts[core])
        details.shapes.append(texts[known(row.get("Input Shapes", ""))])
        details.dtypes.append(texts[known(row.get("Input Data Types", ""))])
        details.output_shapes.append(texts[known(row.get("Output Shapes", ""))])
        details.pipe.append(texts[_busiest(row)])
        details.step.append(texts[known(row.get("Step Id", ""))])
        details.collective.append(collective)
        device = known(row.get("Device_id", ""))
        details.devices[device] = details.devices.get(device, 0) + 1
    if not len(details):
        fail(path, "holds no kernels")
    devices = [device for device in details.devices if device]
    if len(devices) > 1:
        fail(path, f"mixes the kernels of devices {', '.join(sorted(devices)[:8])}; one device a file")
    return details


def _busiest(row: dict[str, str]) -> str:
    """The pipe that was busy the longest, "" where none was measured."""
    times: dict[str, float] = {}
    for column, pipe in PIPES.items():
        cell = row.get(column, "")
        if cell and cell not in UNKNOWN:
            with suppress(ValueError):
                times[pipe] = max(times.get(pipe, 0.0), float(cell))
    longest = max(times, key=lambda pipe: times[pipe], default="")
    return longest if times.get(longest, 0.0) > 0 else ""


def op_type_of(name: str) -> str:
    """The op type in the name of a kernel: `aclnnInplaceRelu_Relu_Relu` is Relu, `trans_TransData_0` TransData,
    `Conv2D1` Conv2D, `main_kernel` itself, `hcom_allReduce__271_0_1` hcom_allReduce_."""
    if name.startswith("hcom_"):
        return "_".join(name.split("_")[:2]) + "_"
    parts = [part for part in name.rsplit("/", 1)[-1].split("_") if part]
    while len(parts) > 1 and parts[-1].isdigit():
        parts.pop()
    last = parts[-1] if parts else name
    if last.lower() == "kernel":  # of Triton and TileLang: `main_kernel`
        return name
    if last != name:
        return last
    # A graph numbers its nodes; V3 is a version of the operator.
    plain = last.rstrip("0123456789")
    return last if not plain or plain.endswith("V") else plain
