"""From microbenchmarks to the numbers of a CPU's profile: what `whatif calibrate` fits.

Each kernel program (`sim.kernel.cpu`) is a sum of effects with a coefficient each, at least 0. They are fitted to the
program's own rows by robust least squares on logarithms; whole shapes are held out for the residuals, and intervals
come from a bootstrap over shapes. An effect that the rows do not tell from another is left out and said to be: no
number is invented for it. scipy is imported only when a fit runs (the extra `fit`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import ceil, log
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import ScenarioError
from scenarios.timings import NO_OPS, Timing, Timings
from scenarios.work import FixedShape, Work
from sim.hardware.profile import Hardware
from sim.kernel.cpu import effects, names_of, stream_ns
from sim.uncertainty import Z90, family_of

#: Coefficients of a program, in the order of `features`: microseconds a call and a row, nanoseconds an element and a
#: multiply-add.
COEFFICIENTS = ("fixed_us", "row_us", "element_ns", "mac_ns")
#: Residuals beyond this (in logarithms) count less (soft L1).
ROBUST = 0.1
#: Fewest distinct shapes that a program is fitted to, and held-out rows that a family's residual is taken from.
LEAST_SHAPES, LEAST_ROWS = 3, 15
DRAWS, FOLDS = 40, 5
#: An effect is identified if the upper end of its interval is at most so many times the lower one.
WIDEST = 6.0
#: ... and if it makes up at least this part of some row's time; a smaller one is noise of the others.
LEAST_PART = 0.05

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """One op that was timed: its time at the profile's speed, the shape that it is held out with, its trial."""

    work: Work
    us: float
    shape: str
    trial: str

    @property
    def features(self) -> tuple[float, float, float, float]:
        """What each coefficient is multiplied by, so that the sum is microseconds."""
        it = effects(self.work)
        return 1.0, float(it.rows), it.elements / 1000, it.macs / 1000


@dataclass(frozen=True, slots=True)
class Fit:
    """One program's coefficients, their 90 % intervals, and which of its effects its rows do not identify.

    errors: log(predicted / measured) of each sample when its shape was held out.
    """

    program: str
    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    unknown: tuple[str, ...]
    samples: tuple[Sample, ...]
    errors: tuple[float, ...] = field(default=())

    @property
    def shapes(self) -> int:
        return len({sample.shape for sample in self.samples})


def scipy() -> Any:
    """scipy.optimize. Raises ScenarioError, one line, where scipy is not installed."""
    try:
        return import_module("scipy.optimize")
    except ModuleNotFoundError:
        raise ScenarioError(["calibrate: scipy is not installed; pip install 'ascend-whatif[fit]'"]) from None


def reference_us(timings: Timings) -> float:
    """What the reference kernel took at the median of all rows: the speed at which a profile gives its times."""
    if not timings.rows:
        raise ScenarioError(["calibrate: there are no rows to fit to; give more --budget-s"])
    return median(row.reference_us for row in timings.rows)


def at_speed(row: Timing, reference: float) -> float:
    """Microseconds of `row` where the reference takes `reference`."""
    return row.median_us * reference / row.reference_us


def samples_of(timings: Timings, reference: float) -> dict[str, list[Sample]]:
    """The rows of single calls by the program that prices them."""
    found: dict[str, list[Sample]] = {}
    for row in timings.rows:
        if row.kind in NO_OPS or len(row.ops) != 1 or row.kind != row.op.kind:
            continue
        sample = sample_of(row, reference)
        if sample.work.unit != "link" and not isinstance(sample.work.shape, FixedShape):
            found.setdefault(names_of(sample.work)[0], []).append(sample)
    return found


def sample_of(row: Timing, reference: float) -> Sample:
    from scenarios.catalogue import work_of

    work = work_of(row.op)
    return Sample(work, at_speed(row, reference), repr(work.shape), row.trial)


def fit_program(program: str, samples: Sequence[Sample], hw: Hardware, draws: int = DRAWS) -> Fit:
    """The coefficients of one program, those effects left out that its rows do not identify.

    hw: gives what moving the bytes takes at least. Raises ScenarioError where scipy is missing.
    """
    kept = [
        c
        for c, column in zip(COEFFICIENTS, _matrix(samples).T, strict=True)
        if len(set(column)) > 1 or c == COEFFICIENTS[0]
    ]
    unknown = [c for c in COEFFICIENTS if c not in kept and _matrix(samples)[:, COEFFICIENTS.index(c)].any()]
    values, spans = solve(samples, kept, hw), bootstrap(samples, kept, hw, draws)
    while len(kept) > 1 and (doubtful := _doubtful(samples, values, spans)):
        worst = min(doubtful, key=lambda c: _misfit(samples, [k for k in kept if k != c], hw))
        kept.remove(worst)
        unknown.append(worst)
        values, spans = solve(samples, kept, hw), bootstrap(samples, kept, hw, draws)
    return Fit(program, values, spans, tuple(unknown), tuple(samples))


def held_out(fit: Fit, hw: Hardware) -> Fit:
    """`fit` with the errors of its samples, each predicted by a fit that has not seen its shape."""
    shapes = sorted({sample.shape for sample in fit.samples})
    folds = min(FOLDS, len(shapes))
    errors = dict.fromkeys(range(len(fit.samples)), 0.0)
    for fold in range(folds if folds > 1 else 0):
        out = set(shapes[fold::folds])
        seen = [sample for sample in fit.samples if sample.shape not in out]
        values = solve(seen, list(fit.values), hw)
        for place, sample in enumerate(fit.samples):
            if sample.shape in out:
                errors[place] = log(predicted_us(sample, values, hw) / sample.us)
    return replace(fit, errors=tuple(errors.values()))


