"""Rounding against numpy's float16 and bfloat16 worked out by hand."""

import numpy as np
import pytest

from app_pages.learn.rounding import matmul, relative_error, rounded


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        (1.0, 1.0),
        (1 + 2**-8, 1.0),  # half a step above 1: the even neighbour is below
        (1 + 3 * 2**-8, 1 + 2**-6),  # half a step: the even neighbour is above
        (1 + 2**-8 + 2**-20, 1 + 2**-7),  # beyond half
        (-1 - 3 * 2**-8, -1 - 2**-6),
        (0.0, 0.0),
        (float("inf"), float("inf")),
        (3.4e38, float("inf")),  # beyond the largest bfloat16, 3.3895e38
    ],
)
def test_bf16_ties_go_to_even(value: float, nearest: float) -> None:
    assert rounded(np.array([value], np.float32), "bf16")[0] == np.float32(nearest)


def test_bf16_keeps_not_a_number() -> None:
    assert np.isnan(rounded(np.array([np.nan], np.float32), "bf16")[0])


def test_fp16_is_numpys() -> None:
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    assert np.array_equal(rounded(x, "fp16"), x.astype(np.float16).astype(np.float32))
    assert np.array_equal(rounded(x, "fp32"), x)


def test_rounding_twice_is_rounding_once() -> None:
    x = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    once = rounded(x, "bf16")
    assert np.array_equal(rounded(once, "bf16"), once)
    assert relative_error(once, x.astype(np.float64)) <= 2**-8


def test_a_product_rounds_its_inputs_and_its_result() -> None:
    a, b = np.array([[1 + 2**-8]], np.float32), np.array([[3.0]], np.float32)
    assert matmul(a, b, "bf16")[0, 0] == 3.0
    assert matmul(a, b, "fp32")[0, 0] == np.float32(3 * (1 + 2**-8))
