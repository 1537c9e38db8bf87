"""When the kernels of rank 0 run, from a step's columns: what a timeline would show of them, without its spans.

Of steps on one stream whose host waits for the device at their end (`sim.step.lengths`). Tests hold the times equal to
those of the plan's players, to the nanosecond.
"""

from __future__ import annotations

from scenarios.records import dataclass
from sim.step.layout import Layout
from sim.step.lengths import Walk, host_walk


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Of each kernel in program order, ns: issued, when the call that launches it has returned; arrivals, when this
    rank is ready for it; starts, later than that only where it waits for other ranks; ends. end_ns: of the step."""

    issued: list[int]
    arrivals: list[int]
    starts: list[int]
    ends: list[int]
    end_ns: int


def of_one_rank(laid: Layout, end_ns: int) -> KernelTimes:
    """The times in a step of one rank that ends at `end_ns`; its kernels wait for nobody."""
    ended, _, ready = host_walk(laid, 1.0)
    may = [ready[entry] for entry in laid.launched]
    for number, step in laid.gates.items():
        may[number] = max(may[number], ended[step])
    starts: list[int] = []
    ends: list[int] = []
    free = laid.busy_ns
    for ns, gap, duration in zip(may, laid.gaps_ns, laid.durations_ns, strict=True):
        start = free + gap
        start = ns if ns > start else start
        free = start + duration
        starts.append(start)
        ends.append(free)
    return KernelTimes(_issued(laid, ready), starts, starts, ends, end_ns)


def of_first_rank(laid: Layout, walk: Walk) -> KernelTimes:
    """The times of rank 0 in the first variant of a walk of all ranks."""
    import numpy as np

    entered, where = walk.ready[:, 0, 0], laid.meetings
    launched = np.array(laid.launched) if where is None else where.launched
    gaps = np.array(laid.gaps_ns, np.int64) if where is None else where.gap_times_ns
    may = entered[launched]
    if laid.gates:
        gated = list(laid.gates)
        may[gated] = np.maximum(may[gated], walk.ended[list(laid.gates.values()), 0, 0])
    met = may.copy()
    if len(walk.met[0]):
        met[walk.met[0]] = walk.met[1][:, 0, 0]
    durations = np.array(laid.durations_ns) if laid.kernel_matrix is None else laid.kernel_matrix[:, 0]
    after = np.cumsum(gaps) + np.cumsum(durations) - durations  # of kernels that follow one another at once
    starts = after + np.maximum.accumulate(met - after)
    ends = starts + durations
    arrivals = may
    arrivals[1:] = np.maximum(may[1:], ends[:-1] + gaps[1:])
    issued = (entered - np.maximum(laid.start_ns, 0))[launched]
    return KernelTimes(issued.tolist(), arrivals.tolist(), starts.tolist(), ends.tolist(), walk.lengths_ns[0])


def _issued(laid: Layout, ready: list[int]) -> list[int]:
    returned = [ns - max(0, start) for ns, start in zip(ready, laid.start_ns, strict=True)]
    return [returned[entry] for entry in laid.launched]
