"""The numbers of an NPU's profile from microbenchmarks: the blocks of `sim.fitting.shipped` on this machine's own rows.

A kernel there has other effects than on a CPU (`sim.kernel.price`), so the blocks, their order and their robust fit are
those of the shipped profiles; a block is fitted where enough shapes of its programs were timed, and starts from the
base. What the rows do not pull away from there is not identified, and stays what the base says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from scenarios.exchange.timings import NO_OPS, Timings
from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.ops.work import CollectiveShape, ExchangeShape, FixedShape, FlatShape, RowsShape
from sim.fitting.cpu import MIN_SHAPES, WIDEST, Fit, at_speed
from sim.fitting.cpu import Sample as Row
from sim.fitting.kernels import Block, Sample, fit, held_out, interval
from sim.fitting.shipped import ALONE, CUBE, rows_of_block
from sim.fitting.vector import EFFECTS, fit_laws, unseen, vector_rows
from sim.hardware.numbers import with_numbers
from sim.hardware.profile import HardwareProfile
from sim.kernel.tiling.chip import tiling_chip
from sim.kernel.vector import vector_params
from sim.kernel.vector_tiling import program_of
from sim.predict.uncertainty import Z90

#: Stands for a number that the base says is 0.
SMALLEST = 1e-9


def fit_blocks(timings: Timings, base: HardwareProfile, reference: float, draws: int) -> tuple[Fit, ...]:
    """The fit of each block that has enough shapes, its coefficients under their dotted names."""
    samples = list(_samples(timings, base, reference))
    hw, fits = base, []
    for block in (*CUBE, *ALONE):
        rows = rows_of_block(block, samples, {base.name: hw})
        if len({row.shape for row in rows}) < MIN_SHAPES:
            continue
        block = _from_base(block, hw)
        if not block.parameters:
            continue
        fits.append(_fitted(block, rows, hw, draws))
        hw = with_numbers(hw, fits[-1].values)
    return (*fits, *_vector_fits(samples, base))


def _vector_fits(samples: Sequence[Sample], base: HardwareProfile) -> Iterator[Fit]:
    """The laws of vector kernels: each drawn to what the base says of it."""
    chip = tiling_chip(base.chip)
    by_kind: dict[str, list[Sample]] = {}
    for sample in samples:
        if isinstance(sample.work.shape, FlatShape | RowsShape) and sample.work.unit == "vector":
            by_kind.setdefault(program_of(sample.work, chip), []).append(sample)
    for kind, mine in sorted(by_kind.items()):
        rows = vector_rows(mine, {base.name: base})
        if len({row.shape for row in rows}) < MIN_SHAPES:
            continue
        params = vector_params(mine[0].work, base)
        start, core, element = params.start_us, params.core_us, params.element_ns / 1000
        priors = {kind: np.log(np.maximum((start, core, element), SMALLEST))}
        laws = fit_laws(rows, priors)
        sigmas = laws.spreads(rows)[kind]
        numbers = dict(zip(EFFECTS, laws.numbers(kind), strict=True))
        spans = {effect: _around(numbers[effect], sigma) for effect, sigma in zip(EFFECTS, sigmas, strict=True)}
        had = {effect for effect in EFFECTS if getattr(params, effect)}
        known = {effect for effect in had if spans[effect][1] <= WIDEST * spans[effect][0]}
        errors = {id(row): error for row, error in unseen(rows, "shape", priors)}
        name = f"programs.{kind}"
        yield Fit(
            kind,
            {f"{name}.{effect}": numbers[effect] for effect in EFFECTS if effect in known},
            {f"{name}.{effect}": spans[effect] for effect in EFFECTS if effect in known},
            tuple(f"{name}.{effect}" for effect in EFFECTS if effect in had - known),
            tuple(Row(s.work, s.us, s.shape, s.shape, (0.0, 0.0, 0.0, 0.0), 0.0) for s in mine),
            tuple(errors[id(row)] for row in rows),
        )


def _around(value: float, sigma: float) -> tuple[float, float]:
    factor = float(np.exp(Z90 * sigma))
    return value / factor, value * factor


def _samples(timings: Timings, base: HardwareProfile, reference: float) -> Iterator[Sample]:
    """Rows of single kernels; each runs among others, so nothing of its own is left in L2."""
    for row in timings.rows:
        if row.kind in NO_OPS or len(row.ops) != 1 or row.kind != row.op.kind:
            continue
        work = work_of(row.op)
        if not isinstance(work.shape, CollectiveShape | ExchangeShape | FixedShape):
            yield Sample(
                base.name,
                op_type_of(row.op),
                shape=repr(work),
                work=work,
                us=at_speed(row, reference),
                code="cold",
                resident=False,
            )


def _from_base(block: Block, hw: HardwareProfile) -> Block:
    """`block` with the base's numbers as starts; what the base does not have is not fitted."""
    starts: dict[str, float] = {}
    for name in block.parameters:
        section, *rest = name.split(".")
        part = hw.programs.get(rest[0]) if section == "programs" else getattr(hw, section)
        value = float(getattr(part, rest[-1])) if part is not None else 0.0
        if value:
            starts[name] = value
    return Block(block.name, starts, block.programs)


def _fitted(block: Block, rows: Sequence[Sample], hw: HardwareProfile, draws: int) -> Fit:
    bases: Mapping[str, HardwareProfile] = {hw.name: hw}
    values, spans = fit(block, rows, bases), interval(block, rows, bases, max(2, draws // 4))
    unknown = tuple(name for name, (low, high) in spans.items() if high > WIDEST * low)
    known = {name: value for name, value in values.items() if name not in unknown}
    pairs = held_out(block, rows, bases)
    samples = tuple(Row(s.work, s.us, s.shape, s.shape, (0.0, 0.0, 0.0, 0.0), 0.0) for s, _ in pairs)
    intervals = {name: spans[name] for name in known}
    return Fit(block.name, known, intervals, unknown, samples, tuple(error for _, error in pairs))
