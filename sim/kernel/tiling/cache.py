"""Writes into caches by index: Scatter, ScatterPaKvCache, ReshapeAndCache, ScatterUpdate, ScatterNdUpdate.

Sources: hicann/ops-transformer (state after c29bc106) `attention/scatter_pa_kv_cache/op_host/
scatter_pa_kv_cache_tiling.cpp`; hicann/ops-nn at e5c3fa93 `index/scatter_nd_update/op_host/arch22/
scatter_nd_update_tiling.cpp`; canndev at 9df62e3c `ops/built-in/op_tiling/scatter_update.cc` (public copy:
dengguojie/vue-element-admin, branch stp).
"""

from __future__ import annotations

from math import ceil

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_heads_first, by_rows, on_all


def scatter(batch: int, heads: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of Scatter, TorchAir's write of one position into each request's static cache.

    Each request and head is a row. No tiling code of it is public for A2 and A3: read off the block counts of
    kernels_910b2.csv (2, 8, 32 and 43 for 1, 4, 16 and 64 requests of 2 heads on 48 cores).
    """
    return by_rows(batch * heads, cols, chip.vector_cores)


def scatter_pa_kv_cache(tokens: int, cols: int, chip: TilingChip, fractal: bool = False) -> Spread:
    """Cores of ScatterPaKvCache; fractal: the cache is in NZ, where whole ceilings are dealt."""
    return (by_rows if fractal else by_heads_first)(tokens, cols, chip.vector_cores)


def reshape_and_cache(tokens: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of ReshapeAndCacheNdKernel: the kernel that ScatterPaKvCache was written after (assumed alike)."""
    return by_heads_first(tokens, cols, chip.vector_cores)


def scatter_update(rows: int, cols: int, chip: TilingChip, dtype_bytes: int = 2) -> Spread:
    """Cores of ScatterUpdate into a table of `rows`: each core owns ceil(rows / cores) rows of the table.

    Rows of less than 32 bytes are written by one core.
    """
    if cols * dtype_bytes < 32:
        return Spread(1, 1, rows, rows * cols)
    each = ceil(rows / chip.vector_cores)
    used = ceil(rows / each)
    return Spread(used, used, each, each * cols)


def scatter_nd_update(indices: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of ScatterNdUpdate: it starts on all."""
    return on_all(by_heads_first(indices, cols, chip.vector_cores), chip.vector_cores)
