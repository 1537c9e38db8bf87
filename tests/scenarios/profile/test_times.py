"""Times as integer nanoseconds from their digits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.profile.read.times import NotATime, all_ns_of_us, ns_of_us, ns_of_us_numbers


@given(st.lists(st.integers(0, 2**61), min_size=1, max_size=20))
def test_digits_come_back_to_the_nanosecond(times_ns: list[int]) -> None:
    texts = [f"{ns // 1000}.{ns % 1000:03d}" for ns in times_ns]
    assert all_ns_of_us(texts).tolist() == times_ns
    assert [ns_of_us(f" {text}\t") for text in texts] == times_ns


def test_forms_may_differ_from_text_to_text() -> None:
    texts = ["1736405443863674.401", "1736405443863674.4", "5", "0.0005", "1e3", "12345.6789"]
    assert all_ns_of_us(texts).tolist() == [1736405443863674401, 1736405443863674400, 5000, 0, 1_000_000, 12_345_679]
    # One length, the point elsewhere.
    assert all_ns_of_us(["123.456", "1234.56", "12.3456"]).tolist() == [123_456, 1_234_560, 12_346]


@pytest.mark.parametrize(
    "text", ["-1", "nan", "NaN", "inf", "-0.001", "", "abc", "1,5", "9" * 30, "1.5.2", "12345.-67"]
)
def test_what_is_no_time_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(NotATime):
        ns_of_us(text)
    with pytest.raises(NotATime) as error:
        all_ns_of_us(["1.000", text])
    assert error.value.args[1] == 1


def test_durations_are_rounded_to_the_nanosecond() -> None:
    assert ns_of_us_numbers([53.742, 79089.52021875, 0, 1e-9, "0.020"]).tolist() == [53742, 79089520, 0, 0, 20]


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e300, -1e-9])
def test_durations_that_are_none_are_refused_with_their_place(value: float) -> None:
    with pytest.raises(NotATime) as error:
        ns_of_us_numbers([1.0, 2.0, value])
    assert error.value.args[1] == 2
