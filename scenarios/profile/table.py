"""An imported capture as columns: one row an event, texts by number, times in integer nanoseconds.

A capture may hold millions of events, so rows are numpy columns and never objects; `scenarios.profile.spans` makes
the `Timeline` of one step where spans are wanted. Times are as the file has them (since the epoch, mostly).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scenarios.records import dataclass
from scenarios.timeline import Process, StepTime

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

#: What stands in `launched_by`, `step` and `group` where there is none.
NO_ROW = -1


class Kind(IntEnum):
    """What an event is.

    HOST: a call on the host. KERNEL: a kernel that counts as computing. COLLECTIVE: a whole collective, waiting
    included. TRANSFER and WAIT: the parts of a collective, on its planes. COPY: memory copied, which torch_npu counts
    neither as computing nor as communication. RECORD and EVENT_WAIT: events between streams. TASK: any other entry of
    a device's queue. STEP: the host's mark around a step.
    """

    HOST = 0
    KERNEL = 1
    COLLECTIVE = 2
    TRANSFER = 3
    WAIT = 4
    COPY = 5
    RECORD = 6
    EVENT_WAIT = 7
    TASK = 8
    STEP = 9


@dataclass(frozen=True, slots=True)
class Lane:
    """One thread of a capture under the names that `Timeline` has for it. stream: the device's stream, -1 elsewhere.

    source: process and thread as the file calls them.
    """

    process: Process
    thread: str
    stream: int = -1
    source: str = ""


#: The columns of `Facts`: what is known of a kernel or collective, the same for many of them.
FACTS = ("op_type", "task_type", "shapes", "dtypes", "output_shapes", "group", "pipe", "block_dim")


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What is known of kernels and collectives, one row a combination; row 0 knows nothing.

    All but block_dim are texts (an index into `Capture.texts`, 0 is ""). op_type: as kernel_details.csv has it.
    task_type: the engine as the profiler names it (AI_CORE, MIX_AIC, ...). shapes, dtypes: of the inputs, as
    kernel_details.csv spells them; of a collective its elements and their type. group: the communication group.
    pipe: the pipe of the cores that was busy the longest (mac, mte2, vec, ...), where the profiler measured pipes.
    block_dim: cores, 0 where unknown.
    """

    op_type: Int32
    task_type: Int32
    shapes: Int32
    dtypes: Int32
    output_shapes: Int32
    group: Int32
    pipe: Int32
    block_dim: Int32


