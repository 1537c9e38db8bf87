"""Lesson: a column-parallel product concatenates, a row-parallel one sums; the sum's order changes the last bits.

columns: Y = [X W0, X W1]        rows: Y = X0 W0 + X1 W1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from app_pages.learn.rounding import Precision, matmul, relative_error, rounded

Split = Literal["columns", "rows"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A product small enough to look at: inputs, the parts that each rank holds and makes, and their joined result."""

    x: npt.NDArray[np.float32]
    w: npt.NDArray[np.float32]
    x_parts: tuple[npt.NDArray[np.float32], ...]
    w_parts: tuple[npt.NDArray[np.float32], ...]
    y_parts: tuple[npt.NDArray[np.float32], ...]
    y: npt.NDArray[np.float32]
    whole: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rounding:
    """A product of real size over `ranks`. split_error, whole_error: against float64, relative to the largest.
    apart: largest difference between the split product and the whole one; equal_share: values that are bit for bit
    equal."""

    split: Split
    ranks: int
    split_error: float
    whole_error: float
    apart: float
    equal_share: float


def shown(split: Split, ranks: int, rows: int = 2, k: int = 8, n: int = 8, seed: int = 0) -> Shown:
    """Integers, so that every value can be checked by hand; columns or rows of W over `ranks`."""
    random = np.random.default_rng(seed)
    x = random.integers(-3, 4, (rows, k)).astype(np.float32)
    w = random.integers(-3, 4, (k, n)).astype(np.float32)
    x_parts, w_parts = _parts(x, w, split, ranks)
    y_parts = tuple(a @ b for a, b in zip(x_parts, w_parts, strict=True))
    return Shown(
        x=x, w=w, x_parts=x_parts, w_parts=w_parts, y_parts=y_parts, y=joined(y_parts, split, "fp32"), whole=x @ w
    )


def rounding(split: Split, ranks: int, precision: Precision, rows: int, k: int, n: int, seed: int = 0) -> Rounding:
    """The same at real size with values of `precision`: parts are rounded before they are joined, as a collective
    carries them."""
    random = np.random.default_rng(seed)
    x = rounded(random.normal(size=(rows, k)), precision)
    w = rounded(random.normal(size=(k, n)) / np.sqrt(k), precision)
    x_parts, w_parts = _parts(x, w, split, ranks)
    y = joined(tuple(matmul(a, b, precision) for a, b in zip(x_parts, w_parts, strict=True)), split, precision)
    whole = matmul(x, w, precision)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    return Rounding(
        split,
        ranks,
        relative_error(y, exact),
        relative_error(whole, exact),
        float(np.max(np.abs(y - whole))),
        float(np.mean(y == whole)),
    )


def joined(parts: tuple[npt.NDArray[np.float32], ...], split: Split, precision: Precision) -> npt.NDArray[np.float32]:
    """What the ranks' results are together. Sums go round in a ring, each rounded to `precision`."""
    if split == "columns":
        return np.concatenate(parts, -1)
    total = parts[0]
    for part in parts[1:]:
        total = rounded(total + part, precision)
    return total


def _parts(
    x: npt.NDArray[np.float32], w: npt.NDArray[np.float32], split: Split, ranks: int
) -> tuple[tuple[npt.NDArray[np.float32], ...], tuple[npt.NDArray[np.float32], ...]]:
    if split == "columns":
        return (x,) * ranks, tuple(np.array_split(w, ranks, axis=1))
    return tuple(np.array_split(x, ranks, axis=1)), tuple(np.array_split(w, ranks, axis=0))
