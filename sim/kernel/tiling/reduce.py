"""Reductions and softmax of compiled (TBE) operators.

Source: canndev at 9df62e3c (public copy: dengguojie/vue-element-admin, branch stp) `ops/built-in/op_tiling/
reduce_tiling_v3.cc`, `softmax_tiling.cc`.
"""

from __future__ import annotations

from math import ceil

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_rows

#: Work below this many elements is not cut along the reduced axis.
SMALL_ELEMENTS = 1024


def reduce(outer: int, reduced: int, inner: int, chip: TilingChip, dtype_bytes: int = 4) -> Spread:
    """Cores of ReduceSum, ReduceMean, ReduceMax over the middle of outer x reduced x inner.

    The kept axis is cut; where it is the innermost one, in blocks of 32 bytes. With few results (under half a block a
    core) and much to reduce, the reduced axis is cut instead and the parts are added in memory.
    """
    cores, block = chip.vector_cores, 32 // dtype_bytes
    kept = outer * inner
    if kept * reduced > SMALL_ELEMENTS and kept < cores * block / 2 and reduced > cores / 2 and kept < cores:
        each = ceil(reduced / cores)
        used = ceil(reduced / each)
        return Spread(used, used, kept, kept * each)
    if outer > 1 or inner == 1:
        return by_rows(outer, reduced * inner, cores)
    each = ceil(ceil(inner / cores) / block) * block
    used = ceil(inner / each)
    return Spread(used, used, each, min(each, inner) * reduced)


def softmax(rows: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of SoftmaxV2 and LogSoftmaxV2 along the last axis: a row or more to a core."""
    return by_rows(rows, cols, chip.vector_cores)
