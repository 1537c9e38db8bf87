"""The ratio of two steps: what is alike cannot be distinguished, what differs by far can, order only turns it over."""

from __future__ import annotations

from math import exp, hypot, log

import pytest

from scenarios.batches import reported_batch
from scenarios.loader import load_scenario
from sim.predict.ratios import step_ratio
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, interval_ns

EAGER = "qwen3_8b_910b2_eager"


def made(name: str, *sets: str) -> Case:
    return case_of(load_scenario(name, sets))


def test_a_step_against_itself_is_no_effect() -> None:
    one = made(EAGER)
    ratio = step_ratio(one, one)
    assert (ratio.value, ratio.verdict, ratio.distinguishable) == (1.0, "no effect", False)


def test_a_graph_is_seen_and_the_other_way_round_is_a_loss() -> None:
    eager, graph = made(EAGER), made(EAGER, "optimizations.graph=ge_graph")
    there, back = step_ratio(eager, graph), step_ratio(graph, eager)
    assert (there.verdict, back.verdict) == ("gain", "loss")
    assert there.value == pytest.approx(1 / back.value)
    assert there.low == pytest.approx(1 / back.high)


def test_two_profiles_have_independent_errors() -> None:
    """Worked out from the two steps' own intervals: squares of the widths of the logarithms add."""
    a, b = made(EAGER), made(EAGER, "hardware=atlas_a3_die")
    ratio = step_ratio(a, b)
    (value_a, low_a, high_a), (value_b, low_b, high_b) = (interval_ns(c, reported_batch(c.scenario)) for c in (a, b))
    assert ratio.value == pytest.approx(value_a / value_b)
    assert ratio.low == pytest.approx(ratio.value * exp(-hypot(log(value_a / low_a), log(high_b / value_b))))
    assert ratio.high == pytest.approx(ratio.value * exp(hypot(log(high_a / value_a), log(value_b / low_b))))
