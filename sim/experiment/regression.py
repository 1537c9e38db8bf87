"""The effect of each factor from all comparisons of an experiment, not from its own alone.

A comparison of several factors says what they gain together. Where factors multiply, its logarithm is the sum of
theirs, so all comparisons at the reported shape are one weighted least-squares problem: ln gain = sum of ln effects,
each weighted by one over its variance (a quarter of the width of its interval is taken as its standard deviation). How
far the comparisons lie from such a sum widens all intervals; factors that touch each other show there, and one by one
in the combinations' `excess`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

import numpy as np

from sim.experiment.statistics import CONFIDENCE, Interval

#: Half-width of 95 % of a normal distribution, in standard deviations.
Z95 = 1.96
#: No interval is believed to be narrower than this, of the logarithm.
MIN_WIDTH = 1e-4


def effects(comparisons: Sequence[tuple[Sequence[str], Interval]]) -> Mapping[str, Interval]:
    """Gain of each factor by name, from (names of the factors that differ, gain of all of them together).

    Factors that no set of comparisons separates from others are left out.
    """
    names = sorted({name for factors, _ in comparisons for name in factors})
    if not names:
        return {}
    design = np.array([[float(name in factors) for name in names] for factors, _ in comparisons])
    gains = np.array([log(gain.value) for _, gain in comparisons])
    widths = np.array([max(MIN_WIDTH, log(gain.high) - log(gain.low)) / (2 * Z95) for _, gain in comparisons])
    weighted, told = design / widths[:, None], gains / widths
    inverse = np.linalg.pinv(weighted.T @ weighted)
    solver = inverse @ weighted.T
    estimates = solver @ told
    # A factor is identified where its row of the resolution matrix picks it alone.
    alone = np.isclose(np.diag(solver @ weighted), 1.0, atol=1e-6)
    spare = len(comparisons) - np.linalg.matrix_rank(design)
    scatter = float(((told - weighted @ estimates) ** 2).sum()) / spare if spare else 1.0
    errors = np.sqrt(np.diag(inverse) * max(1.0, scatter))
    turns = {name: sum(gain.turns for factors, gain in comparisons if name in factors) for name in names}
    return {
        name: Interval(exp(value), exp(value - Z95 * error), exp(value + Z95 * error), CONFIDENCE, turns[name])
        for name, value, error, is_alone in zip(names, estimates, errors, alone, strict=True)
        if is_alone
    }
