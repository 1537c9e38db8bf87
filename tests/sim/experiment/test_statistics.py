"""Gains from turns: the interval covers as often as it says, drift does not fool it, known gains come back."""

from __future__ import annotations

from math import exp, log
from random import Random

import pytest

from scenarios.exchange.bench import Repeat
from sim.experiment.statistics import (
    Interval,
    median_interval,
    over,
    product,
    ratios,
    reference_helps,
    spread,
    warmth,
)


def turns(
    gain: float,
    count: int,
    random: Random,
    noise: float = 0.02,
    drift: float = 0.0,
    outliers: float = 0.0,
    reference_noise: float = 0.02,
) -> list[Repeat]:
    """Turns of a side that takes `gain` times as long as the other, on a machine whose speed walks at random. outliers:
    share of times that a neighbour trebles."""
    repeats: list[Repeat] = []
    speed = 0.0

    def time(ns: float) -> float:
        return ns * exp(speed + random.gauss(0, noise)) * (3 if random.random() < outliers else 1)

    for number in range(count):
        a_first = number % 2 == 0
        times = {}
        for side in "ab" if a_first else "ba":
            speed += random.gauss(0, drift)
            reference = 1e6 * exp(speed + random.gauss(0, reference_noise))
            times[side] = (reference, time(1e7 * (gain if side == "a" else 1)))
        (ra, a), (rb, b) = times["a"], times["b"]
        repeats.append(Repeat(a, b, ra, rb, a, b, a_first))
    return repeats


@pytest.mark.parametrize(
    ("count", "ends", "confidence"),
    [
        (1, (1, 1), 0.0),
        (2, (1, 2), 0.5),
        (5, (1, 5), 0.9375),
        (6, (1, 6), 0.96875),
        (8, (1, 8), 0.9921875),
        (9, (2, 8), 0.9609375),
        (12, (3, 10), 0.96142578125),
        (24, (7, 18), 0.9773439168930054),
    ],
)
def test_the_interval_is_that_of_the_sign_test(count: int, ends: tuple[int, int], confidence: float) -> None:
    result = median_interval([float(n) for n in range(count, 0, -1)])
    assert (result.low, result.high) == ends
    assert result.confidence == pytest.approx(confidence)
    assert (result.value, result.turns) == ((count + 1) / 2, count)


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


@pytest.mark.parametrize("count", [8, 12, 24])
@pytest.mark.parametrize(("drift", "outliers"), [(0.0, 0.0), (0.05, 0.0), (0.02, 0.15)])
def test_the_interval_covers_as_often_as_it_says(count: int, drift: float, outliers: float) -> None:
    """Over 500 experiments with a gain of 1.05, drift of 5 % from one measurement to the next, and neighbours."""
    random = Random(f"{count} {drift} {outliers}")
    covered = 0
    for _ in range(500):
        item = median_interval(ratios(turns(1.05, count, random, drift=drift, outliers=outliers), False))
        covered += item.low <= 1.05 <= item.high
    assert covered / 500 > item.confidence - 0.03  # three standard deviations of a share of 500


def test_a_drift_that_would_fool_blocks_does_not_fool_turns() -> None:
    """The machine slows down by 1 % with every measurement: all of A before all of B would call B a third slower."""
    result = []
    for number in range(24):
        first, second = 1.01 ** (2 * number), 1.01 ** (2 * number + 1)
        a, b = (first, second) if number % 2 == 0 else (second, first)
        result.append(Repeat(a, b, 1, 1, a, b, number % 2 == 0))
    item = median_interval(ratios(result, False))
    assert item.low <= 1 <= item.high
    assert item.value == pytest.approx(1.0, abs=1e-4)
    assert sum(t.b_ns for t in result[12:]) / sum(t.a_ns for t in result[:12]) > 1.25


@pytest.mark.parametrize("gain", [0.5, 0.97, 1.0, 1.03, 1.8])
def test_a_known_gain_comes_back_without_bias(gain: float) -> None:
    median_intervals = [median_interval(ratios(turns(gain, 24, Random(n), drift=0.03), False)) for n in range(40)]
    assert exp(sum(log(item.value) for item in median_intervals) / 40) == pytest.approx(gain, rel=0.005)
    assert sum(value.low <= gain <= value.high for value in median_intervals) >= 36


def test_the_reference_is_used_only_where_it_narrows_equal_sides() -> None:
    wild = turns(1.0, 24, Random(1), noise=0.005, drift=0.2, reference_noise=0.005)
    calm = turns(1.0, 24, Random(1), noise=0.005, drift=0.0, reference_noise=0.05)
    assert reference_helps(wild)
    assert not reference_helps(calm)
    assert spread(ratios(wild, True)) < spread(ratios(wild, False))


def test_products_and_quotients_add_in_logarithms() -> None:
    a, b = Interval(1.2, 1.1, 1.3, 0.95, 24), Interval(1.5, 1.2, 2.0, 0.97, 12)
    both = product([a, b])
    assert both.value == pytest.approx(1.8)
    assert log(both.value / both.low) == pytest.approx((log(1.2 / 1.1) ** 2 + log(1.5 / 1.2) ** 2) ** 0.5)
    assert (both.confidence, both.turns) == (0.95, 12)
    back = over(both, b)
    assert back.value == pytest.approx(1.2)
    assert back.low < a.low < a.high < back.high  # measured apart, they do not cancel


def test_warm_is_what_no_longer_drifts() -> None:
    cold = [(1.0, 9.0), *((1.0, 3.0 - 0.05 * n) for n in range(23))]
    steady = [(1.0, 9.0), *((1.0, 2.0),) * 23]
    assert warmth(steady).is_warm
    assert warmth(steady).first == 4.5
    assert not warmth(cold).is_warm
    faster_machine = [(1.0 / (1 + n), 2.0 / (1 + n)) for n in range(24)]  # the machine's doing, not the side's
    assert warmth(faster_machine).is_warm
    with pytest.raises(ValueError, match="three"):
        warmth([(1.0, 1.0)])
