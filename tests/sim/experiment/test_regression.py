"""Effects from all comparisons: exact where they agree, wider where they do not, silent on what nothing separates."""

from __future__ import annotations

from math import exp, log

import pytest

from sim.experiment.regression import effects
from sim.experiment.statistics import Interval


def gain(value: float, width: float = 0.1, turns: int = 10) -> Interval:
    """An interval of `width` of the logarithm."""
    return Interval(value, value * exp(-width / 2), value * exp(width / 2), 0.95, turns)


def test_single_comparisons_are_their_own_effects() -> None:
    result = effects([(("a",), gain(1.2)), (("b",), gain(0.8, 0.2))])
    assert result["a"].value == pytest.approx(1.2)
    assert log(result["b"].high / result["b"].low) == pytest.approx(0.2)
    assert result["a"].turns == 10


def test_a_comparison_of_both_narrows_each() -> None:
    alone = effects([(("a",), gain(1.2)), (("b",), gain(1.5))])
    more = effects([(("a",), gain(1.2)), (("b",), gain(1.5)), (("a", "b"), gain(1.8))])
    for name, value in (("a", 1.2), ("b", 1.5)):
        assert more[name].value == pytest.approx(value)
        assert more[name].high / more[name].low < alone[name].high / alone[name].low
        assert more[name].turns == 20


def test_comparisons_that_contradict_each_other_widen_all() -> None:
    agreeing = effects([(("a",), gain(1.2)), (("b",), gain(1.5)), (("a", "b"), gain(1.8))])
    split = effects([(("a",), gain(1.2)), (("b",), gain(1.5)), (("a", "b"), gain(1.2))])
    assert 1.0 < split["a"].value < 1.2
    assert log(split["a"].high / split["a"].low) > 2 * log(agreeing["a"].high / agreeing["a"].low)


def test_the_surer_comparison_counts_for_more() -> None:
    result = effects([(("a",), gain(1.2, 0.01)), (("a",), gain(1.4, 0.2))])
    assert result["a"].value == pytest.approx(1.2, abs=0.002)


def test_what_nothing_separates_has_no_effect_of_its_own() -> None:
    assert effects([(("a", "b"), gain(1.5))]) == {}
    assert set(effects([(("a", "b"), gain(1.5)), (("c",), gain(1.1))])) == {"c"}
    assert effects([]) == {}


def test_no_interval_divides_by_nothing() -> None:
    assert effects([(("a",), Interval(1.0, 1.0, 1.0, 0.95, 2))])["a"].value == 1.0
