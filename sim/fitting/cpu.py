"""From microbenchmarks to the numbers of a CPU's profile: what `whatif calibrate` fits.

Each kernel program (`sim.kernel.cpu`) is a sum of effects with a coefficient each, at least 0. They are fitted to the
program's own rows by robust least squares on logarithms; whole shapes are held out for the residuals, and intervals
come from a bootstrap over shapes. An effect that the rows do not tell from another is left out and said to be: no
number is invented for it. scipy is imported only when a fit runs (the extra `fit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import ScenarioError
from scenarios.exchange.timings import NO_OPS, Timing, Timings
from scenarios.ops.catalogue import work_of
from scenarios.ops.work import FixedShape, Work
from scenarios.records import dataclass
from sim.fitting import robust
from sim.hardware.profile import HardwareProfile
from sim.kernel.cpu import calls_of, effects, names_of, stream_ns

#: Coefficients of a program, in the order of `features`: microseconds a call and a row, nanoseconds an element and a
#: multiply-add.
COEFFICIENTS = ("fixed_us", "row_us", "element_ns", "mac_ns")
#: Fewest distinct shapes that a program is fitted to.
MIN_SHAPES = 3
#: ... but one is enough for what has no other, if so many trials timed it.
MIN_TRIALS = 10
DRAWS, FOLDS = 40, 5
#: An effect is identified if the upper end of its interval is at most so many times the lower one.
WIDEST = 6.0
#: ... and if it makes up at least this part of some row's time; a smaller one is noise of the others.
MIN_PART = 0.05
#: ... and if at least this part of its column is no sum of the others.
MIN_OWN = 0.05

#: When a fit is good enough: coefficients are never known to a thousandth.
TOLERANCES = {"ftol": 1e-5, "xtol": 1e-5, "gtol": 1e-5}
#: Smallest time, so that a logarithm exists.
TINY_US = 1e-9

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """One op that was timed: its time at the profile's speed, the shape that it is held out with, its trial.

    features: what each coefficient is multiplied by, so that the sum is microseconds. floor_us: what moving its bytes
    takes at least.
    """

    work: Work
    us: float
    shape: str
    trial: str
    features: tuple[float, float, float, float]
    floor_us: float


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples as arrays: features [rows, coefficients], and a value a row in microseconds."""

    features: Vector
    measured_us: Vector
    floor_us: Vector

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Rows:
        return cls(
            np.array([s.features for s in samples]),
            np.array([s.us for s in samples]),
            np.array([s.floor_us for s in samples]),
        )

    def picked(self, places: NDArray[np.int64]) -> Rows:
        """The rows at `places`, in that order, some of them perhaps again."""
        return Rows(self.features[places], self.measured_us[places], self.floor_us[places])


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

    def errors_by_kind(self) -> Iterator[tuple[str, float]]:
        """(kind, error) of each sample when its shape was held out."""
        for sample, error in zip(self.samples, self.errors, strict=True):
            yield sample.work.program or self.program, error


def reference_us(timings: Timings) -> float:
    """What the reference kernel took at the median of all rows: the speed at which a profile gives its times."""
    if not timings.rows:
        raise ScenarioError(["calibrate: there are no rows to fit to; give more --budget-s"])
    return median(row.reference_us for row in timings.rows)


def at_speed(row: Timing, reference: float) -> float:
    """Microseconds of `row` where the reference takes `reference`."""
    return row.median_us * reference / row.reference_us


def samples_of(timings: Timings, reference: float, hw: HardwareProfile) -> dict[str, list[Sample]]:
    """The rows of single calls by the program that prices them. hw: says what moving bytes takes."""
    samples: dict[str, list[Sample]] = {}
    for row in timings.rows:
        if row.kind in NO_OPS or len(row.ops) != 1 or row.kind != row.op.kind:
            continue
        work = work_of(row.op)
        if work.unit == "link" or isinstance(work.shape, FixedShape):
            continue
        calls = list(calls_of(work))
        names = {names_of(call)[0] for _, call in calls}
        if len(names) > 1:  # prompts and decodes in one: no program's alone
            continue
        fixed, rows, elements, macs = (sum(e) for e in zip(*(_features(*call) for call in calls), strict=True))
        features = (fixed, rows, elements, macs)
        floor_us = sum(count * stream_ns(call, hw, resident=True) for count, call in calls) / 1000
        sample = Sample(work, at_speed(row, reference), repr(work.shape), row.trial, features, floor_us)
        samples.setdefault(names.pop(), []).append(sample)
    return samples