def predicted_us(sample: Sample, values: Mapping[str, float], hw: Hardware) -> float:
    """The time of one sample with these coefficients."""
    call, *body = (values.get(c, 0.0) * f for c, f in zip(COEFFICIENTS, sample.features, strict=True))
    return max(1e-9, call + max(sum(body), stream_ns(sample.work, hw, resident=True) / 1000))


def solve(samples: Sequence[Sample], kept: Sequence[str], hw: Hardware) -> dict[str, float]:
    """The coefficients `kept` that fit `samples` best, each at least 0."""
    features = _matrix(samples)[:, [COEFFICIENTS.index(c) for c in kept]]
    measured = np.array([sample.us for sample in samples])
    floor = np.array([stream_ns(sample.work, hw, resident=True) / 1000 for sample in samples])
    has_call = kept[0] == COEFFICIENTS[0]
    scale = _scales(features, measured)

    def predicted(x: Vector) -> Vector:
        call = features[:, 0] * x[0] if has_call else np.zeros(len(measured))
        body = features[:, 1:] @ x[1:] if has_call else features @ x
        return np.asarray(np.maximum(call + np.maximum(body, floor), 1e-9))

    def objective(y: Vector) -> Vector:
        return np.asarray(np.log(predicted(y * scale) / measured))

    start = np.full(len(kept), 1.0 / len(kept))
    found = scipy().least_squares(objective, start, bounds=(0, np.inf), loss="soft_l1", f_scale=ROBUST, max_nfev=100)
    return {c: float(v) for c, v in zip(kept, found.x * scale, strict=True)}


def bootstrap(
    samples: Sequence[Sample], kept: Sequence[str], hw: Hardware, draws: int
) -> dict[str, tuple[float, float]]:
    """5th and 95th percentile of each coefficient over fits to shapes drawn with replacement."""
    by_shape: dict[str, list[Sample]] = {}
    for sample in samples:
        by_shape.setdefault(sample.shape, []).append(sample)
    shapes, generator = sorted(by_shape), random.Random(0)
    fits = []
    for _ in range(draws):
        fits.append(solve([s for shape in generator.choices(shapes, k=len(shapes)) for s in by_shape[shape]], kept, hw))
    ordered = {c: sorted(fit[c] for fit in fits) for c in kept}
    cut = int(0.05 * draws)
    return {c: (values[cut], values[-1 - cut]) for c, values in ordered.items()}


def _doubtful(
    samples: Sequence[Sample], values: Mapping[str, float], spans: Mapping[str, tuple[float, float]]
) -> list[str]:
    """The effects that the rows do not identify: their interval is too wide, or they hardly matter anywhere."""
    found = []
    for c, (low, high) in spans.items():
        part = max(values[c] * s.features[COEFFICIENTS.index(c)] / s.us for s in samples)
        if part < LEAST_PART or low <= 0 or high > WIDEST * low:
            found.append(c)
    return found


def _misfit(samples: Sequence[Sample], kept: Sequence[str], hw: Hardware) -> float:
    """Mean magnitude of log(predicted / measured) with the effects `kept` alone."""
    values = solve(samples, kept, hw)
    return sum(abs(log(predicted_us(s, values, hw) / s.us)) for s in samples) / len(samples)


def _matrix(samples: Sequence[Sample]) -> Vector:
    return np.array([sample.features for sample in samples])


def _scales(features: Vector, measured: Vector) -> Vector:
    """For each coefficient about the most that it can be: what would make up the whole time of a row that is nearly all
    its effect."""
    scales = []
    for column in features.T:
        rows = column > 0
        scales.append(float(np.percentile(measured[rows] / column[rows], 10)) if rows.any() else 1.0)
    return np.array(scales)


def family_sigmas(fits: Sequence[Fit]) -> dict[str, float]:
    """Standard deviation of the log error by family of kernel, from held-out shapes, such that 90 % of the errors lie
    within what a normal distribution of that width allows. Families of too few rows are left out."""
    found: dict[str, list[float]] = {}
    for fit in fits:
        for sample, error in zip(fit.samples, fit.errors, strict=True):
            kind = sample.work.program or fit.program
            found.setdefault(f"residual.{family_of(kind)}_sigma", []).append(abs(error))
    return {
        name: sorted(errors)[ceil(0.9 * len(errors)) - 1] / Z90
        for name, errors in found.items()
        if len(errors) >= LEAST_ROWS
    }


def trial_sigma(fits: Sequence[Fit]) -> float:
    """Standard deviation of what all kernels of a trial are wrong by together, weighted by their times: how well the
    speed of the machine is known at one moment."""
    predicted: dict[str, float] = {}
    measured: dict[str, float] = {}
    for fit in fits:
        for sample, error in zip(fit.samples, fit.errors, strict=True):
            predicted[sample.trial] = predicted.get(sample.trial, 0.0) + sample.us * float(np.exp(error))
            measured[sample.trial] = measured.get(sample.trial, 0.0) + sample.us
    errors = sorted(abs(log(predicted[trial] / measured[trial])) for trial in measured)
    return errors[ceil(0.9 * len(errors)) - 1] / Z90 if errors else 0.0
