"""What steps have in common that differ in sizes alone: all of their columns but the times of their kernels.

A step of another batch or context issues the same calls. Its program need not be built again, nor its columns laid out:
the works of its ops are expressions of its sizes (`scenarios.ops.traced`), each priced once for each of their values,
whatever step asks. Tests hold filled frames equal to layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import lru_cache

from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Program
from scenarios.ops.traced import Formula, Traced
from scenarios.ops.work import Work
from scenarios.records import dataclass
from sim.hardware.profile import HardwareProfile
from sim.kernel.time import Code, KernelTime
from sim.step.layout import Layout, Row, on_ranks
from sim.step.priced import Priced, kernel_of

#: Values of its sizes at which one work's times are kept.
MAX_KNOWN = 4096

#: What a layout depends on of the kernels but their times: where each runs, and whether ranks meet in it.
Lanes = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class _Priced:
    """One op's work, and its kernel at the sizes met so far."""

    formula: Formula
    code: Code
    known: dict[tuple[int, ...], KernelTime]


@dataclass(frozen=True, slots=True)
class Frame:
    """Steps of one kind on one device. blocks: their ops, block by block. laid: columns of such steps, by what these
    depend on of the kernels."""

    traced: Traced
    hw: HardwareProfile
    blocks: tuple[tuple[_Priced, ...], ...]
    laid: dict[Lanes, Layout] = field(default_factory=dict)

    @classmethod
    def of(cls, traced: Traced, program: Program, hw: HardwareProfile) -> Frame | None:
        """The frame of `program` and its like; None where it is not what was traced."""
        if traced.ops != tuple(tuple(op.name for op in block.ops) for block in program.blocks):
            return None
        blocks = []
        for block, formulas in zip(program.blocks, traced.works, strict=True):
            before, priced = "", []
            for op, formula in zip(block.ops, formulas, strict=True):
                code: Code = "twin" if before == op.kind and kind_of(op).twin else "cold"
                before = op.kind
                priced.append(_Priced(formula, code, _known(formula.text, hw, code)))
            if priced:
                blocks.append(tuple(priced))
        return cls(traced, hw, tuple(blocks))

    def layout(self, sizes: Sequence[int], build: Callable[[], Layout | None]) -> Layout | None:
        """The columns of the step of these sizes; `build` makes those of the first one."""
        kernels = [[self._kernel(one, sizes) for one in block] for block in self.blocks]
        lanes = tuple((kernel.accelerator, kernel.link_share > 0) for block in kernels for kernel in block)
        known = self.laid.get(lanes)
        if known is not None:
            return _filled(known, kernels, self.hw)
        laid = build()
        if laid is not None:
            self.laid[lanes] = laid
        return laid

    def _kernel(self, one: _Priced, sizes: Sequence[int]) -> KernelTime:
        values = tuple([sizes[place] for place in one.formula.of])
        kernel = one.known.get(values)
        if kernel is None:
            work: Work = one.formula.make(*values)
            if len(one.known) >= MAX_KNOWN:
                one.known.clear()
            kernel = one.known[values] = kernel_of(work, self.hw, one.code)
        return kernel


@lru_cache(maxsize=4096)
def _known(text: str, hw: HardwareProfile, code: Code) -> dict[tuple[int, ...], KernelTime]:
    """The kernels of one work at the sizes met so far: shared by all frames that have it."""
    return {}


def _filled(like: Layout, kernels: Sequence[Sequence[KernelTime]], hw: HardwareProfile) -> Layout:
    """The columns of `like` with other kernels."""
    blocks: list[list[Row]] = []
    column: list[KernelTime] = []
    for rows, own in zip(like.blocks, kernels, strict=True):
        repeat = rows[0].block.repeat
        column += [*own] * repeat
        blocks.append([_row(row, kernel) for row, kernel in zip(rows, own, strict=True)])
    durations = [kernel.duration_ns for kernel in column]
    laid = replace(like, durations_ns=durations, kernels=column, blocks=blocks)
    if laid.ranks > 1:
        on_ranks(laid, hw)
    return laid


def _row(row: Row, kernel: KernelTime) -> Row:
    item = row.item
    if kernel is item.kernel:
        return row
    op = Priced(
        item.op,
        item.name,
        item.op_type,
        kernel,
        host_ns=item.host_ns,
        launch_ns=item.launch_ns,
        jitter=item.jitter,
        nominal=(kernel,) * row.block.repeat,
    )
    return Row(row.block, op, row.first, row.apart)
