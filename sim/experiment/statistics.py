"""From turns of two sides to a gain with an interval: ratios within a turn, the median, and what the sign test allows.

Each turn gives one ratio; what drifts from turn to turn is in both of its sides and cancels. Which of the two goes
first changes with every turn, so a drift within turns pulls half of the ratios up and half down. The interval of the
median needs no assumption on the noise but that turns are alike: of n ordered values the k-th from either end enclose
the median with probability 1 - 2 P(Binomial(n, 1/2) < k).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, exp, fsum, hypot, log
from statistics import median

from scenarios.exchange.bench import Repeat
from scenarios.records import dataclass

#: Two-sided confidence of the intervals of measured medians.
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and values that enclose it with `confidence`: less than asked for where there are too few turns."""

    value: float
    low: float
    high: float
    confidence: float
    turns: int


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The narrowest symmetric interval of order statistics whose confidence is at least `confidence`. Raises ValueError
    where there is no value."""
    ordered = sorted(values)
    n = len(ordered)
    if not n:
        raise ValueError("no values")
    beyond, rank, reached = 0.0, 1, 0.0
    for k in range(1, n // 2 + 1):
        beyond += comb(n, k - 1) / 2**n
        if k > 1 and 1 - 2 * beyond < confidence:
            break
        rank, reached = k, 1 - 2 * beyond
    return Interval(median(ordered), ordered[rank - 1], ordered[n - rank], reached, n)


def ratios(turns: Sequence[Repeat], by_reference: bool) -> list[float]:
    """a / b of each turn; by_reference: each side first divided by the fixed kernel right before it."""
    if by_reference:
        return [(t.a_ns / t.a_reference_ns) / (t.b_ns / t.b_reference_ns) for t in turns]
    return [t.a_ns / t.b_ns for t in turns]


def reference_helps(turns: Sequence[Repeat]) -> bool:
    """Whether two equal sides, measured in turn, lie closer together by the fixed kernel than without.

    Asked of the control alone, never of the turns that a gain is read from: a rule that looks at those first would make
    their interval too narrow.
    """
    return spread(ratios(turns, True)) < spread(ratios(turns, False))


def spread(values: Sequence[float]) -> float:
    """Distance of the quartiles of ln(values): half of them lie within it."""
    ordered = sorted(log(v) for v in values)
    n = len(ordered)
    return ordered[(3 * n) // 4 if n > 1 else 0] - ordered[n // 4]


def product(gains: Sequence[Interval]) -> Interval:
    """The product of gains that were measured apart: their logarithms add, and the half-widths of these as the root of
    the sum of squares."""
    value = exp(fsum(log(g.value) for g in gains))
    down = hypot(*(log(g.value / g.low) for g in gains))
    up = hypot(*(log(g.high / g.value) for g in gains))
    confidence = min((g.confidence for g in gains), default=CONFIDENCE)
    return Interval(value, value * exp(-down), value * exp(up), confidence, min((g.turns for g in gains), default=0))


def over(a: Interval, b: Interval) -> Interval:
    """a / b, measured apart."""
    value = a.value / b.value
    down = hypot(log(a.value / a.low), log(b.high / b.value))
    up = hypot(log(a.high / a.value), log(b.value / b.low))
    return Interval(value, value * exp(-down), value * exp(up), min(a.confidence, b.confidence), min(a.turns, b.turns))


@dataclass(frozen=True, slots=True)
class Warmth:
    """How the baseline became warm. first: its first repeat over the steady level. drift: the last third of the repeats
    over the middle third, medians, both by the fixed kernel. is_warm: drift within `WARM`."""

    first: float
    drift: float
    is_warm: bool


#: Drift of a side that is called warm.
WARM = 0.1


def warmth(repeats: Sequence[tuple[float, float]]) -> Warmth:
    """Of (reference, side), ns, in order. Raises ValueError for fewer than three."""
    if len(repeats) < 3:
        raise ValueError("three repeats at least")
    told = [side / reference for reference, side in repeats]
    third = len(told) // 3
    middle, last = median(told[third : 2 * third]), median(told[2 * third :])
    drift = last / middle
    return Warmth(told[0] / last, drift, abs(drift - 1) <= WARM)
