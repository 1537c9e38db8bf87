"""The one robust fit: least squares with a soft L1 loss on logarithms of predicted over measured.

Intervals are percentiles over fits to what was drawn with replacement, residuals the width that covers. scipy is
imported only when a fit runs (the extra `fit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from math import ceil, exp, log
from typing import Any

from scenarios.errors import ScenarioError
from scenarios.ops.catalogue import family_of
from sim.predict.uncertainty import T90

#: Residuals beyond this (in logarithms) count less (soft L1).
ROBUST = 0.1
#: Pull of each parameter towards its start, so that one that its rows do not decide stays there.
PRIOR = 0.06
#: Fewest held-out rows from which a family's residual is taken.
MIN_ROWS = 15
#: Most evaluations of a fit where its caller bounds them.
MAX_EVALUATIONS = 60
#: Step in which slopes are taken, of logarithms.
STEP = 0.01


def scipy() -> Any:
    """scipy.optimize. Raises ScenarioError, one line, where scipy is not installed."""
    try:
        return import_module("scipy.optimize")
    except ModuleNotFoundError:
        raise ScenarioError(["calibrate: scipy is not installed; pip install 'ascend-whatif[fit]'"]) from None


def solve(objective: Callable[[Any], Any], start: Any, slope: Any = "2-point", **options: Any) -> Any:
    """The point, from `start`, at which the residuals of `objective` are smallest in soft L1.

    slope: their derivatives, where they are known. options: as `scipy.optimize.least_squares` takes them. Raises
    ScenarioError where scipy is missing.
    """
    return scipy().least_squares(objective, start, slope, loss="soft_l1", f_scale=ROBUST, **options).x


def fit_logs(
    residuals: Callable[[dict[str, float]], list[float]],
    starts: Mapping[str, float],
    limits: Mapping[str, tuple[float, float]] | None = None,
    prior: float = PRIOR,
    max_evaluations: int | None = MAX_EVALUATIONS,
) -> dict[str, float]:
    """The numbers for which `residuals`, ln(predicted / measured), are smallest; as logarithms, so they stay positive.

    starts: where the fit starts, and what each number is pulled to by `prior`. limits: of each number, if any.
    """
    names = list(starts)
    inside = {name: (limits or {}).get(name, (0.0, float("inf"))) for name in names}
    first = [log(min(max(starts[n], low * 1.001), high * 0.999)) for n, (low, high) in inside.items()]

    @lru_cache(maxsize=1)  # a slope starts from the point that was asked for last
    def missed(x: tuple[float, ...]) -> list[float]:
        pulls = [prior * (v - s) for v, s in zip(x, first, strict=True)] if prior else []
        return [*residuals({name: exp(v) for name, v in zip(names, x, strict=True)}), *pulls]

    def objective(x: Any) -> list[float]:
        return missed(tuple(map(float, x)))

    # scipy's own steps are relative to the point: next to 1, whose logarithm is 0, they are smaller than the nanosecond
    # to which times are rounded, and the number would never move.
    def slopes(x: Any) -> list[list[float]]:
        here = objective(x)
        columns = []
        for i in range(len(names)):
            moved = [v + STEP * (i == k) for k, v in enumerate(x)]
            columns.append([(there - at) / STEP for there, at in zip(objective(moved), here, strict=True)])
        return [list(row) for row in zip(*columns, strict=True)]

    options: dict[str, Any] = {"max_nfev": max_evaluations}
    if limits:
        options["bounds"] = ([log(low) for low, _ in inside.values()], [log(high) for _, high in inside.values()])
    best = solve(objective, first, slopes, **options)
    return {name: exp(v) for name, v in zip(names, best, strict=True)}


def intervals(fits: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """5th and 95th percentile of each number over fits to what was drawn with replacement."""
    cut = int(0.05 * len(fits))
    ordered = {name: sorted(fit[name] for fit in fits) for name in fits[0]}
    return {name: (values[cut], values[-1 - cut]) for name, values in ordered.items()}


def covering(magnitudes: Iterable[float]) -> float:
    """The magnitude that 90 % of `magnitudes` do not exceed."""
    ordered = sorted(magnitudes)
    return ordered[ceil(0.9 * len(ordered)) - 1]


def sigma_of(magnitudes: Iterable[float]) -> float:
    """The scale with which the law of intervals (Student's t) has 90 % of `magnitudes` inside."""
    return covering(magnitudes) / T90


def family_sigmas(errors: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Scale of the log error by family of kernel, from (kind, error) pairs of held-out shapes.

    Such that 90 % of the errors lie within the interval that is made of it. Families with fewer than MIN_ROWS rows say
    too little and are left out.
    """
    by_family: dict[str, list[float]] = {}
    for kind, error in errors:
        by_family.setdefault(f"residual.{family_of(kind)}_sigma", []).append(abs(error))
    return {name: sigma_of(family) for name, family in by_family.items() if len(family) >= MIN_ROWS}
