"""Rows cut into pieces: they sum to the whole and are as even as whole units allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.ops.pieces import row_pieces


@pytest.mark.parametrize(
    ("asked", "pieces"),
    [
        ((8192, 4, 128), (2048,) * 4),
        ((1000, 4, 16), (256, 256, 256, 232)),  # 63 blocks of 16 rows, the last of 8
        ((300, 4, 128), (128, 128, 44)),  # three tiles are three pieces
        ((5, 16, 128), (5,)),
        ((7, 3, 1), (3, 2, 2)),
    ],
)
def test_known_cuts(asked: tuple[int, int, int], pieces: tuple[int, ...]) -> None:
    assert row_pieces(*asked) == pieces


@given(st.integers(1, 10_000), st.integers(1, 64), st.integers(1, 300))
def test_no_row_is_lost_and_no_piece_is_much_larger(rows: int, pieces: int, unit: int) -> None:
    sizes = row_pieces(rows, pieces, unit)
    assert sum(sizes) == rows
    assert 1 <= len(sizes) <= pieces
    assert all(size > 0 for size in sizes)
    assert all(size % unit == 0 for size in sizes[:-1])
    assert max(sizes) - min(sizes[:-1] or sizes) <= unit


@pytest.mark.parametrize("asked", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_cut_is_an_error(asked: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        row_pieces(*asked)
