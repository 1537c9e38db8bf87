"""How far a kernel lies from those that its program's numbers were fitted to, as a spread of its time's logarithm.

`ranges.csv` has the box of fitted sizes of each program on each device, and how many shapes it holds
(`python -m sim.fitting.ranges` writes it). Three things make a price less sure than the residuals of fitted shapes say:

* few shapes: n of them fix a program's two or three numbers no better than FEW_SIGMA / sqrt(n);
* sizes outside the box: OCTAVE_SIGMA for each factor of two, on the side that is farthest out;
* a program that was fitted on another device only (TRANSFER_SIGMA, by family), or on none (UNKNOWN_SIGMA).

The constants are assumed from errors of rows that no fit had seen, with one law a program and true cores: 90 % of the
errors lie within a factor exp(0.29) for new shapes where a program has about ten, exp(0.60) where it has about four and
they lie apart, exp(0.46) for known programs of a stack that nothing was fitted to, exp(0.8 to 1.1) for programs that
were never seen.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import hypot, log2, sqrt
from pathlib import Path

from scenarios.ops.catalogue import family_of, params_name
from scenarios.ops.families import Family
from scenarios.ops.work import AttentionShape, FlatShape, GroupedShape, MatmulShape, RowsShape, Work

RANGES_FILE = Path(__file__).parent / "ranges.csv"

FEW_SIGMA = 0.15
OCTAVE_SIGMA = 0.05
MAX_OCTAVES = 6.0
TRANSFER_SIGMA: Mapping[Family, float] = {"matmul": 0.08, "attention": 0.14, "vector": 0.17}
UNKNOWN_SIGMA = 0.35

#: The device whose box holds the fitted rows of all devices.
ANY = "any"


@dataclass(frozen=True, slots=True)
class Box:
    """Fitted sizes of one program: how many shapes, and (smallest, largest) of each of its sizes."""

    shapes: int
    sides: tuple[tuple[int, int], ...]

    def octaves_outside(self, sizes: tuple[int, ...]) -> float:
        """Factors of two that `sizes` lie outside, on the side that is farthest out."""
        away = [
            max(log2(low / size), log2(size / high), 0.0) for size, (low, high) in zip(sizes, self.sides, strict=True)
        ]
        return min(MAX_OCTAVES, max(away, default=0.0))

    def extra_sigma(self, sizes: tuple[int, ...]) -> float:
        """What few shapes, and sizes outside them, add."""
        return hypot(FEW_SIGMA / sqrt(self.shapes), OCTAVE_SIGMA * self.octaves_outside(sizes))


def sizes_of(work: Work) -> tuple[int, ...]:
    """What a program's time depends on: rows and columns, or elements, or queries and keys; () where nothing does."""
    shape = work.shape
    if isinstance(shape, MatmulShape):
        return shape.batch * shape.m, shape.k, shape.n
    if isinstance(shape, GroupedShape):
        return max(1, sum(shape.loads)), shape.k, shape.n
    if isinstance(shape, RowsShape):
        return shape.rows, shape.cols
    if isinstance(shape, FlatShape):
        return (shape.elements,)
    if isinstance(shape, AttentionShape):
        return sum(g.count * g.query for g in shape.groups), max(g.kv_len for g in shape.groups)
    return ()


@lru_cache(maxsize=65536)
def extra_sigma(work: Work, device: str) -> float:
    """Spread beyond that of fitted shapes, of ln(measured / predicted). device: the profile's name.

    A device that is not in the file has other evidence behind it (a calibration, a data sheet), which its own residuals
    express: only the distance from all fitted sizes counts.
    """
    sizes, boxes = sizes_of(work), fitted_boxes()
    name = params_name(work.program)
    if not sizes:
        return 0.0
    anywhere = boxes.get((ANY, name))
    if anywhere is None or len(anywhere.sides) != len(sizes):
        return UNKNOWN_SIGMA
    elsewhere = hypot(anywhere.extra_sigma(sizes), TRANSFER_SIGMA[family_of(work.program)])
    own = boxes.get((device, name))
    if own is not None:
        return min(elsewhere, own.extra_sigma(sizes))
    return elsewhere if any(held == device for held, _ in boxes) else anywhere.extra_sigma(sizes)


@cache
def fitted_boxes() -> Mapping[tuple[str, str], Box]:
    """The boxes by device and program."""
    with RANGES_FILE.open(newline="") as file:
        return {(row["device"], row["program"]): _box(row) for row in csv.DictReader(file)}


def _box(row: dict[str, str]) -> Box:
    sides = [side.split("-") for side in row["sizes"].split()]
    return Box(int(row["shapes"]), tuple((int(low), int(high)) for low, high in sides))
