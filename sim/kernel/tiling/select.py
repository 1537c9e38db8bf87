"""Picking by index or by value: ArgMax, Gather, GatherElements, Sort, TopK.

Sources: canndev at 9df62e3c (public copy: dengguojie/vue-element-admin, branch stp) `ops/built-in/op_tiling/
arg_max_v2.cc`, `gather_dsl.cc`, `sort.cc`; hicann/ops-nn at e5c3fa93 `index/gather_elements_v2/op_host/
gather_elements_v2_tiling.cpp`.
"""

from __future__ import annotations

from math import ceil

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_heads_first, by_rows

#: A single picked row of up to this many bytes is not cut.
ONE_CORE_BYTES = 1024


def arg_max(rows: int, cols: int, chip: TilingChip, rows_multiple: int = 1) -> Spread:
    """Cores of ArgMaxV2 along the last axis: whole rows, in multiples of `rows_multiple`.

    The published rule (and CANN 8.5, by its times: 105 us for 6 rows, 139 for 12 to 16) rounds a core's rows up to 8,
    so that results fill 32 bytes; CANN 9.0 no longer does (block counts 1, 4, 16, 32 for 1, 4, 16, 64 rows).
    """
    each = ceil(ceil(rows / chip.vector_cores) / rows_multiple) * rows_multiple
    used = max(1, ceil(rows / each))
    return Spread(used, used, min(rows, each), min(rows, each) * cols)


def gather(indices: int, cols: int, chip: TilingChip, dtype_bytes: int = 2) -> Spread:
    """Cores of GatherV2 (embedding, IndexSelect): picked rows are dealt; a single picked row is cut by columns.

    A row of up to 1 KiB stays on one core (block counts: 1 up to 512 columns of 16 bit, 47 and 48 for 768 to 1,536).
    """
    if indices > 1:
        return by_rows(indices, cols, chip.vector_cores)
    if cols * dtype_bytes <= ONE_CORE_BYTES:
        return Spread(1, 1, 1, cols)
    cut = by_rows(cols, 1, chip.vector_cores)
    return Spread(cut.started, cut.busy, 1, cut.rows)


def gather_elements(indices: int, chip: TilingChip) -> Spread:
    """Cores of GatherElementsV2: one index or more to a core."""
    return by_heads_first(indices, 1, chip.vector_cores)


def sort(rows: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of Sort and TopK along the last axis: a row is sorted by one core."""
    return by_heads_first(rows, cols, chip.vector_cores)
