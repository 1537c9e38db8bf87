"""Program -> measured Timeline: each op timed many times, in the order of the Program.

A machine that others use drifts, so each repeat runs three things in turn: a fixed reference kernel, the step as it is,
and the step with a mark before and after each op. The plain step says what the marks cost. The reference says how fast
the machine was: every time is given as it was (raw), and without other programs' time and at one speed (steady), which
is what two measurements are compared by (`device.measure.steady`).
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Literal, Protocol

import numpy as np
import torch

from device.measure.steady import Reference, Timed, steadied, timed
from device.operators.one_by_one import chosen_by_layer
from device.run.backend import Backend
from device.run.call import Unit
from device.run.kv_cache import KvTensors
from device.step.step import Step
from device.weights.weights import Weights
from scenarios.ops.catalogue import kind_of, op_type_of
from scenarios.ops.program import Program
from scenarios.timeline import Process, Span, Timeline

#: Runs before the first that counts; runs that count, at least and at most; time for them all.
WARM_UP, MIN_REPEATS, MAX_REPEATS, BUDGET_NS = 3, 5, 50, 10_000_000_000
RANKS_REPEATS = 20
#: Work that is queued before a step whose kernels are timed, in times of what the host needs to issue it.
AHEAD = 1.5
#: Kind of a span that stands for several ops.
CAPTURED = "captured"


#: What the time of an op is: of its kernels, or from the mark before its call to the mark behind it.
OpTimes = Literal["kernel", "call"]


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
    """What can be measured: a bound Program, or the rounds of a pipeline stage (`device.ranks.pipeline`)."""

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

    marked, unmarked: the step with and without marks around each op. steady_units, steady_steps_ns: of each unit, and
    of each repeat of the unmarked step, without other programs' time and at the speed of the machine at which the
    reference takes its median; a pipeline's round mostly waits for other stages, so its wall clock counts. between:
    what a marked step takes next to its units. reference: the fixed kernel in between, without other programs' time.
    on_cpu_share: part of the unmarked steps in which this thread had a CPU; other programs, other ranks or a device had
    the rest. chosen: where experts run one by one, those that the router chose in each layer of them.
    """

    bound: Runs
    units: tuple[Sample, ...]
    steady_units: tuple[Sample, ...]
    timeline: Timeline
    marked: Sample
    unmarked: Sample
    steady_steps_ns: tuple[float, ...]
    between: Sample
    reference: Sample
    on_cpu_share: float
    next_ids: tuple[int, ...]
    chosen: tuple[int, ...] = ()
    op_times: OpTimes = "call"

    @property
    def repeats(self) -> int:
        return len(self.steady_steps_ns)

    @property
    def steady(self) -> Sample:
        """The unmarked step at one speed of the machine."""
        return Sample.of(self.steady_steps_ns)


@dataclass(slots=True)
class _Repeats:
    """What was timed, a value a repeat. spans, busy: of each unit, (start, end) and nanoseconds on its processor.
    kernels: of each unit, ns, in the runs in which the device had all of them waiting."""

    references: list[Timed] = field(default_factory=list)
    unmarked: list[Timed] = field(default_factory=list)
    marked_ns: list[int] = field(default_factory=list)
    spans: list[list[tuple[int, int]]] = field(default_factory=list)
    busy: list[list[int]] = field(default_factory=list)
    marked_busy_ns: list[int] = field(default_factory=list)
    kernels: list[list[int]] = field(default_factory=list)


def measure(bound: Runs, step: Step, repeats: int = 0, budget_ns: int = BUDGET_NS) -> Measurement:
    """Run `step` again and again; it writes the same values to the same places each time.

    repeats: how often; 0 for as many as budget_ns allows, or RANKS_REPEATS where several ranks must agree.
    """
    taken, collecting = _Repeats(), gc.isenabled()
    gc.disable()
    try:
        with torch.inference_mode():
            _take(taken, bound, step, repeats or (RANKS_REPEATS if step.groups.are_several else 0), budget_ns)
    finally:
        if collecting:
            gc.enable()
    return _measurement(taken, bound, step)


def _take(taken: _Repeats, bound: Runs, step: Step, repeats: int, budget_ns: int) -> None:
    """Fill `taken`. repeats: 0 for as many as budget_ns allows."""
    backend, reference = bound.backend, Reference(bound.backend)
    issue_ns = 0
    for _ in range(WARM_UP):
        reference.timed()
        issue_ns = _issued_ns(bound, step)
    started = perf_counter_ns()
    for number in range(repeats or MAX_REPEATS):
        if not repeats and number >= MIN_REPEATS and perf_counter_ns() - started > budget_ns:
            break
        taken.references.append(reference.timed())
        taken.unmarked.append(timed(backend, lambda: bound.run(step)))
        _marked(taken, bound, step)
        _ahead(taken, bound, step, issue_ns)


def _issued_ns(bound: Runs, step: Step) -> int:
    """What the host takes to issue the step with its marks, ns."""
    bound.backend.synchronize()
    started = perf_counter_ns()
    bound.run_marked(step)
    return perf_counter_ns() - started


