"""Program -> measured Timeline: each op timed many times, in the order of the Program.

A machine that others use drifts, so each repeat runs three things in turn: a fixed reference kernel, the step as it is,
and the step with a mark before and after each op. The reference says how steady the machine was; the plain step says
what the marks cost.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Protocol

import numpy as np
import torch

from device.backends.base import Backend
from device.kv_cache import KvTensors
from device.operators.one_by_one import chosen_by_layer
from device.runner import Unit
from device.step import Step
from device.weights import Weights
from scenarios.catalogue import CATALOGUE, op_type_of
from scenarios.program import Program
from scenarios.timeline import Process, Span, Timeline

#: Runs before the first that counts; runs that count, at least and at most; time for them all.
WARM_UP, LEAST_REPEATS, MOST_REPEATS, BUDGET_NS = 3, 5, 50, 10_000_000_000
RANKS_REPEATS = 20
#: Side of the square float32 product that serves as the reference kernel.
REFERENCE_SIDE = 192
#: Kind of a span that stands for several ops.
CAPTURED = "captured"
COLLECTIVES = tuple(name for name, kind in CATALOGUE.items() if kind.unit == "link")


@dataclass(frozen=True, slots=True)
class Sample:
    """Nanoseconds of one thing over the repeats: median, and the 10th and 90th percentile."""

    median_ns: float
    low_ns: float
    high_ns: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        low, median, high = (float(v) for v in np.percentile(np.asarray(values, dtype=float), (10, 50, 90)))
        return cls(median, low, high)


class Runs(Protocol):
    """What can be measured: a bound Program, or the rounds of a pipeline stage (`device.pipeline`)."""

    @property
    def backend(self) -> Backend: ...

    @property
    def units(self) -> Sequence[Unit]: ...

    @property
    def program(self) -> Program: ...

    @property
    def weights(self) -> Weights: ...

    @property
    def cache(self) -> KvTensors: ...

    def run(self, step: Step) -> None: ...

    def run_marked(self, step: Step) -> list[tuple[object, object]]: ...

    def next_ids(self, step: Step) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured step. units: of each op, in the order of the Program, or of the ops that were captured together.
    timeline: the repeat whose length is the median.

    marked, unmarked: the step with and without marks around each op. reference: the fixed kernel in between.
    on_cpu_share: part of the unmarked steps in which this thread had a CPU; other programs, or a device, had the rest.
    chosen: where experts run one by one, those that the router chose in each layer of them.
    """

    bound: Runs
    units: tuple[Sample, ...]
    timeline: Timeline
    marked: Sample
    unmarked: Sample
    reference: Sample
    on_cpu_share: float
    repeats: int
    next_ids: tuple[int, ...]
    chosen: tuple[int, ...] = ()


def measure(bound: Runs, step: Step, repeats: int = 0) -> Measurement:
    """Run `step` again and again; it writes the same values to the same places each time.

    repeats: how often; 0 for as many as BUDGET_NS allows, or RANKS_REPEATS where several ranks must agree.
    """
    backend = bound.backend
    marked: list[list[tuple[int, int]]] = []
    lengths: dict[str, list[int]] = {"marked": [], "unmarked": [], "reference": []}
    on_cpu_ns, collecting = 0, gc.isenabled()
    gc.disable()
    try:
        with torch.inference_mode():
            reference = _reference(backend)
            for _ in range(WARM_UP):
                bound.run_marked(step)
            repeats = repeats or (RANKS_REPEATS if step.groups.are_several else 0)
            started = perf_counter_ns()
            for number in range(repeats or MOST_REPEATS):
                if not repeats and number >= LEAST_REPEATS and perf_counter_ns() - started > BUDGET_NS:
                    break
                lengths["reference"].append(_timed(backend, lambda: torch.mm(reference, reference)))
                before = thread_time_ns()
                lengths["unmarked"].append(_timed(backend, lambda: bound.run(step)))
                on_cpu_ns += thread_time_ns() - before
                spans, length = _marked(bound, step)
                marked.append(spans)
                lengths["marked"].append(length)
    finally:
        if collecting:
            gc.enable()
    middle = sorted(range(len(marked)), key=lambda i: lengths["marked"][i])[len(marked) // 2]
    each = zip(*([end - start for start, end in spans] for spans in marked), strict=True)
    return Measurement(
        bound=bound,
        units=tuple(Sample.of(values) for values in each),
        timeline=timeline(bound, marked[middle], lengths["marked"][middle], step.groups.rank),
        marked=Sample.of(lengths["marked"]),
        unmarked=Sample.of(lengths["unmarked"]),
        reference=Sample.of(lengths["reference"]),
        on_cpu_share=on_cpu_ns / sum(lengths["unmarked"]),
        repeats=len(marked),
        next_ids=tuple(bound.next_ids(step)),
        chosen=tuple(map(len, chosen_by_layer(step))),
    )


def timeline(bound: Runs, spans: Sequence[tuple[int, int]], length_ns: int, rank: int) -> Timeline:
    """The spans of one run, ns from its start: one for each op of the Program, or for what was captured together."""
    made = []
    for unit, (start, end) in zip(bound.units, spans, strict=True):
        issued = unit.issued
        op = issued.op
        on_link = op.kind in COLLECTIVES
        process: Process = "Communication" if on_link else "Device"
        thread = "Group 0 Communication" if on_link else f"Stream {op.stream}"
        kind, op_type = (op.kind, op_type_of(op, bound.backend.name)) if len(unit.calls) == 1 else (CAPTURED, CAPTURED)
        args: tuple[tuple[str, str | int | float], ...] = (("form", unit.form), ("ops", len(unit.calls)))
        made.append(
            Span(name_of(unit), process, thread, start, end, kind, op_type, issued.index, issued.layer, args=args)
        )
    return Timeline(tuple(made), 0, length_ns, "MEASURED", rank, bound.backend.name.upper())


def name_of(unit: Unit) -> str:
    """The op's name; of a captured piece its first and its last."""
    first, last = unit.calls[0].issued.op.name, unit.calls[-1].issued.op.name
    return first if len(unit.calls) == 1 else f"{first} ... {last}"


def _marked(bound: Runs, step: Step) -> tuple[list[tuple[int, int]], int]:
    """(start and end of each op, length of the step), ns from the step's start."""
    backend = bound.backend
    backend.synchronize()
    begin = backend.mark()
    marks = bound.run_marked(step)
    finish = backend.mark()
    backend.synchronize()
    spans = [(backend.between_ns(begin, start), backend.between_ns(begin, end)) for start, end in marks]
    return spans, backend.between_ns(begin, finish)


def _timed(backend: Backend, call: object) -> int:
    """Nanoseconds of one call, the device's work included."""
    assert callable(call)
    backend.synchronize()
    start = perf_counter_ns()
    call()
    backend.synchronize()
    return perf_counter_ns() - start


def _reference(backend: Backend) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(REFERENCE_SIDE, REFERENCE_SIDE, generator=random).to(backend.device)
