"""Sequences laid against each other: valid, longest where it is small, and not quadratic where a step is long."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sim.compare.align import EXACT_CELLS, LEVELS, align

WORDS = st.lists(st.sampled_from("abcd"), max_size=24)


def longest(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence, by its definition."""
    row = [0] * (len(b) + 1)
    for x in a:
        new = [0]
        for j, y in enumerate(b):
            new.append(row[j] + 1 if x == y else max(row[j + 1], new[j]))
        row = new
    return row[-1]


@given(WORDS, WORDS)
def test_short_sequences_are_solved_exactly(a: list[str], b: list[str]) -> None:
    pairs = align(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))
    assert len(pairs) == longest(a, b)


def layer(*kernels: str) -> list[str]:
    return list(kernels)


UNFUSED = layer("matmul", "add", "pow", "mean", "rsqrt", "mul", "mul", "attention", "swish", "mul")
FUSED = layer("matmul", "add_rms_norm", "attention", "swiglu")


def test_repeated_layers_of_two_forms_meet_at_what_they_share() -> None:
    a, b = UNFUSED * 5000, FUSED * 5000
    pairs = align(a, b)
    assert len(pairs) == 2 * 5000
    assert all(a[i] == b[j] and i // len(UNFUSED) == j // len(FUSED) for i, j in pairs)


def test_more_layers_of_the_same_are_a_prefix() -> None:
    pairs = align([*UNFUSED * 3000, "head"], [*UNFUSED * 4000, "head"])
    assert len(pairs) == 3000 * len(UNFUSED) + 1
    assert pairs[-1] == (3000 * len(UNFUSED), 4000 * len(UNFUSED))


def test_a_layer_that_is_missing_in_the_middle_is_found() -> None:
    a = [f"{n} {kernel}" for n in range(2000) for kernel in UNFUSED]
    b = a[: 777 * len(UNFUSED)] + a[778 * len(UNFUSED) :]
    assert len(align(a, b)) == len(b)


class Counted(str):
    """A key that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, str(other))


def test_sequences_with_hardly_anything_in_common_take_no_quadratic_time() -> None:
    """Half of one key against a quarter of it, at places that fit nowhere: the worst case for anchors."""
    size = 20_000
    a = [Counted("x" if n % 2 else f"a{n}") for n in range(size)]
    b = [Counted("x" if n % 4 else f"b{n}") for n in range(size)]
    Counted.compared = 0
    pairs = align(a, b)
    assert len(pairs) >= size / 4
    assert Counted.compared < 8 * LEVELS * size + 2 * size / 128 * EXACT_CELLS < size * size


def test_nothing_goes_with_nothing() -> None:
    assert align([], ["a"]) == align(["a"], []) == align(["a"], ["b"]) == []
