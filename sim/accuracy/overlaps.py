"""Measured products with their all-reduce, one after the other and on two streams, held against predictions.

A row gives the product, the collective alone and both times together. The overlap is predicted twice: from the profile
alone, and with the measured times of the two parts in place of the profile's, which judges the overlap by itself (its
start-ups, its contention, what stays uncovered) and not the price of a product or of a link.

The sources overlap tile by tile inside two kernels; here rows are cut into pieces as `overlap.comm_chunks` does it, and
the fastest number of pieces stands for the source's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from math import exp
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError
from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.ops.program import DTYPE_BITS, DType, Op, Tensor
from scenarios.passes.collectives import cut_pair, rows_of_pieces
from scenarios.records import dataclass
from sim.accuracy.roofline import roofline_us
from sim.accuracy.rows.files import positive, rows_of_csv, whole
from sim.accuracy.score import Scored, Skipped, errors
from sim.hardware.profile import HardwareError, HardwareProfile, load_hardware
from sim.kernel.price import price
from sim.predict.uncertainty import Z90
from sim.step import engine
from sim.step.plan import Launch, Plan, Replay
from sim.step.priced import scaled

#: Numbers of pieces that are tried.
PIECES = (1, 2, 4, 8, 16)
COLUMNS = (
    "id", "hardware", "ranks", "m", "k", "n", "dtype", "product_us", "collective_us", "sequential_us", "overlapped_us",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Times:
    """Product and collective alone, one after the other, and overlapped; us."""

    product_us: float
    collective_us: float
    sequential_us: float
    overlapped_us: float


@dataclass(frozen=True, slots=True)
class PairRow:
    """[m, k] x [k, n] on each of `ranks` ranks and the all-reduce of its output, as measured. not_modelled: why no
    switch expresses it, or empty."""

    id: str
    hardware: str
    ranks: int
    m: int
    k: int
    n: int
    dtype: DType
    times: Times
    scored: bool
    not_modelled: str = ""


@dataclass(frozen=True, slots=True)
class PricedPair:
    """A row with what is predicted for it; us. from_parts_us: the overlapped time if product and collective took their
    measured times alone. pieces: of the prediction from the profile."""

    row: PairRow
    times: Times
    from_parts_us: float
    pieces: int
    scored: Scored


def read_overlaps(path: Path) -> Iterator[PairRow]:
    """The rows of an overlaps file. Raises ScenarioError with file:line for what is missing or no number."""
    for line, row in rows_of_csv(path, COLUMNS):
        where = f"{path}:{line}"
        reason = row.get("not_modelled") or ""
        if row["dtype"] not in DTYPE_BITS:
            raise ScenarioError([f"{where}: dtype: {row['dtype']!r} is no type; known: {', '.join(DTYPE_BITS)}"])
        times = [1.0 if reason else positive(row[name], where, name) for name in COLUMNS[7:]]
        ranks, m, k, n = (whole(row[name], where, name) for name in COLUMNS[2:6])
        if not ranks * m * k * n:
            raise ScenarioError([f"{where}: ranks, m, k and n must be 1 or more"])
        scored = row.get("scored") != "no"
        yield PairRow(
            row["id"],
            row["hardware"],
            ranks=ranks,
            m=m,
            k=k,
            n=n,
            dtype=row["dtype"],
            times=Times(*times),
            scored=scored,
            not_modelled=reason,
        )


def price_overlaps(rows: Iterable[PairRow], hardware: str = "") -> tuple[list[PricedPair], list[Skipped]]:
    """Price measured pairs; `hardware` replaces the profile that the rows name."""
    priced: list[PricedPair] = []
    skipped: list[Skipped] = []
    for row in rows:
        try:
            if row.not_modelled:
                raise ScenarioError([row.not_modelled])
            priced.append(_priced(row, load_hardware(hardware or row.hardware)))
        except (HardwareError, ScenarioError) as error:
            skipped.append(Skipped(row.id, error.messages[0]))
    return priced, skipped


def _priced(row: PairRow, hw: HardwareProfile) -> PricedPair:
    product, reduction = pair_of(row)
    measured, alone = row.times, [price(work_of(op), hw).duration_ns / 1000 for op in (product, reduction)]
    factors = measured.product_us / alone[0], measured.collective_us / alone[1]
    tried = {n: overlapped_us(product, reduction, n, hw) for n in PIECES if n <= row.m}
    pieces = min(tried, key=tried.__getitem__)
    times = Times(alone[0], alone[1], sum(alone), tried[pieces])
    from_parts_us = min(overlapped_us(product, reduction, n, hw, factors) for n in tried)
    fused = replace(product, kind="matmul_all_reduce", attrs=reduction.attrs)
    plain_us = roofline_us(work_of(fused), hw)  # the greater of both, as if overlap were perfect
    width = Z90 * (hw.collective.sigma**2 + hw.residual.device_sigma**2) ** 0.5
    low_us, high_us = (times.overlapped_us * exp(z) for z in (-width, width))
    scored = Scored(
        row.id,
        "overlap",
        measured_us=measured.overlapped_us,
        predicted_us=times.overlapped_us,
        low_us=low_us,
        high_us=high_us,
        roofline_us=plain_us,
        scored=row.scored,
    )
    return PricedPair(row, times, from_parts_us, pieces, scored)


def pair_of(row: PairRow) -> tuple[Op, Op]:
    """The product and the all-reduce of a row."""
    x, w = Tensor("x", (row.m, row.k), row.dtype), Tensor("w", (row.n, row.k), row.dtype, "weight")
    y = Tensor("y", (row.m, row.n), row.dtype)
    return Op("matmul", "product", (x, w), (y,)), Op("all_reduce", "reduce", (y,), (y,), (("ranks", row.ranks),))


def overlapped_us(
    product: Op, reduction: Op, pieces: int, hw: HardwareProfile, factors: tuple[float, float] = (1.0, 1.0)
) -> float:
    """Both in `pieces` pieces on two streams, all ranks alike, the host far ahead. factors: on the time of products and
    of collectives."""
    sizes = rows_of_pieces(product.out.shape[0], pieces, 1)
    ops = tuple(cut_pair(product, reduction, sizes)) if len(sizes) > 1 else (product, reduction)
    kernels = [scaled(price(work_of(op), hw), factors[op.kind != product.kind]) for op in ops]
    launched = tuple(
        Launch(
            i,
            0,
            name=op.name,
            kind=op.kind,
            op_type=op_type_of(op),
            kernel=kernel,
            stream=op.stream,
            waits=op.waits,
            records=op.records,
        )
        for i, (op, kernel) in enumerate(zip(ops, kernels, strict=True))
    )
    return engine.times(Plan((Replay("pair", launched, 0, 0, 0),), launch_thread=False, queue_depth=1)).end_ns / 1000


def overlaps_result(priced: list[PricedPair], skipped: list[Skipped]) -> dict[str, Any]:
    """The `overlaps` part of the `validate` document; times in us, errors of the overlapped time, signed."""
    summary = errors([row.scored for row in priced if row.scored.scored])
    return {
        "rows": [
            {
                "id": row.row.id,
                "scored": row.row.scored,
                "pieces": row.pieces,
                "measured": _times(row.row.times),
                "predicted": _times(row.times),
                "error": row.scored.error,
                "from_parts_us": row.from_parts_us,
                "from_parts_error": row.from_parts_us / row.row.times.overlapped_us - 1,
            }
            for row in priced
        ],
        "scored": summary["rows"],
        "median": summary["median"],
        "unpriced": [{"row": row.label, "reason": row.reason} for row in skipped],
    }


def _times(times: Times) -> dict[str, float]:
    return {**asdict(times), "gain": times.sequential_us / times.overlapped_us}
