"""Copies and changes of layout: Slice, Split, Concat, Transpose, TransData, TensorMove.

Sources: canndev at 9df62e3c (public copy: dengguojie/vue-element-admin, branch stp), in `ops/built-in/op_tiling/`:
`slice_dsl.cc`, `split_dsl.cc`, `concat_dsl.cc`, `transpose.cc`, `tensor_move.cc`,
`trans_data_positive_source_tc_1010.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_rows, by_tiles, on_all

#: Slice moves less than this many elements, in whole blocks of 32 bytes, on a quarter of the cores.
QUARTER_ELEMENTS = 1 << 20

#: A one-axis slice of at most so many elements stays on one core; so does one whose rows are under 32 bytes.
ONE_CORE_ELEMENTS = 1024
SHORT_ROWS_ELEMENTS = 2048


def slice_(source: Sequence[int], sizes: Sequence[int], dtype_bytes: int, chip: TilingChip) -> Spread:
    """Cores of Slice and StridedSlice for shapes known at run time: the outermost axis above 1 is cut.

    source, sizes: the input's shape and the output's, axes that are taken whole joined to the one before.
    """
    align, total = 32 // dtype_bytes, prod(sizes)
    axes = list(sizes)
    cores = chip.vector_cores
    quarter = ceil(cores / 4)
    if len(axes) == 1:
        if total <= ONE_CORE_ELEMENTS:
            return Spread(1, 1, 1, total)
        each = ceil(ceil(total / (quarter if total < QUARTER_ELEMENTS else cores)) / align) * align
        return Spread(ceil(total / each), ceil(total / each), 1, each)
    both_aligned = axes[-1] % align == 0 and source[-1] % align == 0
    if total < QUARTER_ELEMENTS and both_aligned:
        cores = quarter
    if prod(axes[1:]) < align and total < SHORT_ROWS_ELEMENTS:
        return Spread(1, 1, axes[0], total)
    axis = next((axis for axis, size in enumerate(axes) if size > 1), 0)
    inner = prod(axes[axis + 1 :])
    each = min(axes[axis], max(ceil(align / inner), ceil(axes[axis] / cores)))
    used = ceil(axes[axis] / each)
    return Spread(used, used, each, each * inner)


def strided_slice_d(elements: int) -> Spread:
    """Cores of StridedSliceD, the static kind in compiled graphs, for one row: one (measured: the 20-core profile)."""
    return Spread(1, 1, 1, elements)


def split_v(rows: int, cols: int, dtype_bytes: int, chip: TilingChip) -> Spread:
    """Cores of SplitVD and SplitV along the last axis: tiles of as many whole rows as UB holds.

    `split_dsl.cc` cuts into tiles first and deals those; that a tile is all of UB is read off the block counts (1 up to
    16 rows of 5 KiB, 2 for 64).
    """
    return by_tiles(rows, chip.ub_bytes // (cols * dtype_bytes), cols, chip.vector_cores)


def concat_d(rows: int, cols: int, dtype_bytes: int, chip: TilingChip) -> Spread:
    """Cores of ConcatD along the last axis, cols: the output's. A tile is half of UB, whole rows.

    A single row is cut along its columns.
    """
    if rows == 1:
        cut = by_rows(cols, 1, chip.vector_cores) if cols * dtype_bytes > chip.ub_bytes // 2 else Spread(1, 1, 1, cols)
        return Spread(cut.started, cut.busy, 1, cut.elements)
    return by_tiles(rows, chip.ub_bytes // 2 // (cols * dtype_bytes), cols, chip.vector_cores)


def transpose(elements: int, dtype_bytes: int, chip: TilingChip) -> Spread:
    """Cores of Transpose: it starts on all; those with work take a block of 32 bytes or more."""
    blocks = max(1, elements * dtype_bytes // 32)
    busy = min(blocks, chip.vector_cores)
    return on_all(Spread(busy, busy, 0, ceil(elements / busy)), chip.vector_cores)


def tensor_move(elements: int, dtype_bytes: int, chip: TilingChip) -> Spread:
    """Cores of TensorMove: even shares, rounded up to 32 bytes."""
    align = 32 // dtype_bytes
    each = ceil(ceil(elements / chip.vector_cores) / align) * align
    used = max(1, ceil(elements / each))
    return Spread(used, used, 0, each)


def trans_data(batch: int, channel_blocks: int, spatial: int, c0: int, chip: TilingChip) -> Spread:
    """Cores of TransData between NCHW and NC1HWC0, batch x channel_blocks x spatial x c0: by batch, else by blocks.

    The published rule picks the axis that fills whole rounds of cores best, over tiles whose size depends on the vector
    unit's transposition; only the choice of the axis is taken over. Other formats: see `trans_data_other`.
    """
    if batch > 1:
        return by_rows(batch, channel_blocks * spatial * c0, chip.vector_cores)
    return by_rows(channel_blocks, spatial * c0, chip.vector_cores)


def trans_data_other(elements: int, chip: TilingChip) -> Spread:
    """Cores of TransData to and from fractal weights and NZ: nearly all (assumed; 30 to 48 are measured)."""
    used = chip.vector_cores
    return Spread(used, used, 0, ceil(elements / used))
