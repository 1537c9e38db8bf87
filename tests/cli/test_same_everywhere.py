"""The same answer to the last bit on any Python: from 3.12 on, sum() of floats is compensated, before it was not."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from math import fsum
from typing import Any

import pytest

from scenarios.loader import load_scenario
from sim.predict import steps
from sim.predict.predict import cold_start
from sim.predict.scenario_result import first_result
from sim.report.files import to_json

SUM = builtins.sum


def plain(numbers: Iterable[Any], /, start: Any = 0) -> Any:
    """Sum as Python 3.11 has it: one rounding an addition."""
    for number in numbers:
        start = start + number
    return start


def compensated(numbers: Iterable[Any], /, start: Any = 0) -> Any:
    """As 3.12 has it, for floats."""
    listed = list(numbers)
    return fsum([start, *listed]) if any(isinstance(number, float) for number in listed) else SUM(listed, start)


@pytest.mark.parametrize("scenario", ["qwen3_8b_910b2_eager", "qwen3_8b_decode"])
def test_a_result_is_the_same_whatever_sum_rounds(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def text(summing: Callable[..., Any]) -> str:
        for remembered in (*vars(steps).values(), cold_start):
            getattr(remembered, "cache_clear", lambda: None)()
        with monkeypatch.context() as patched:
            patched.setattr(builtins, "sum", summing)
            return to_json(first_result(load_scenario(scenario)).result)

    assert text(plain) == text(compensated)


def test_the_two_sums_differ_where_it_matters() -> None:
    assert plain([0.1] * 10) != compensated([0.1] * 10) == 1.0
