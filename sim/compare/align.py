"""Two sequences of kernels laid against each other: which of one is which of the other, order kept.

A step repeats its layers, so hardly a kernel is unique and the usual anchors (lines that occur once) are missing; and
fusing halves the kernels, so a search whose cost grows with the difference is quadratic. Anchors here are kernels that
occur equally often on both sides, the n-th with the n-th; between two anchors the same again, and what is small is
solved exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence

Pairs = list[tuple[int, int]]

#: Up to so many cells a pair of pieces is solved exactly, by a table.
EXACT_CELLS = 1 << 14
#: How often a piece is cut at anchors before what is left of it counts as different.
LEVELS = 24


def align(a: Sequence[Hashable], b: Sequence[Hashable], unequal: bool = True) -> Pairs:
    """Positions (i, j) with a[i] == b[j], rising in both: the longest such list for short sequences, a long one else.

    unequal: where no key occurs equally often on both sides, its n-th still goes with the n-th, as long as there are
    two. Takes O(n log n) time for pieces that anchors cut, at worst LEVELS times that.
    """
    pairs: Pairs = []
    todo = [(0, len(a), 0, len(b), LEVELS)]
    while todo:
        low_a, high_a, low_b, high_b, levels = todo.pop()
        while low_a < high_a and low_b < high_b and a[low_a] == b[low_b]:
            pairs.append((low_a, low_b))
            low_a, low_b = low_a + 1, low_b + 1
        while low_a < high_a and low_b < high_b and a[high_a - 1] == b[high_b - 1]:
            high_a, high_b = high_a - 1, high_b - 1
            pairs.append((high_a, high_b))
        if low_a == high_a or low_b == high_b:
            continue
        if (high_a - low_a) * (high_b - low_b) <= EXACT_CELLS:
            pairs += _exact(a, b, range(low_a, high_a), range(low_b, high_b))
            continue
        anchors = _anchors(a, b, range(low_a, high_a), range(low_b, high_b), unequal) if levels else []
        for (i, j), (next_i, next_j) in zip(
            [(low_a - 1, low_b - 1), *anchors], [*anchors, (high_a, high_b)], strict=True
        ):
            if anchors:
                todo.append((i + 1, next_i, j + 1, next_j, levels - 1))
        pairs += anchors
    return sorted(pairs)


def _anchors(a: Sequence[Hashable], b: Sequence[Hashable], in_a: range, in_b: range, unequal: bool) -> Pairs:
    """Pairs of the n-th with the n-th of each key, those that cross left out."""
    places_a, places_b = _places(a, in_a), _places(b, in_b)
    common = [key for key in places_a if key in places_b]
    even = [key for key in common if len(places_a[key]) == len(places_b[key])]
    taken = even or (common if unequal else [])
    return _rising(sorted(pair for key in taken for pair in zip(places_a[key], places_b[key], strict=False)))


def _places(sequence: Sequence[Hashable], where: range) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for i in where:
        places.setdefault(sequence[i], []).append(i)
    return places


def _rising(pairs: Pairs) -> Pairs:
    """The longest part of `pairs` (in order of their first number) whose second number rises too."""
    ends: list[int] = []  # the smallest second number that ends a rising list of each length
    at: list[int] = []  # and the pair it belongs to
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        before.append(at[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        at[length : length + 1] = [number]
    chain: Pairs = []
    number = at[-1] if at else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


def _exact(a: Sequence[Hashable], b: Sequence[Hashable], in_a: range, in_b: range) -> Pairs:
    """The longest common subsequence of two short pieces, by the table of its lengths."""
    width = len(in_b)
    rows = [[0] * (width + 1)]
    for i in reversed(in_a):
        below, row = rows[-1], [0] * (width + 1)
        key = a[i]
        for column in range(width - 1, -1, -1):
            if key == b[in_b[column]]:
                row[column] = below[column + 1] + 1
            else:
                row[column] = max(below[column], row[column + 1])
        rows.append(row)
    rows.reverse()
    pairs: Pairs = []
    line = column = 0
    while line < len(in_a) and column < width:
        if a[in_a[line]] == b[in_b[column]]:
            pairs.append((in_a[line], in_b[column]))
            line, column = line + 1, column + 1
        elif rows[line + 1][column] >= rows[line][column + 1]:
            line += 1
        else:
            column += 1
    return pairs