def _ahead(taken: _Repeats, bound: Runs, step: Step, issue_ns: int) -> None:
    """Time the kernels alone: the step is issued while the device is still busy with work that was queued before it.
    Nothing is kept where calls end with their work, and where the device was through with it too early (the host
    waits for a value inside the step, say)."""
    backend = bound.backend
    backend.synchronize()
    if not backend.queue(AHEAD * issue_ns):
        return
    queued = backend.mark()
    marks = bound.run_marked(step)
    was_ahead = not backend.is_done(queued)
    backend.synchronize()
    if was_ahead:
        taken.kernels.append([backend.between_ns(start, end) for start, end in marks])


def _measurement(taken: _Repeats, bound: Runs, step: Step) -> Measurement:
    middle = sorted(range(len(taken.spans)), key=lambda i: taken.marked_ns[i])[len(taken.spans) // 2]
    references = [reference.busy_ns for reference in taken.references]
    alone = len(taken.kernels) == len(taken.spans)  # else some runs had the host's gaps in them
    busy = taken.kernels if alone else taken.busy
    steady = tuple(
        _steady(unit, list(ns), references) for unit, ns in zip(bound.units, zip(*busy, strict=True), strict=True)
    )
    between = [whole - sum(units) for whole, units in zip(taken.marked_busy_ns, taken.busy, strict=True)]
    by_call = [[end - start for start, end in spans] for spans in taken.spans]
    each = zip(*(taken.kernels if alone else by_call), strict=True)
    return Measurement(
        bound=bound,
        units=tuple(Sample.of(values) for values in each),
        steady_units=steady,
        timeline=timeline(bound, taken.spans[middle], taken.marked_ns[middle], step.groups.rank),
        marked=Sample.of(taken.marked_ns),
        unmarked=Sample.of([timed.wall_ns for timed in taken.unmarked]),
        steady_steps_ns=tuple(_steady_steps(taken, bound, step, steady)),
        between=Sample.of(steadied(between, references)),
        reference=Sample.of(references),
        on_cpu_share=sum(step.busy_ns for step in taken.unmarked) / sum(step.wall_ns for step in taken.unmarked),
        next_ids=tuple(bound.next_ids(step)),
        chosen=tuple(map(len, chosen_by_layer(step))),
        op_times="kernel" if alone else "call",
    )


def _steady(unit: Unit, values: Sequence[float], references: Sequence[float]) -> Sample:
    """A unit at one speed of the machine. Of a collective the wall clock counts, and it depends on whether all ranks
    have a CPU: what it takes by itself is its quickest decile."""
    sample = Sample.of(steadied(values, references))
    return Sample(sample.low_ns, sample.low_ns, sample.median_ns) if _meets(unit) else sample


def _steady_steps(taken: _Repeats, bound: Runs, step: Step, units: Sequence[Sample]) -> list[float]:
    """The unmarked steps at one speed of the machine. units: their steady times."""
    references = [reference.busy_ns for reference in taken.references]
    if step.groups.line is not None:
        return steadied([timed.wall_ns for timed in taken.unmarked], references)
    # A rank that waits for another has no processor meanwhile, so its own clock leaves collectives out.
    exchanged = sum(sample.median_ns for unit, sample in zip(bound.units, units, strict=True) if _meets(unit))
    return [ns + exchanged for ns in steadied([timed.busy_ns for timed in taken.unmarked], references)]


def _meets(unit: Unit) -> bool:
    return kind_of(unit.issued.op).is_collective


def timeline(bound: Runs, spans: Sequence[tuple[int, int]], length_ns: int, rank: int) -> Timeline:
    """The spans of one run, ns from its start: one for each op of the Program, or for what was captured together."""
    timed_spans = []
    for unit, (start, end) in zip(bound.units, spans, strict=True):
        issued = unit.issued
        op = issued.op
        on_link = _meets(unit)
        process: Process = "Communication" if on_link else "Device"
        thread = "Group 0 Communication" if on_link else f"Stream {op.stream}"
        kind, op_type = (op.kind, op_type_of(op, bound.backend.name)) if len(unit.calls) == 1 else (CAPTURED, CAPTURED)
        args: tuple[tuple[str, str | int | float], ...] = (("form", unit.form), ("ops", len(unit.calls)))
        timed_spans.append(
            Span(
                name_of(unit),
                process,
                thread=thread,
                start_ns=start,
                end_ns=end,
                kind=kind,
                op_type=op_type,
                index=issued.index,
                layer=issued.layer,
                args=args,
            )
        )
    return Timeline(tuple(timed_spans), 0, length_ns, "MEASURED", rank, bound.backend.name.upper())


def name_of(unit: Unit) -> str:
    """The op's name; of a captured piece its first and its last."""
    first, last = unit.calls[0].issued.op.name, unit.calls[-1].issued.op.name
    return first if len(unit.calls) == 1 else f"{first} ... {last}"


def _marked(taken: _Repeats, bound: Runs, step: Step) -> None:
    """Run the step once with its marks; all times from its start, ns."""
    backend = bound.backend
    backend.synchronize()
    first = backend.mark()
    marks = bound.run_marked(step)
    finish = backend.mark()
    backend.synchronize()
    taken.spans.append([(backend.between_ns(first, start), backend.between_ns(first, end)) for start, end in marks])
    taken.marked_ns.append(backend.between_ns(first, finish))
    taken.marked_busy_ns.append(backend.busy_ns(first, finish))
    taken.busy.append(
        [
            backend.between_ns(*mark) if _meets(unit) else backend.busy_ns(*mark)
            for unit, mark in zip(bound.units, marks, strict=True)
        ]
    )
