"""The numbers of an NPU's profile from microbenchmarks: the blocks of `sim.fitting.shipped` on this machine's own rows.

A kernel there has other effects than on a CPU (`sim.kernel.price`), so the blocks, their order and their robust fit are
those of the shipped profiles; a block is fitted where enough shapes of its programs were timed, and starts from the
base. What the rows do not pull away from there is not identified, and stays what the base says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scenarios.exchange.timings import NO_OPS, Timings
from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.ops.work import CollectiveShape, ExchangeShape, FixedShape
from sim.fitting.cpu import MIN_SHAPES, WIDEST, Fit, at_speed
from sim.fitting.cpu import Sample as Row
from sim.fitting.kernels import Block, Sample, fit, held_out, interval
from sim.fitting.shipped import ALONE, CUBE, SHARED, rows_of_block
from sim.hardware.numbers import with_numbers
from sim.hardware.profile import HardwareProfile


def fit_blocks(timings: Timings, base: HardwareProfile, reference: float, draws: int) -> tuple[Fit, ...]:
    """The fit of each block that has enough shapes, its coefficients under their dotted names."""
    samples = list(_samples(timings, base, reference))
    hw, fits = base, []
    for block in (*CUBE, *SHARED, *ALONE):
        rows = rows_of_block(block, samples, {base.name: hw})
        if len({row.shape for row in rows}) < MIN_SHAPES:
            continue
        block = _from_base(block, hw)
        if not block.parameters:
            continue
        fits.append(_fitted(block, rows, hw, draws))
        hw = with_numbers(hw, fits[-1].values)
    return tuple(fits)


def _samples(timings: Timings, base: HardwareProfile, reference: float) -> Iterator[Sample]:
    """Rows of single kernels; each runs among others, so nothing of its own is left in L2."""
    for row in timings.rows:
        if row.kind in NO_OPS or len(row.ops) != 1 or row.kind != row.op.kind:
            continue
        work = work_of(row.op)
        if not isinstance(work.shape, CollectiveShape | ExchangeShape | FixedShape):
            yield Sample(base.name, op_type_of(row.op), repr(work), work, at_speed(row, reference), False, False)


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
