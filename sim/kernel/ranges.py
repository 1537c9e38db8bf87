"""How much less sure a kernel's price is than its family's, by what its program's numbers were fitted to.

`ranges.csv` has the box of fitted sizes of each program on each device, and how many shapes it holds
(`python -m sim.fitting.ranges` writes it). `spreads.csv` has what rows that a fit had not seen say about it
(`python -m sim.fitting.widths`), as spreads of the time's logarithm:

* few: n shapes fix a program's two or three numbers no better than few / sqrt(n);
* octave: for each factor of two that the size lies outside the box, on the side that is farthest out;
* elsewhere: the program was fitted on another device only; never: on none.

A program whose residuals are larger or smaller than its family's has a share of the family's spread. So has a whole
step, of the width that its kernels and calls imply: `step`, by device (`python -m sim.fitting.steps`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache, lru_cache
from math import hypot, log2, sqrt
from pathlib import Path
from typing import Literal

from scenarios.ops.catalogue import family_of
from scenarios.ops.families import Family
from scenarios.ops.work import AttentionShape, FlatShape, GroupedShape, MatmulShape, RowsShape, Work
from scenarios.records import dataclass
from sim.kernel.attention import is_decode
from sim.kernel.vector_tiling import common_program

RANGES_FILE = Path(__file__).parent / "ranges.csv"
SPREADS_FILE = Path(__file__).parent / "spreads.csv"

MAX_OCTAVES = 6.0

#: The device whose box holds the fitted rows of all devices.
ANY = "any"

Known = Literal["here", "elsewhere", "never"]


@dataclass(frozen=True, slots=True)
class Box:
    """Fitted sizes of one program: how many shapes, and (smallest, largest) of each of its sizes."""

    shapes: int
    sides: tuple[tuple[int, int], ...]

    @classmethod
    def around(cls, sizes: Iterable[tuple[int, ...]]) -> Box:
        """The box of some shapes' sizes."""
        distinct = set(sizes)
        return cls(len(distinct), tuple((min(side), max(side)) for side in zip(*distinct, strict=True)))

    def octaves_outside(self, sizes: tuple[int, ...]) -> float:
        """Factors of two that `sizes` lie outside, on the side that is farthest out."""
        away = [
            max(log2(low / size), log2(size / high), 0.0) for size, (low, high) in zip(sizes, self.sides, strict=True)
        ]
        return min(MAX_OCTAVES, max(away, default=0.0))


@dataclass(frozen=True, slots=True)
class Support:
    """What stands behind a price: where the program was fitted, on how many shapes, and how far outside of them."""

    known: Known
    shapes: int = 0
    octaves: float = 0.0


@dataclass(frozen=True, slots=True)
class Spreads:
    """What `spreads.csv` says. shared: correlation of the errors of two programs of one stack in one model. shares: of
    the family's spread, by program. steps: of the width of a step, by device."""

    few: float
    octave: float
    never: float
    shared: float
    elsewhere: Mapping[Family, float]
    shares: Mapping[str, float]
    steps: Mapping[str, float] = field(default_factory=dict)

    def extra(self, support: Support, family: Family) -> float:
        """What joins the family's spread, as the root of the sum of squares."""
        if support.known == "never":
            return self.never
        inside = hypot(self.few / sqrt(support.shapes), self.octave * support.octaves)
        return hypot(inside, self.elsewhere[family]) if support.known == "elsewhere" else inside


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


def program_name(work: Work) -> str:
    """The program whose box `work` is held against: kinds that run one program share its box."""
    shape = work.shape
    if isinstance(shape, AttentionShape) and work.program == "attention":
        if not all(is_decode(g) for g in shape.groups):
            return "attention_prefill"
        return "static_attention" if shape.static_tokens else "attention"
    return common_program(work.program)


def support_of(work: Work, device: str, boxes: Mapping[tuple[str, str], Box]) -> Support | None:
    """What stands behind the price of `work` on `device`; None for work whose time depends on no
    size or on no program.

    A device that `boxes` do not name has other evidence behind it (a calibration, a data sheet), which its own
    residuals express: only the distance from all fitted sizes counts.
    """
    sizes = sizes_of(work)
    if not sizes or work.unit == "copy":  # DMA engines stream, whatever the program
        return None
    name = program_name(work)
    anywhere, own = boxes.get((ANY, name)), boxes.get((device, name))
    if anywhere is None or len(anywhere.sides) != len(sizes):
        return Support("never")
    if own is not None:
        return Support("here", own.shapes, own.octaves_outside(sizes))
    known: Known = "elsewhere" if any(held == device for held, _ in boxes) else "here"
    return Support(known, anywhere.shapes, anywhere.octaves_outside(sizes))


@lru_cache(maxsize=65536)
def extra_sigma(work: Work, device: str) -> float:
    """Spread beyond that of the program itself, of ln(measured / predicted). device: the profile's name."""
    support = support_of(work, device, fitted_boxes())
    return spreads().extra(support, family_of(work.program)) if support else 0.0


def share_of(program: str) -> float:
    """Spread of a program's residuals over its family's; 1 where too few rows say otherwise. program: also the name of
    a kind of the catalogue."""
    return spreads().shares.get(common_program(program), 1.0)


def step_share(device: str) -> float:
    """What a measured step needs of the width that its kernels and calls imply; 1 on devices without evidence."""
    return spreads().steps.get(device, 1.0)


@cache
def fitted_boxes() -> Mapping[tuple[str, str], Box]:
    """The boxes by device and program."""
    with RANGES_FILE.open(newline="") as file:
        return {(row["device"], row["program"]): _box(row) for row in csv.DictReader(file)}


def _box(row: dict[str, str]) -> Box:
    sides = [side.split("-") for side in row["sizes"].split()]
    return Box(int(row["shapes"]), tuple((int(low), int(high)) for low, high in sides))


@cache
def spreads() -> Spreads:
    """The fitted spreads."""
    with SPREADS_FILE.open(newline="") as file:
        rows = {(row["term"], row["of"]): float(row["value"]) for row in csv.DictReader(file)}
    families: tuple[Family, ...] = ("matmul", "attention", "vector")
    return Spreads(
        few=rows["few", ""],
        octave=rows["octave", ""],
        never=rows["never", ""],
        shared=rows["shared", ""],
        elsewhere={family: rows["elsewhere", family] for family in families},
        shares={name: value for (term, name), value in rows.items() if term == "share"},
        steps={name: value for (term, name), value in rows.items() if term == "step"},
    )
