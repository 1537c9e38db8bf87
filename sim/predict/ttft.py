"""From the times of prefill chunks to the time to first token: chunks one after the other, or through stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from scenarios.batches import finished_requests
from scenarios.ops.program import Batch
from scenarios.schema import Scenario
from sim.step.pipeline import StageTime, once

#: (value, low, high) of a time, ns.
Interval = tuple[float, float, float]

#: Prefill chunks priced one by one; longer series are interpolated, since a chunk's time is smooth in its context.
MAX_CHUNKS = 16


def mean_end_ns(scenario: Scenario, chunks: Sequence[Batch], ends: Iterable[Interval]) -> Interval:
    """Mean over the requests, which arrive together, of the end of the chunk that finishes their prefill, ns."""
    weighted = [0.0, 0.0, 0.0]
    requests = {chunk: finished_requests(scenario, chunk) for chunk in dict.fromkeys(chunks)}
    for chunk, end in zip(chunks, ends, strict=True):
        finished = requests[chunk]
        for i in range(3):
            weighted[i] += end[i] * finished
    value, low, high = (ns / scenario.workload.batch for ns in weighted)
    return value, low, high


def ends_in_turn(chunks: Sequence[Batch], price: Callable[[Batch], Interval]) -> list[Interval]:
    """When each chunk is done where each starts when the one before has ended."""
    ends: list[Interval] = []
    value = low = high = 0.0
    for times in _along(chunks, price):
        value, low, high = value + times[0], low + times[1], high + times[2]
        ends.append((value, low, high))
    return ends


def ends_through_stages(
    chunks: Sequence[Batch], price: Callable[[Batch], tuple[Interval, Sequence[StageTime]]]
) -> list[Interval]:
    """When each chunk leaves the last stage of a pipeline.

    price: the interval of a step of such chunks, which holds for each stage's part of it, and the chunk's stage times.
    """
    rigid = False

    def priced(chunk: Batch) -> tuple[float, ...]:
        nonlocal rigid
        (value, low, high), row = price(chunk)
        rigid = row[0].rigid
        return (1.0, low / value, high / value, *(ns for stage in row for ns in stage.durations_ns))

    series = _along(chunks, priced)
    value, low, high = (
        [row[-1].ready for row in once([_row(times[3:], times[end], rigid) for times in series]).passes]
        for end in range(3)
    )
    return list(zip(value, low, high, strict=True))


def _row(durations_ns: Sequence[float], factor: float, rigid: bool) -> list[StageTime]:
    """Stage times that lie one after the other in `durations_ns`, all times `factor`."""
    scaled = [ns * factor for ns in durations_ns]
    width = len(StageTime.of((0,) * 5, rigid).durations_ns)
    return [StageTime.of(scaled[i : i + width], rigid) for i in range(0, len(scaled), width)]


def _along(chunks: Sequence[Batch], price: Callable[[Batch], tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Each chunk's times; equal chunks are priced once, long series at MAX_CHUNKS points."""
    distinct = list(dict.fromkeys(chunks))
    if len(distinct) <= MAX_CHUNKS:
        known = {chunk: price(chunk) for chunk in distinct}
        return [known[chunk] for chunk in chunks]
    points = sorted({round(i * (len(chunks) - 1) / (MAX_CHUNKS - 1)) for i in range(MAX_CHUNKS)})
    at = {i: price(chunks[i]) for i in points}
    times: list[tuple[float, ...]] = []
    for left, right in pairwise(points):
        for i in range(left, right):
            times.append(_between(at[left], at[right], (i - left) / (right - left)))
    return [*times, at[points[-1]]]


def _between(a: tuple[float, ...], b: tuple[float, ...], share: float) -> tuple[float, ...]:
    return tuple(x + share * (y - x) for x, y in zip(a, b, strict=True))
