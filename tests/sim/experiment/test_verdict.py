"""Verdicts: from an interval, from what equal sides differ by, and from the numbers before all."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

from sim.experiment.statistics import Interval
from sim.experiment.verdict import MAX_KL_NATS, check_numbers, decide, floor_of
from tests.sim.experiment.fake import BAD, GOOD

FINE = check_numbers(GOOD, GOOD, "", False)


@pytest.mark.parametrize(
    ("ends", "floor", "call"),
    [
        ((1.10, 1.05, 1.15), 0.02, "adopt"),
        ((0.90, 0.85, 0.95), 0.02, "do not adopt"),
        ((1.02, 0.99, 1.05), 0.00, "not distinguishable"),
        ((1.03, 1.01, 1.05), 0.04, "not distinguishable"),  # equal sides differ by more
        ((0.97, 0.96, 0.99), 0.04, "not distinguishable"),
    ],
)
def test_speed_decides_where_the_numbers_are_fine(ends: tuple[float, float, float], floor: float, call: str) -> None:
    assert decide(Interval(*ends, 0.95, 24), floor, FINE).call == call


def test_numbers_that_are_not_acceptable_decide_whatever_the_speed() -> None:
    ruined = check_numbers(GOOD, BAD, "", False)
    assert ruined.state == "not acceptable"
    assert "0.05 nats" in ruined.reason
    assert decide(Interval(3.0, 2.9, 3.1, 0.95, 24), 0.0, ruined).call == "do not adopt"


def test_logits_that_are_no_numbers_are_not_acceptable() -> None:
    broken = replace(GOOD, relative=0.0, kl_nats=0.0, is_finite=False)
    result = check_numbers(GOOD, broken, "", False)
    assert (result.state, result.reason) == ("not acceptable", "its logits are no numbers")
    assert check_numbers(broken, GOOD, "", False).state == "not checked"


def test_what_could_not_be_checked_is_not_adopted() -> None:
    unknown = check_numbers(None, None, "out of memory", False)
    result = decide(Interval(3.0, 2.9, 3.1, 0.95, 24), 0.0, unknown)
    assert result.call == "do not adopt"
    assert "out of memory" in result.reason


@pytest.mark.parametrize(
    ("change", "trained", "state"),
    [
        ({}, False, "as before"),
        ({"relative": 2 * GOOD.relative}, False, "as before"),
        ({"relative": 0.03, "kl_nats": MAX_KL_NATS}, False, "within limits"),
        ({"relative": 0.03, "kl_nats": MAX_KL_NATS * 1.01}, False, "not acceptable"),
        ({"relative": 0.03, "nll_nats": 8.1}, False, "within limits"),  # random weights: the text says nothing
        ({"relative": 0.03, "nll_nats": 8.1}, True, "not acceptable"),
        ({"relative": 0.03, "nll_nats": 8.004}, True, "within limits"),
    ],
)
def test_numbers_are_held_to_those_without_the_switch(change: dict[str, float], trained: bool, state: str) -> None:
    result = check_numbers(GOOD, replace(GOOD, **change), "", trained)
    assert result.state == state
    assert (result.perplexity is None) == (not trained)


def test_the_floor_is_the_farther_end_of_the_control() -> None:
    assert floor_of(Interval(1.0, 0.96, 1.01, 0.95, 24)) == pytest.approx(-log(0.96))
    assert floor_of(Interval(1.0, 0.99, 1.08, 0.95, 24)) == pytest.approx(log(1.08))


def test_a_reason_tells_what_else_changes() -> None:
    result = decide(Interval(1.1, 1.05, 1.15, 0.95, 24), 0.0, FINE, "TTFT 0.90x")
    assert result.reason.endswith("; TTFT 0.90x")
