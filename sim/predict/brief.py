"""What a table says of a scenario: its metrics, the parts of its step and the bottleneck, with no timeline.

A timeline has an object for each kernel and each call, which takes longer to make than the rest of a prediction; sums
over a step's columns say the same. Where a step has no columns, the whole prediction is made. Tests hold both equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scenarios.batches import reported_batch
from scenarios.ops.catalogue import CATALOGUE
from scenarios.timeline import StepTime
from sim.kernel.time import KernelTime
from sim.predict.explain import diagnose
from sim.predict.memory import Memory, memory_of, refuse_overflow
from sim.predict.parts import computes, part_of, with_idle_parts
from sim.predict.predict import Metric, metrics_in, predict
from sim.predict.shares import Name, Part, bottleneck_of
from sim.predict.steps import Case, kernel_times_of
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
    memory = memory_of(case.scenario, case.model, case.hardware)
    refuse_overflow(case.hardware.name, memory)
    known = kernel_times_of(case, reported_batch(case.scenario))
    if known is None:
        prediction = predict(case)
        return Brief(prediction.metrics, prediction.step, memory, diagnose(prediction).name)
    laid, times = known
    step = step_time_in(laid, times)
    parts = with_idle_parts(_computing_parts(laid, step), step, _late_ns(laid, times))
    return Brief(metrics_in(case, memory), step, memory, bottleneck_of(parts, step.total_ns)[0])


def step_time_in(laid: Layout, times: KernelTimes) -> StepTime:
    """As `scenarios.timeline.step_time` of the timeline of rank 0: on one stream no two kernels cover one another, and
    a kernel with a collective inside overlaps with it from its first bytes on."""
    computing = communication = wait = overlapped = 0
    for _, kernel, places in _kernels(laid):
        starts, ends = times.starts[places], times.ends[places]
        if not kernel.link_share:
            computing += sum(ends) - sum(starts)
            continue
        waited = sum(starts) - sum(times.arrivals[places])
        transferred = sum(ends) - sum(starts) - kernel.alone_ns * len(starts)
        wait += waited
        communication += waited + transferred
        if kernel.alone_ns:
            computing += sum(ends) - sum(starts)
            overlapped += transferred
    return StepTime(
        total_ns=times.end_ns,
        computing_ns=computing,
        communication_ns=communication,
        communication_not_overlapped_ns=communication - overlapped,
        communication_wait_ns=wait,
        overlapped_ns=overlapped,
        free_ns=times.end_ns - computing - (communication - overlapped),
    )


def _computing_parts(laid: Layout, step: StepTime) -> dict[Part, float]:
    """The computing of a step by what bounds its kernels, ns."""
    busy: dict[Part, int] = {}
    for kind, kernel, places in _kernels(laid):
        if computes(kernel):
            part = part_of(kind, kernel)
            busy[part] = busy.get(part, 0) + sum(laid.durations_ns[places])
    total = max(1, sum(busy.values()))
    return {part: step.computing_ns * ns / total for part, ns in busy.items()}


def _late_ns(laid: Layout, times: KernelTimes) -> int:
    """Idle time of the device in which the call that launches its next kernel had not returned; behind the last kernel
    all of it. What a kernel with a collective inside waits for is other ranks."""
    late = free_from = 0
    waits = {number for number in laid.meets if times.starts[number] > times.arrivals[number]}
    fused = {number for number in waits if laid.kernels[number].alone_ns}
    for number, (issued, arrival, end) in enumerate(zip(times.issued, times.arrivals, times.ends, strict=True)):
        if free_from < issued and free_from < arrival and number not in fused:
            late += (arrival if arrival < issued else issued) - free_from
        free_from = end
    return late + times.end_ns - free_from


def _kernels(laid: Layout) -> Iterator[tuple[str, KernelTime, slice]]:
    """Kind, kernel and places in the step of each op of each block; of one whose experts differ, layer by layer."""
    for row in (row for rows in laid.blocks for row in rows):
        kind = row.item.op.kind
        if not CATALOGUE[kind].routed:
            yield kind, row.item.kernel, row.places
            continue
        for layer, kernel in enumerate(row.item.nominal):
            number = row.first + layer * row.apart
            yield kind, kernel, slice(number, number + 1)
