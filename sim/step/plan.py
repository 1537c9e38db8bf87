"""The plan of one step: what the host does, in order, and the priced kernels it sets off.

`host.py` makes a plan from a Program and a hardware profile. Two players play it: `engine.py` with SimPy (streams,
events, shared bandwidth) and `recurrence.py`, its max-plus twin without contention. All times are integer nanoseconds.
"""

from __future__ import annotations

from scenarios.records import dataclass
from sim.kernel.time import KernelTime


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of the step with its place: stream, events, and what the host pays to issue it.

    index and layer: as in the Program. waits and records: event names, unique within a plan. host_ns: the Python thread
    (dispatch, and launch too where there is no launch thread). launch_ns: the launch thread (0 without one). gap_ns:
    idle time of the stream between the end of the kernel before and this one's start, paid only if both were already
    queued. meet: of a kernel that uses the links, the name under which the ranks meet; it starts when the last of them
    is ready. among: neighbouring ranks that meet (0: all of the step), as the groups of tensor parallelism do next to
    each other.
    """

    index: int
    layer: int
    name: str
    kind: str
    op_type: str
    kernel: KernelTime
    stream: int = 0
    waits: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    host_ns: int = 0
    launch_ns: int = 0
    gap_ns: int = 0
    rendezvous: str = ""
    group_ranks: int = 0


@dataclass(frozen=True, slots=True)
class Issue:
    """The host issues one kernel (eager)."""

    launch: Launch


@dataclass(frozen=True, slots=True)
class Replay:
    """The host starts a captured graph with one call of `host_ns`; `start_ns` later its first kernel may run.

    The launches inside cost the host nothing; on the device each keeps its own gap_ns.
    """

    name: str
    launches: tuple[Launch, ...]
    host_ns: int
    launch_ns: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class Update:
    """The host prepares a captured kernel's parameters for `host_ns`; then event `records` is set."""

    name: str
    host_ns: int
    records: str


#: Name of the host work that is a rank start later than rank 0.
LATE = "begin late"


@dataclass(frozen=True, slots=True)
class HostWork:
    """The Python thread is busy for `host_ns` (scheduling, input preparation, sampling output)."""

    name: str
    host_ns: int


@dataclass(frozen=True, slots=True)
class Synchronize:
    """The host waits until the launch queue is empty and all streams are idle, then is busy for `host_ns`."""

    name: str
    host_ns: int


HostStep = Issue | Replay | Update | HostWork | Synchronize


@dataclass(frozen=True, slots=True)
class Plan:
    """One step. launch_thread: whether a second host thread launches. queue_depth: entries between the two threads."""

    steps: tuple[HostStep, ...]
    launch_thread: bool
    queue_depth: int
