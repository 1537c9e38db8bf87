"""The parts of a predicted step: every nanosecond of it under one cause, as of an imported one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from scenarios.ops.catalogue import CATALOGUE
from scenarios.timeline import StepTime, Timeline, is_kernel, union_ns
from sim.kernel.time import Bound, KernelTime
from sim.predict.predict import Prediction
from sim.predict.shares import Part
from sim.step.pipeline import Bubble
from sim.step.plan import Launch

_PART: dict[Bound, Part] = {"hbm": "computing: HBM", "cube": "computing: cube", "link": "communication: transfer"}


def parts_of(prediction: Prediction, kernels: Sequence[Launch]) -> dict[Part, float]:
    """Nanoseconds by part; they sum to the step. Computing goes to what bounds the kernels, by their time; a kernel
    with a collective inside that takes longer than its computing is communication."""
    step = prediction.step
    parts: dict[Part, float] = {}
    computing = [launch for launch in kernels if computes(launch.kernel)]
    busy = sum(launch.kernel.duration_ns for launch in computing)
    for launch in computing:
        part = part_of(launch.kind, launch.kernel)
        parts[part] = parts.get(part, 0.0) + step.computing_ns * launch.kernel.duration_ns / max(1, busy)
    bubble = None if prediction.pipeline is None else prediction.pipeline.round.bubbles[0]  # of rank 0's stage
    return with_idle_parts(parts, step, _late_ns(prediction.timeline), bubble)


def with_idle_parts(
    computing: Mapping[Part, float], step: StepTime, late_ns: int, bubble: Bubble | None = None
) -> dict[Part, float]:
    """All parts of a step, ns, from those of its computing. late_ns: idle time of the device before calls returned.
    bubble: of a stage of a pipeline."""
    parts = dict(computing)
    exposed, free = step.communication_not_overlapped_ns, step.free_ns
    if bubble is not None:
        sent = min(exposed, bubble.send_ns)
        idle = min(free, bubble.total_ns - bubble.send_ns)
        exposed, free = exposed - sent, free - idle
        parts["pipeline bubble"] = sent + idle
    waiting = min(exposed, step.communication_wait_ns)
    late = min(free, late_ns)
    parts["waiting for ranks"] = waiting
    parts["communication: transfer"] = parts.get("communication: transfer", 0.0) + exposed - waiting
    parts["host late"] = late
    parts["queued"] = free - late
    return {part: ns for part, ns in parts.items() if ns > 0}


def computes(kernel: KernelTime) -> bool:
    """Whether a kernel computes, alone or before it communicates."""
    return bool(kernel.alone_ns) or kernel.bound != "link"


def part_of(kind: str, kernel: KernelTime) -> Part:
    """The part of a step that a kernel that computes belongs to."""
    bound = kernel.bound
    if bound == "l2" and CATALOGUE[kind].unit in ("cube", "mix"):
        return "computing: cube"  # it waits for what it loads from L2
    return _PART.get(bound, "computing: vector")


def _late_ns(timeline: Timeline) -> int:
    """Idle time of the device in which the call that launches its next kernel had not returned; behind the last kernel
    all of it: nothing is launched any more."""
    device = [s for s in timeline.spans if is_kernel(s) or s.process == "Communication"]
    device.sort(key=lambda s: s.start_ns)
    starts = [span.start_ns for span in device]
    late, free_from = 0, timeline.start_ns
    for start, end in [*union_ns((s.start_ns, s.end_ns) for s in device), (timeline.end_ns, timeline.end_ns)]:
        if start > free_from:
            at = bisect_left(starts, start)
            launch = device[at].launched_by if at < len(device) else -1
            until = timeline.spans[launch].end_ns if launch >= 0 else start if at == len(device) else free_from
            late += max(0, min(start, until) - free_from)
        free_from = max(free_from, end)
    return late
