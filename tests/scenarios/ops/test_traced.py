"""Sizes as expressions: arithmetic is written down, decisions are guards, and nothing else is answered."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from scenarios.ops.traced import Size, Unhashable, Unknown, Untraceable, formula, guarded, remembered
from scenarios.ops.work import MatmulShape, RowsShape, Work


def test_arithmetic_is_an_expression_of_its_sizes() -> None:
    rows, cached = Size(7, "rows_", {}), Size(5, "had_", {})
    size: Any = -(-rows * 3 // 2) + prod((2, cached, 4)) - sum([rows, cached]) % 5 + (100 - rows) * (9 // cached)
    assert size.value == 11 + 40 - 2 + 93
    test: Callable[..., int] = eval(f"lambda rows_, had_: {size.text}")
    assert [test(7, 5), test(2, 3)] == [142, 3 + 24 - 0 + 98 * 3]


def test_what_is_decided_is_a_guard() -> None:
    guards: dict[str, bool] = {}
    rows = Size(7, "rows_", guards)
    assert rows > 1
    assert rows != 8
    assert max(rows, 3) is rows
    holds = guarded(guards, ("rows_",))
    assert [size for size in range(12) if holds(size)] == [3, 4, 5, 6, 7, 9, 10, 11]
    assert rows != None  # noqa: E711 - as code that compares with no size does


@pytest.mark.parametrize(
    "use",
    [hash, str, repr, int, float, range, "{}".format, operator.index, lambda size: size / 2, lambda size: [0] * size],
)
def test_what_is_no_expression_raises(use: Callable[[Size], object]) -> None:
    with pytest.raises(TypeError):
        use(Size(7, "rows_", {}))


def test_a_program_must_not_depend_on_what_it_is_not_given() -> None:
    for use in (bool, hash, lambda unknown: unknown == 1, lambda unknown: unknown + 1):
        with pytest.raises(TypeError):
            use(Unknown())


def test_a_work_is_made_at_any_size() -> None:
    rows: Any = Size(7, "rows_", {})
    shape = MatmulShape(1, rows, k=64, n=32, dtype="bf16", weight_dtype="bf16", weight_format="nd")
    made = formula(Work("cube", shape, cube_flops=2 * rows * 64 * 32), ("longest_", "rows_"))
    assert made.of == (1,)
    assert made.make(3) == Work("cube", MatmulShape(1, 3, 64, 32, "bf16", "bf16", "nd"), cube_flops=12288)
    with pytest.raises(Untraceable):
        formula(Work("vector", RowsShape(object(), 1)), ("rows_",))  # type: ignore[arg-type]


def test_nothing_is_looked_up_by_a_size() -> None:
    calls = []

    @remembered(maxsize=8)
    def double(size: int) -> int:
        calls.append(size)
        return 2 * size

    assert [double(7), double(7)] == [14, 14]
    assert len(calls) == 1
    traced: Any = double(Size(7, "rows_", {}))  # type: ignore[arg-type]
    assert traced.text == "(2*rows_)" or traced.text == "(rows_*2)"
    with pytest.raises(Unhashable):
        {Size(7, "rows_", {}): 1}
