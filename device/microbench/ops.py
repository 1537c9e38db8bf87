"""Time every op of one small Program, and the step that they make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean, median
from time import perf_counter_ns

import torch

from device.measure.measure import CAPTURED as SEVERAL
from device.measure.measure import Measurement, Sample, measure
from device.microbench.plan import Trial
from device.run.backend import Backend
from device.run.call import Call, Unit
from device.run.runner import Bound
from device.run.session import Session
from device.run.workload import reported_step
from device.step.step import Step
from device.weights.weights import RandomCheckpoint
from scenarios.exchange.timings import CAPTURED, STEP, Timing
from scenarios.ops.program import Op

#: Repeats of one trial, and how long they may take together, so that a large step is not run more often than it needs.
LEAST, MOST, TRIAL_NS = 5, 11, 400_000_000


def timed_trial(backend: Backend, trial: Trial) -> list[Timing]:
    """The rows of one trial. Raises ScenarioError, one line a switch, where the backend lacks what it asks for."""
    checkpoint = RandomCheckpoint(trial.model, trial.scenario.protocol.seed)
    session = Session(trial.scenario, trial.model, backend, checkpoint)
    phase, requests = reported_step(session)
    if trial.ragged:
        requests = replace(requests, contexts=tuple(max(1, c - n) for n, c in enumerate(requests.contexts)))
    bound, step = session.prepared(phase, requests)
    measurement = measure(bound, step, _repeats(backend, bound, step))
    return [*_units(trial, measurement), _step(backend, trial, measurement)]


def _repeats(backend: Backend, bound: Bound, step: Step) -> int:
    with torch.inference_mode():
        bound.run(step)  # compiles what must be compiled
        backend.synchronize()
        start = perf_counter_ns()
        bound.run(step)
        backend.synchronize()
    return max(LEAST, min(MOST, TRIAL_NS // max(1, 2 * (perf_counter_ns() - start))))


def _units(trial: Trial, measurement: Measurement) -> Iterator[Timing]:
    """One row for ops that are alike: the mean of their medians, so that a step is the sum of its rows (of the three
    that prepare a mask one takes 16 times the others)."""
    alike: dict[object, list[tuple[Unit, Sample, Sample]]] = {}
    for unit, raw, steady in zip(measurement.bound.units, measurement.units, measurement.steady_units, strict=True):
        ops = _ops(unit)
        key = (unit.form, tuple(op.signature for op in ops))
        alike.setdefault(key, []).append((unit, raw, steady))
    for group in alike.values():
        unit = group[0][0]
        ops = _ops(unit)
        yield Timing(
            kind=ops[0].kind if isinstance(unit, Call) else CAPTURED,
            trial=trial.name,
            form=unit.form,
            ops=ops,
            median_us=fmean(steady.median_ns for _, _, steady in group) / 1000,
            low_us=min(steady.low_ns for _, _, steady in group) / 1000,
            high_us=max(steady.high_ns for _, _, steady in group) / 1000,
            raw_us=fmean(raw.median_ns for _, raw, _ in group) / 1000,
            reference_us=measurement.reference.median_ns / 1000,
            repeats=measurement.repeats,
            count=len(group),
        )


def _ops(unit: Unit) -> tuple[Op, ...]:
    return tuple(call.issued.op for call in unit.calls)


def _step(backend: Backend, trial: Trial, measurement: Measurement) -> Timing:
    """The whole step, without marks; what the host takes next to each unit, and a mark."""
    steady, pieces = measurement.steady, [unit for unit in measurement.bound.units if not isinstance(unit, Call)]
    values = {"units": len(measurement.bound.units), "pieces": len(pieces), "layers": trial.model.layers}
    marks = [float(backend.busy_ns(backend.mark(), backend.mark())) for _ in range(101)]
    host_us = measurement.between.median_ns / 1000 / len(measurement.bound.units)
    return Timing(
        kind=STEP,
        trial=trial.name,
        form=SEVERAL if pieces else "eager",
        ops=(),
        median_us=steady.median_ns / 1000,
        low_us=steady.low_ns / 1000,
        high_us=steady.high_ns / 1000,
        raw_us=measurement.unmarked.median_ns / 1000,
        reference_us=measurement.reference.median_ns / 1000,
        repeats=measurement.repeats,
        values={**values, "host_us": host_us, "mark_us": median(marks) / 1000},
    )