def _features(count: int, call: Work) -> tuple[float, float, float, float]:
    """What each coefficient is multiplied by in `count` calls that are alike."""
    effect = effects(call)
    return float(count), float(count * effect.rows), count * effect.elements / 1000, count * effect.macs / 1000


def fit_program(program: str, samples: Sequence[Sample], draws: int = DRAWS) -> Fit:
    """The coefficients of one program, those effects left out that its rows do not identify.

    Raises ScenarioError where scipy is missing.
    """
    rows, groups = Rows.of(samples), _by_shape(samples)
    columns = dict(zip(COEFFICIENTS, rows.features.T, strict=True))
    kept = [c for c, column in columns.items() if len(set(column)) > 1 or c == COEFFICIENTS[0]]
    unknown = [c for c, column in columns.items() if c not in kept and column.any()]
    values = solve(rows, kept)
    while len(kept) > 1 and (doubtful := _doubtful(rows, values, bootstrap(rows, groups, values, draws // 3))):
        worst = min(doubtful, key=lambda c: _misfit(rows, [k for k in kept if k != c]))
        kept.remove(worst)
        unknown.append(worst)
        values = solve(rows, kept)
    return Fit(program, values, bootstrap(rows, groups, values, draws), tuple(unknown), tuple(samples))


def constant(program: str, samples: Sequence[Sample]) -> Fit | None:
    """A program that has one shape in the steps of all models (the template of the mask): a call takes its median,
    between the 5th and 95th percentile. None where that is not so, or too few trials tell."""
    if len({s.shape for s in samples}) > 1 or len({s.trial for s in samples}) < MIN_TRIALS:
        return None
    calls_us = np.array([s.us - s.floor_us for s in samples])
    if (low := float(np.percentile(calls_us, 5))) <= 0:
        return None
    value, high = float(np.median(calls_us)), float(np.percentile(calls_us, 95))
    errors = tuple(log((value + s.floor_us) / s.us) for s in samples)
    return Fit(program, {COEFFICIENTS[0]: value}, {COEFFICIENTS[0]: (low, high)}, (), tuple(samples), errors)


def held_out(fit: Fit) -> Fit:
    """`fit` with the errors of its samples, each predicted by a fit that has not seen its shape."""
    rows, groups = Rows.of(fit.samples), _by_shape(fit.samples)
    folds = min(FOLDS, len(groups))
    errors = np.zeros(len(fit.samples))
    for fold in range(folds if folds > 1 else 0):
        out = np.concatenate(groups[fold::folds])
        seen = np.setdiff1d(np.arange(len(errors)), out)
        left = rows.picked(out)
        errors[out] = np.log(predicted_us(left, solve(rows.picked(seen), list(fit.values))) / left.measured_us)
    return replace(fit, errors=tuple(float(e) for e in errors))


def predicted_us(rows: Rows, values: Mapping[str, float]) -> Vector:
    """The times of `rows` with these coefficients."""
    call, *body = (values.get(c, 0.0) for c in COEFFICIENTS)
    return np.asarray(np.maximum(call + np.maximum(rows.features[:, 1:] @ np.array(body), rows.floor_us), TINY_US))


def solve(rows: Rows, kept: Sequence[str], start: Mapping[str, float] | None = None) -> dict[str, float]:
    """The coefficients `kept` that fit `rows` best, each at least 0. start: where to look first."""
    places = [COEFFICIENTS.index(c) for c in kept]
    scale = np.array([_scale(rows.features[:, place], rows.measured_us) for place in places])
    features = rows.features[:, places] * scale
    is_body = np.array([place > 0 for place in places])

    def body(y: Vector) -> Vector:
        return np.asarray(features[:, is_body] @ y[is_body])

    def predicted(y: Vector) -> Vector:
        call = features[:, ~is_body] @ y[~is_body]
        return np.asarray(np.maximum(call + np.maximum(body(y), rows.floor_us), TINY_US))

    def objective(y: Vector) -> Vector:
        return np.asarray(np.log(predicted(y) / rows.measured_us))

    def slope(y: Vector) -> Vector:
        counts = np.where(is_body, (body(y) >= rows.floor_us)[:, np.newaxis], True)
        return np.asarray(features * counts / predicted(y)[:, np.newaxis])

    first = np.array([start[c] for c in kept]) / scale if start else np.full(len(kept), 1.0 / len(kept))
    best = robust.solve(objective, first, slope, bounds=(0, np.inf), max_nfev=robust.MAX_EVALUATIONS, **TOLERANCES)
    return {c: float(v) for c, v in zip(kept, best * scale, strict=True)}


def bootstrap(
    rows: Rows, groups: Sequence[NDArray[np.int64]], values: Mapping[str, float], draws: int
) -> dict[str, tuple[float, float]]:
    """5th and 95th percentile of each coefficient over fits to shapes drawn with replacement; values: of all shapes."""
    kept = list(values)
    generator = np.random.default_rng(0)
    drawn = (generator.choice(len(groups), len(groups)) for _ in range(draws))
    fits = [solve(rows.picked(np.concatenate([groups[i] for i in chosen])), kept, values) for chosen in drawn]
    return robust.intervals(fits)


def _by_shape(samples: Sequence[Sample]) -> list[NDArray[np.int64]]:
    """Places of the samples of each shape, shapes in order."""
    places: dict[str, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(sample.shape, []).append(place)
    return [np.array(places[shape]) for shape in sorted(places)]


def _doubtful(rows: Rows, values: Mapping[str, float], spans: Mapping[str, tuple[float, float]]) -> list[str]:
    """The effects that the rows do not identify: their interval is too wide, or they hardly matter anywhere."""
    doubtful = []
    for c, (low, high) in spans.items():
        part = float(np.max(values[c] * rows.features[:, COEFFICIENTS.index(c)] / rows.measured_us))
        if part < MIN_PART or low <= 0 or high > WIDEST * low or _own(rows, c, list(values)) < MIN_OWN:
            doubtful.append(c)
    return doubtful


def _own(rows: Rows, effect: str, kept: Sequence[str]) -> float:
    """Part of an effect's column, relative to the rows' times, that no sum of the other columns makes up. Where there
    is none, a fit may split the two as it likes, and every draw of a bootstrap will split them alike."""
    relative = rows.features / rows.measured_us[:, np.newaxis]
    column = relative[:, COEFFICIENTS.index(effect)]
    others = relative[:, [COEFFICIENTS.index(c) for c in kept if c != effect]]
    left = column - others @ np.linalg.lstsq(others, column, rcond=None)[0] if others.size else column
    return float(np.linalg.norm(left) / max(1e-300, float(np.linalg.norm(column))))


def _misfit(rows: Rows, kept: Sequence[str]) -> float:
    """Mean magnitude of log(predicted / measured) with the effects `kept` alone."""
    return float(np.mean(np.abs(np.log(predicted_us(rows, solve(rows, kept)) / rows.measured_us))))


def _scale(column: Vector, measured_us: Vector) -> float:
    """About the most that a coefficient can be: what would make up the whole time of a row that is nearly all its
    effect."""
    having = column > 0
    return float(np.percentile(measured_us[having] / column[having], 10)) if having.any() else 1.0


def trial_sigma(fits: Sequence[Fit]) -> float:
    """Standard deviation of what all kernels of a trial are wrong by together, weighted by their times: how well the
    speed of the machine is known at one moment."""
    predicted: dict[str, float] = {}
    measured: dict[str, float] = {}
    for fit in fits:
        for sample, error in zip(fit.samples, fit.errors, strict=True):
            predicted[sample.trial] = predicted.get(sample.trial, 0.0) + sample.us * float(np.exp(error))
            measured[sample.trial] = measured.get(sample.trial, 0.0) + sample.us
    errors = [abs(log(predicted[trial] / measured[trial])) for trial in measured]
    return robust.sigma_of(errors) if errors else 0.0
