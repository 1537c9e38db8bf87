"""What a study found: steps predicted and measured, gains, and how far they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import log, sqrt
from statistics import median
from typing import Any

from cases import Base, Run, Variant, pairs

from sim.predict.predict import Prediction
from sim.predict.uncertainty import Z90, ratio_interval, step_interval

#: Standard deviation of a measured step that is allowed for at least, whatever two rounds happen to agree to.
MIN_NOISE = 0.02


@dataclass(slots=True)
class Result:
    """One scenario. rounds: of each its median, us: raw, and steady at the calibration's speed."""

    run: Run
    prediction: Prediction
    raw_us: list[float] = field(default_factory=list)
    steady_us: list[float] = field(default_factory=list)

    @property
    def interval_us(self) -> tuple[float, float]:
        low, high = step_interval(self.prediction.sensitivity, self.prediction.case.hardware)
        return low / 1000, high / 1000

    @property
    def predicted_us(self) -> float:
        return self.prediction.step.total_ns / 1000

    @property
    def measured_us(self) -> float:
        return median(self.steady_us)

    @property
    def error(self) -> float:
        return self.predicted_us / self.measured_us - 1

    @property
    def is_covered(self) -> bool:
        low, high = self.interval_us
        return low <= self.measured_us <= high


@dataclass(frozen=True, slots=True)
class Gain:
    """Step without over step with an optimisation, predicted (with its interval) and measured (with its noise)."""

    base: Base
    variant: Variant
    predicted: tuple[float, float, float]
    measured: float
    noise: float

    @property
    def is_told(self) -> bool:
        """Whether the measured gain differs from none."""
        return abs(log(self.measured)) > Z90 * self.noise


def noise_of(results: Mapping[Run, Result]) -> float:
    """Standard deviation of the logarithm of one measured step, from what its rounds differ by."""
    differences = [
        log(a / b) for result in results.values() for a, b in combinations(result.steady_us, 2) if a > 0 and b > 0
    ]
    spread = sqrt(sum(d * d for d in differences) / len(differences) / 2) if differences else MIN_NOISE
    return max(MIN_NOISE, spread)


def gains_of(results: Mapping[Run, Result], bases: Sequence[Base], variants: Sequence[Variant]) -> list[Gain]:
    """The gains of all optimisations on all bases that were measured."""
    noise, gains = noise_of(results), []
    for base in bases:
        for variant, without, with_it in pairs(base, tuple(variants)):
            if without not in results or with_it not in results:
                continue
            a, b = results[without], results[with_it]
            told = ratio_interval(a.prediction.sensitivity, b.prediction.sensitivity, a.prediction.case.hardware)
            each = noise * sqrt(1 / len(a.steady_us) + 1 / len(b.steady_us))
            gains.append(Gain(base, variant, told, a.measured_us / b.measured_us, each))
    return gains


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Rank correlation; ties share their mean rank."""
    ranks = [_ranks([pair[side] for pair in pairs]) for side in (0, 1)]
    means = [sum(r) / len(r) for r in ranks]
    moved = [[v - m for v in r] for r, m in zip(ranks, means, strict=True)]
    above = sum(a * b for a, b in zip(*moved, strict=True))
    below = sqrt(sum(a * a for a in moved[0]) * sum(b * b for b in moved[1]))
    return above / below if below else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values]


def reversed_pairs(gains: Sequence[Gain]) -> list[tuple[Gain, Gain]]:
    """Pairs of optimisations of one base whose order is wrong though it shows in both: the intervals of the
    predicted gains lie apart one way, the measured gains, with their noise, the other way."""
    reversals = []
    for a, b in combinations(gains, 2):
        if a.base != b.base:
            continue
        noise = Z90 * sqrt(a.noise**2 + b.noise**2)
        measured = log(a.measured / b.measured)
        first = a.predicted[1] > b.predicted[2] and measured < -noise
        second = a.predicted[2] < b.predicted[1] and measured > noise
        if first or second:
            reversals.append((a, b))
    return reversals


def summary(results: Mapping[Run, Result], gains: Sequence[Gain]) -> dict[str, Any]:
    """The study in numbers."""
    errors = sorted(abs(result.error) for result in results.values())
    one = {r: result for r, result in results.items() if "engine.tensor_parallel_size=2" not in r.settings}
    by_base = {}
    for base in dict.fromkeys(gain.base for gain in gains):
        by_base[base.name] = spearman([(g.predicted[0], g.measured) for g in gains if g.base == base])
    told = [gain for gain in gains if gain.is_told]
    return {
        "steps": len(results),
        "median_error": median(errors),
        "p90_error": errors[min(len(errors) - 1, int(0.9 * len(errors)))],
        "median_error_one_rank": median(abs(result.error) for result in one.values()),
        "covered": sum(result.is_covered for result in results.values()) / len(results),
        "noise": noise_of(results),
        "rank_correlation": by_base,
        "rank_correlation_all": spearman([(g.predicted[0], g.measured) for g in gains]),
        "directions": [sum((g.predicted[0] > 1) == (g.measured > 1) for g in told), len(told)],
        "reversed": [f"{a.base.name}: {a.variant.name} and {b.variant.name}" for a, b in reversed_pairs(gains)],
    }