#: The columns of `Events` and their types.
COLUMN_TYPES: dict[str, type[np.signedinteger[Any]]] = {
    "kind": np.int8,
    "lane": np.int16,
    "start_ns": np.int64,
    "duration_ns": np.int64,
    "launched_by": np.int32,
    "issued_after_ns": np.int32,
    "name": np.int32,
    "fact": np.int32,
}


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Rows in order of start (then the longer first). Columns have one length.

    lane: index into `Capture.lanes`. launched_by: the row of the host call that issued this one; of a dequeued call,
    the call that enqueued it; NO_ROW where unknown. issued_after_ns: how long after the start of that call it was
    issued (a call may issue several kernels). name: index into `Capture.texts`. fact: row of `facts`, whose
    columns are here too, spread over the events (`events.op_type`).
    """

    kind: NDArray[np.int8]
    lane: NDArray[np.int16]
    start_ns: Int64
    duration_ns: Int64
    launched_by: Int32
    issued_after_ns: Int32
    name: Int32
    fact: Int32
    facts: Facts

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Int64:
        return self.start_ns + self.duration_ns

    def end_ns_of(self, row: int) -> int:
        """The end of one row."""
        return int(self.start_ns[row]) + int(self.duration_ns[row])

    @property
    def op_type(self) -> Int32:
        return self.facts.op_type[self.fact]

    @property
    def task_type(self) -> Int32:
        return self.facts.task_type[self.fact]

    @property
    def shapes(self) -> Int32:
        return self.facts.shapes[self.fact]

    @property
    def dtypes(self) -> Int32:
        return self.facts.dtypes[self.fact]

    @property
    def output_shapes(self) -> Int32:
        return self.facts.output_shapes[self.fact]

    @property
    def group(self) -> Int32:
        return self.facts.group[self.fact]

    @property
    def pipe(self) -> Int32:
        return self.facts.pipe[self.fact]

    @property
    def block_dim(self) -> Int32:
        return self.facts.block_dim[self.fact]

    def rows(self, *kinds: Kind) -> NDArray[np.intp]:
        """The rows of these kinds, in order of start."""
        wanted = np.zeros(len(Kind), dtype=bool)
        wanted[list(kinds)] = True
        return np.flatnonzero(wanted[self.kind])


@dataclass(frozen=True, slots=True)
class Step:
    """One step. start_ns, end_ns: the device's window, in which what starts belongs to the step. host_start_ns,
    host_end_ns: the host's mark around it; the device's window where the file has no mark. whole: whether the device's
    idle time before its first task and behind its last belongs to the step, as in this tool's own; torch_npu counts
    only what lies between tasks.
    """

    id: str
    start_ns: int
    end_ns: int
    host_start_ns: int
    host_end_ns: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ReportedStep:
    """A row of step_trace_time.csv. step "" where the capture has no steps; preparing: from the host's mark to the
    first task; bubble: time in hcom_receive. communication_wait_ns is not reported and 0 here."""

    step: str
    device: int
    time: StepTime
    stage_ns: int
    bubble_ns: int
    preparing_ns: int


@dataclass(frozen=True, slots=True)
class HostApi:
    """A row of api_statistic.csv: how often and how long in all the host was in one call, on all of its threads."""

    level: str
    name: str
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class LostLaunches:
    """Arrows of launches that lead to no row: when the host launched (ns, in no order), and the name of the call, an
    index into `Capture.texts`; 0 where the call is not there either."""

    issued_ns: Int64
    name: Int32


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """What one rank's profiler wrote.

    texts: what the columns of texts refer to; the first is "". kind: which profiler wrote it. metadata: versions,
    level, device, as far as the files say. collective_waits_ns: what communication.json says each collective waited,
    by row. dropped: how many entries of a kind were left out (`python_function`: 1282). notes: what is partial or was
    doubted, one line each. host_apis: the longest first. label: SIMULATED where the file is a prediction's own trace.
    own_steps: the number of the step of each row, where steps overlap and the file says it. lost: what one file of the
    profile has and the rows have not, one line each. lost_launches: launches whose kernels are not among the rows.
    """

    source: str
    kind: str
    rank: int
    device: str
    texts: tuple[str, ...]
    lanes: tuple[Lane, ...]
    events: Events
    steps: tuple[Step, ...]
    reported: tuple[ReportedStep, ...]
    metadata: Mapping[str, str]
    groups: Mapping[str, tuple[int, ...]]
    collective_waits_ns: Mapping[int, int]
    dropped: Mapping[str, int]
    notes: tuple[str, ...]
    label: Literal["MEASURED", "SIMULATED"] = "MEASURED"
    host_apis: tuple[HostApi, ...] = ()
    own_steps: Int32 | None = None
    lost: tuple[str, ...] = ()
    lost_launches: LostLaunches | None = None

    def text(self, row: int, column: str = "name") -> str:
        """The text of `column` (`name`, or one of `Facts`) in `row`."""
        if column == "name":
            return self.texts[int(self.events.name[row])]
        facts: Int32 = getattr(self.events.facts, column)
        return self.texts[int(facts[self.events.fact[row]])]

    def process(self, row: int) -> Process:
        """The process of the lane of `row`."""
        return self.lanes[int(self.events.lane[row])].process


@dataclass(frozen=True, slots=True, eq=False)
class CaptureSet:
    """The ranks of one run, by rank, in order. notes: what holds of all of them."""

    captures: tuple[Capture, ...]
    notes: tuple[str, ...] = ()
