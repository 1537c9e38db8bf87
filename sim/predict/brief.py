"""What a table says of a scenario: its metrics, the parts of its step and the bottleneck, with no timeline.

A timeline has an object for each kernel and each call, which takes longer to make than the rest of a prediction; sums
over a step's columns say the same. Where a step has no columns, its timeline is made. Tests hold both equal.
"""

from __future__ import annotations

from scenarios.records import dataclass
from scenarios.timeline import StepTime
from sim.predict.explain import diagnose
from sim.predict.memory import Memory
from sim.predict.parts import computes, part_of, with_idle_parts
from sim.predict.predict import Metric, predict
from sim.predict.shares import Name, Part, bottleneck_of
from sim.predict.step_columns import kernels_in
from sim.predict.steps import Case
from sim.step.kernel_times import KernelTimes
from sim.step.layout import Layout


@dataclass(frozen=True, slots=True)
class Brief:
    """A scenario's metrics, the parts of its reported step (rank 0's), its memory and what limits it."""

    metrics: dict[str, Metric]
    step: StepTime
    memory: Memory
    bottleneck: Name


def brief(case: Case) -> Brief:
    """As `predict` and `diagnose` say of `case`. Raises DoesNotFit where it does not fit the device's memory."""
    prediction = predict(case)
    step, known = prediction.step, prediction.kernel_times
    if known is None:
        name = diagnose(prediction).name
    else:
        parts = with_idle_parts(_computing_parts(known[0], step), step, _late_ns(*known))
        name = bottleneck_of(parts, step.total_ns)[0]
    return Brief(prediction.metrics, step, prediction.memory, name)


def _computing_parts(laid: Layout, step: StepTime) -> dict[Part, float]:
    """The computing of a step by what bounds its kernels, ns."""
    busy: dict[Part, int] = {}
    for kind, kernel, places in kernels_in(laid):
        if computes(kernel):
            part = part_of(kind, kernel)
            busy[part] = busy.get(part, 0) + sum(laid.durations_ns[places])
    total = max(1, sum(busy.values()))
    return {part: step.computing_ns * ns / total for part, ns in busy.items()}


def _late_ns(laid: Layout, times: KernelTimes) -> int:
    """Idle time of the device in which the call that launches its next kernel had not returned; behind the last kernel
    all of it. What a kernel with a collective inside waits for is other ranks."""
    fused = [n for n in laid.meets if laid.kernels[n].alone_ns and times.starts[n] > times.arrivals[n]]
    if laid.ranks > 1:
        import numpy as np  # a rank alone needs none

        issued, arrivals, ends = map(np.array, (times.issued, times.arrivals, times.ends))
        free = np.concatenate([[0], ends[:-1]])
        idle = np.maximum(np.minimum(issued, arrivals) - free, 0)
        idle[fused] = 0
        return int(idle.sum()) + times.end_ns - times.ends[-1]
    late = free_from = 0
    for issued_ns, arrival, end in zip(times.issued, times.arrivals, times.ends, strict=True):
        until = arrival if arrival < issued_ns else issued_ns
        if free_from < until:
            late += until - free_from
        free_from = end
    return late + times.end_ns - free_from
