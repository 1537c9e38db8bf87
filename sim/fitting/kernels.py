"""Fit a block of parameters to measured kernels.

Robust least squares on logarithms; whole shapes are held out; intervals come from a bootstrap over shapes. scipy is
imported only when a fit runs.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log

from scenarios.ops.catalogue import params_name
from scenarios.ops.work import Work
from scenarios.records import dataclass
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.code import code_of_row
from sim.accuracy.rows.files import read_kernels, rows_of_csv
from sim.accuracy.rows.op_types import Unpriced, work_of_row
from sim.fitting.robust import fit_logs, intervals
from sim.hardware.numbers import with_numbers
from sim.hardware.profile import HardwareProfile
from sim.kernel.price import params_of, price
from sim.kernel.time import Code

FOLDS = 8
#: Reference files of kernels.
FILES = ("kernels", "kernels_910b2_cube")

#: Physical limits; other parameters may be anything above 0.
LIMITS: dict[str, tuple[float, float]] = {
    "memory.hbm_gbps": (1000, 1850),
    "memory.nz_flat_share": (0.3, 1),
    "memory.nd_odd_share": (0.3, 1),
    "kernel.overlap_power": (1, 8),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One reference row. shape, model, stack: what it is held out with. code, resident: as `sim.kernel.price.price`
    takes them."""

    hardware: str
    op_type: str
    shape: str
    work: Work
    us: float
    code: Code
    resident: bool
    model: str = ""
    stack: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """Parameters (dotted names of the profile) with their starts, and the programs on whose rows they are fitted."""

    name: str
    parameters: Mapping[str, float]
    programs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Fit of one block.

    Values, their 90 % intervals, and log(predicted / measured) of each row when its shape was held out.
    """

    block: Block
    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    errors: list[tuple[Sample, float]]


def read_samples(hardware: Iterable[str] = (), use: str = "yes") -> list[Sample]:
    """The rows of the reference set that take part in fits.

    hardware: only these (default all). use: "yes" for kernels in a network and their replays, "alone" for vendor
    kernels that a benchmark ran alone, again and again, each time on data that is not in L2.
    """
    wanted = frozenset(hardware)
    samples = []
    for row in _rows():
        if row["fit"] != use or (wanted and row["hardware"] not in wanted):
            continue
        try:
            work = work_of_row(row["op_type"], row["input_shapes"], row["dtype"], int(row["kv_tokens"] or 0))
        except Unpriced:
            continue
        replayed = row["isolated"] == "yes"
        if use == "alone":
            work = replace(work, cold_read_bytes=work.cold_read_bytes + work.warm_read_bytes, warm_read_bytes=0)
        samples.append(
            Sample(
                hardware=row["hardware"],
                op_type=row["op_type"],
                shape=f"{row['op_type']} {row['input_shapes']}",
                work=work,
                us=float(row["mean_us"]),
                code="near" if replayed else _code_of(row),
                resident=replayed and use != "alone",
                model=row["model"],
                stack="alone" if use == "alone" else f"{row['hardware']}, {row['software']}",
            )
        )
    return samples


def _code_of(row: Mapping[str, str]) -> Code:
    return code_of_row(row["op_type"], row["input_shapes"], row["mode"], model=row["model"])


def _rows() -> Iterator[dict[str, str]]:
    for name in FILES:
        with reference_csv(name).open(newline="") as file:
            yield from csv.DictReader(file)


def read_torchair() -> list[Sample]:
    """The rows of another stack that take part in fits: single kernels, their shapes printed."""
    samples = []
    path = reference_csv("kernels_torchair")
    for row, line in zip(read_kernels(path), rows_of_csv(path, ("note",)), strict=True):
        conditions = line[1]
        if (
            not (row.scored and row.fitted)
            or conditions["note"] == "shape inferred"
            or not row.input_shapes.strip("; ")
        ):
            continue
        try:
            work = work_of_row(row.op_type, row.input_shapes, row.dtypes, row.kv_tokens, row.output_shapes)
        except Unpriced:
            continue
        shape = f"{row.op_type} {row.input_shapes}"
        samples.append(
            Sample(
                row.hardware,
                row.op_type,
                shape=shape,
                work=work,
                us=row.mean_us,
                code=row.code,
                resident=False,
                stack="torchair",
                model=conditions["model"],
            )
        )
    return samples


def program_name(sample: Sample, hw: HardwareProfile) -> str:
    """The program of the profile that prices `sample`."""
    name, params = params_name(sample.work.program), params_of(sample.work, hw)
    return name if hw.programs.get(name) is params else next(n for n, p in hw.programs.items() if p is params)


def residuals(
    values: Mapping[str, float], samples: Sequence[Sample], bases: Mapping[str, HardwareProfile]
) -> list[float]:
    """log(predicted / measured) of each sample with `values` in its hardware."""
    hardware = {name: with_numbers(hw, values) for name, hw in bases.items()}
    return [
        log(price.__wrapped__(s.work, hardware[s.hardware], s.code, s.resident).duration_ns / 1000 / s.us)
        for s in samples
    ]


def fit(block: Block, samples: Sequence[Sample], bases: Mapping[str, HardwareProfile]) -> dict[str, float]:
    """The block's parameters that fit `samples` best; fitted as logarithms, so they stay positive."""
    limits = {name: LIMITS.get(name, (1e-5, 1e9)) for name in block.parameters}
    return fit_logs(lambda values: residuals(values, samples, bases), block.parameters, limits)


def held_out(
    block: Block, samples: Sequence[Sample], bases: Mapping[str, HardwareProfile], by: str = "shape"
) -> list[tuple[Sample, float]]:
    """(sample, log(predicted / measured)) with each shape, model or stack predicted by a fit that has not seen it.

    by: the field of Sample whose values are held out, shapes in FOLDS groups, models and stacks one by one.
    """
    groups = sorted({getattr(s, by) for s in samples})
    folds = min(FOLDS, len(groups)) if by == "shape" else len(groups)
    result: list[tuple[Sample, float]] = []
    for fold in range(folds if folds > 1 else 0):
        out = set(groups[fold::folds])
        left = [s for s in samples if getattr(s, by) in out]
        values = fit(block, [s for s in samples if getattr(s, by) not in out], bases)
        result += zip(left, residuals(values, left, bases), strict=True)
    return result


def interval(
    block: Block, samples: Sequence[Sample], bases: Mapping[str, HardwareProfile], draws: int
) -> dict[str, tuple[float, float]]:
    """5th and 95th percentile of each parameter over fits to shapes drawn with replacement.

    Shapes and not rows are drawn: rows of one shape are not independent, and intervals from drawn rows are far too
    narrow.
    """
    by_shape: dict[str, list[Sample]] = {}
    for sample in samples:
        by_shape.setdefault(sample.shape, []).append(sample)
    shapes, generator = sorted(by_shape), random.Random(0)
    fits = []
    for _ in range(draws):
        drawn = [s for shape in generator.choices(shapes, k=len(shapes)) for s in by_shape[shape]]
        fits.append(fit(block, drawn, bases))
    return intervals(fits)
