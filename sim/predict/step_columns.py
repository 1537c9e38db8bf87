"""The parts of a step of rank 0 as sums over its columns: what a timeline says of it, without a span."""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.ops.catalogue import CATALOGUE
from scenarios.timeline import StepTime
from sim.kernel.time import KernelTime
from sim.step.kernel_times import KernelTimes
from sim.step.layout import Layout


def step_time_in(laid: Layout, times: KernelTimes) -> StepTime:
    """As `scenarios.timeline.step_time` of the timeline of rank 0: on one stream no two kernels cover one another, and
    a kernel with a collective inside overlaps with it from its first bytes on."""
    computing = sum(times.ends) - sum(times.starts)
    communication = wait = overlapped = 0
    for _, kernel, places in kernels_in(laid):
        if not kernel.link_share:
            continue
        starts, ends = times.starts[places], times.ends[places]
        waited = sum(starts) - sum(times.arrivals[places])
        transferred = sum(ends) - sum(starts) - kernel.alone_ns * len(starts)
        wait += waited
        communication += waited + transferred
        if kernel.alone_ns:
            overlapped += transferred
        else:
            computing -= transferred
    return StepTime(
        total_ns=times.end_ns,
        computing_ns=computing,
        communication_ns=communication,
        communication_not_overlapped_ns=communication - overlapped,
        communication_wait_ns=wait,
        overlapped_ns=overlapped,
        free_ns=times.end_ns - computing - (communication - overlapped),
    )


def kernels_in(laid: Layout) -> Iterator[tuple[str, KernelTime, slice]]:
    """Kind, kernel and places in the step of each op of each block; of one whose experts differ, layer by layer."""
    for row in (row for rows in laid.blocks for row in rows):
        kind = row.item.op.kind
        if not CATALOGUE[kind].routed:
            yield kind, row.item.kernel, row.places
            continue
        for layer, kernel in enumerate(row.item.nominal):
            number = row.first + layer * row.apart
            yield kind, kernel, slice(number, number + 1)
