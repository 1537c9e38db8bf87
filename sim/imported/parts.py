"""The parts of a measured step: every nanosecond of it under one cause."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

import numpy as np

from scenarios.profile import Capture, Kind, Step
from scenarios.profile.steps import Intervals, length, merged, minus, overlap_lanes, waiting_lanes
from scenarios.timeline import StepTime
from sim.imported.gaps import Gaps, idle_of
from sim.imported.kernels import MeasuredKernel
from sim.imported.ranks import Waits
from sim.predict.shares import Part

_COMPUTING: dict[str, Part] = {"HBM-bound": "computing: HBM", "cube-bound": "computing: cube"}


def parts_of(
    capture: Capture, step: Step, time: StepTime, kernels: Sequence[MeasuredKernel], gaps: Gaps, waits: Waits
) -> dict[Part, float]:
    """Nanoseconds by part; they sum to the step. Computing goes to what bounds the kernels, by their time.

    waits: of all ranks; where others of one clock are there, they say what waiting is.
    """
    parts: dict[Part, float] = {}
    busy = fsum(kernel.total_us for kernel in kernels)
    for kernel in kernels:
        part = _COMPUTING.get(kernel.limit, "computing: vector")
        parts[part] = parts.get(part, 0.0) + time.computing_ns * kernel.total_us / max(1e-9, busy)
    exposed = time.communication_not_overlapped_ns
    waiting = min(exposed, max(_exposed_wait_ns(capture, step), _waited_ns(capture, time, waits)))
    parts["waiting for ranks"] = waiting
    parts["communication: transfer"] = exposed - waiting
    copies = min(_copies_ns(capture, step), round(1000 * gaps.queued_us))
    parts["host late"] = 1000 * gaps.late_us
    parts["copies"] = copies
    parts["queued"] = 1000 * gaps.queued_us - copies
    parts["idle, cause unknown"] = max(0.0, time.free_ns - 1000 * (gaps.late_us + gaps.queued_us))
    return {part: ns for part, ns in parts.items() if ns > 0}


def _exposed_wait_ns(capture: Capture, step: Step) -> int:
    """Time of the step in which a collective waits and nothing computes, ns."""
    waiting = waiting_lanes(capture.events, capture.collective_waits_ns)
    exposed = minus(waiting, overlap_lanes(capture.events)[0])
    here = (exposed[0] >= step.start_ns) & (exposed[0] < step.end_ns)
    return length((exposed[0][here], exposed[1][here]))


def _waited_ns(capture: Capture, time: StepTime, waits: Waits) -> int:
    """What this rank waited in collectives until the last rank came, of which no more is exposed than of the whole."""
    mine = next((rank for rank in waits.by_rank if rank.rank == capture.rank), None)
    if mine is None or not mine.matched or not waits.same_clock:
        return 0
    return round(1000 * mine.wait_us * time.communication_not_overlapped_ns / max(1, time.communication_ns))


def _copies_ns(capture: Capture, step: Step) -> int:
    """Idle time of the step in which a copy runs though the next kernel lies queued, ns."""
    starts, ends, launched = idle_of(capture, step)
    known = launched >= 0
    queued = merged(np.clip(launched, starts, ends)[known], ends[known])
    rows = capture.events.rows(Kind.COPY)
    copies: Intervals = merged(capture.events.start_ns[rows], capture.events.end_ns[rows])
    return length(queued) - length(minus(queued, copies))
