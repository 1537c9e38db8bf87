"""Every reference kernel predicted by fits that have not seen it: whole shapes, models or stacks held out.

All numbers of kernels are fitted again in each fold, vector laws and blocks of cube kernels alike, and what stands
behind a prediction (`sim.kernel.ranges`) is that of the fold's own rows. Not fitted again, in no fold: the form of the
laws, the tiling, and what the profiles call measured, spec or assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from scenarios.ops.catalogue import family_of
from scenarios.ops.families import Family
from scenarios.records import dataclass
from sim.fitting.kernels import FOLDS, Block, Sample, fit, program_name, read_samples, read_torchair, residuals
from sim.fitting.ranges import boxes_of
from sim.fitting.shipped import CUBE, VECTOR_HARDWARE
from sim.fitting.vector import VectorRow, fit_laws, vector_rows
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.kernel.ranges import ANY, Box, Support, support_of
from sim.kernel.ranges import program_name as box_name

#: What is held out; `seen` holds nothing out.
By = Literal["seen", "shape", "model", "stack", "kind"]
WAYS: tuple[By, ...] = ("seen", "shape", "model", "stack", "kind")


@dataclass(frozen=True, slots=True)
class Judged:
    """One row with ln(predicted / measured) of a fit without it, and what stood behind that prediction."""

    by: By
    sample: Sample
    program: str
    error: float
    support: Support

    @property
    def family(self) -> Family:
        return family_of(self.sample.work.program)

    @property
    def stack(self) -> str:
        """`A3` or `910B2` for kernels of networks, by the chip that they ran on; `alone` for isolated ones."""
        if self.sample.stack == "alone":
            return "alone"
        return "A3" if self.sample.hardware.startswith("atlas_a3") else "910B2"


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows that kernels are fitted to. vector: the law's view of a sample; blocks: the cube samples of each."""

    samples: tuple[Sample, ...]
    vector: Mapping[int, VectorRow]
    blocks: tuple[tuple[Block, tuple[int, ...]], ...]
    bases: Mapping[str, HardwareProfile]


def all_rows() -> Rows:
    """The reference rows on A2 and A3, by index into `samples`."""
    bases = {name: load_hardware(name) for name in VECTOR_HARDWARE}
    samples = (
        *read_samples(hardware=VECTOR_HARDWARE),
        *read_torchair(),
        *read_samples(hardware=("atlas_a2_910b2",), use="alone"),
    )
    vector = {i: row for i, sample in enumerate(samples) for row in vector_rows([sample], bases)}
    cube = [i for i, s in enumerate(samples) if i not in vector and s.stack != "alone" and s.work.unit != "ai_cpu"]
    names = {i: program_name(samples[i], bases[samples[i].hardware]) for i in cube}
    blocks = tuple((block, tuple(i for i in cube if names[i] in block.programs)) for block in CUBE)
    return Rows(samples, vector, blocks, bases)


def judged(rows: Rows, by: By) -> list[Judged]:
    """Each row predicted once. Rows of the only group there is (a kind on one stack, say) have no such prediction,
    nor have products and attention whose whole kind is held out."""
    result = []
    groups = sorted({_group(rows, i, by) for i in (*rows.vector, *(i for _, cube in rows.blocks for i in cube))})
    folds = [groups[n::FOLDS] for n in range(FOLDS)] if by in ("shape", "kind") else [[group] for group in groups]
    for fold in folds if by != "seen" else [[]]:
        out = {i for i in range(len(rows.samples)) if _group(rows, i, by) in fold}
        left = out if by != "seen" else set(range(len(rows.samples)))
        boxes = boxes_of(s for i, s in enumerate(rows.samples) if i not in out)
        for i, error in {**_vector(rows, out, left), **({} if by == "kind" else _cube(rows, out, left))}.items():
            support = _support(rows.samples[i], boxes)
            result.append(Judged(by, rows.samples[i], box_name(rows.samples[i].work), error, support))
    return result


def _group(rows: Rows, index: int, by: By) -> str:
    sample = rows.samples[index]
    if by == "kind":
        return rows.vector[index].kind if index in rows.vector else "cube"
    return "" if by == "seen" else str(getattr(sample, by))


def _support(sample: Sample, boxes: Mapping[tuple[str, str], Box]) -> Support:
    known = {key for key, _ in boxes}
    # A device of which the fold has no row is no calibrated one, but one that nothing was fitted on.
    here = boxes if sample.hardware in known else {**boxes, (sample.hardware, ""): Box(1, ())}
    return support_of(sample.work, sample.hardware, here) or Support("never")


def _vector(rows: Rows, out: set[int], left: set[int]) -> dict[int, float]:
    asked = [i for i in left if i in rows.vector]
    kept = [row for i, row in rows.vector.items() if i not in out]
    if not asked or not kept:
        return {}
    laws = fit_laws(kept)
    return {i: float(np.log(laws.us(rows.vector[i]) / rows.vector[i].us)) for i in asked}


def _cube(rows: Rows, out: set[int], left: set[int]) -> dict[int, float]:
    errors: dict[int, float] = {}
    for block, members in rows.blocks:
        kept, asked = [i for i in members if i not in out], [i for i in members if i in left]
        if not asked or not kept:
            continue
        values = fit(block, [rows.samples[i] for i in kept], rows.bases)
        missed = residuals(values, [rows.samples[i] for i in asked], rows.bases)
        errors.update(zip(asked, missed, strict=True))
    return errors


def networks(items: Sequence[Judged]) -> list[Judged]:
    """Those of kernels in networks, which is what a prediction is asked for."""
    return [item for item in items if item.stack != "alone"]


__all__ = ["ANY", "WAYS", "By", "Judged", "Rows", "all_rows", "judged", "networks"]
