"""Quantising kernels: DynamicQuant, AscendQuantV2, DequantSwigluQuant.

Sources, all hicann/ops-nn at e5c3fa93: `quant/dynamic_quant/op_host/dynamic_quant_tiling.cpp`,
`quant/ascend_quant_v2/op_host/ascend_quant_v2_tiling.cpp`,
`quant/dequant_swiglu_quant/op_host/dequant_swiglu_quant_tiling.cpp` and `..._tiling_base.cpp`.
"""

from __future__ import annotations

from math import ceil

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_heads_first, by_rows, on_all

#: Row lengths and counts for which DynamicQuant has a program of its own, and the columns that it holds at once.
SPECIAL_COLS = frozenset({4096, 5120, 10240})
SPECIAL_ROWS = range(4, 385)
SPECIAL_TILE = 16384

#: Bytes of UB that the many-row program keeps for itself, and bytes an element without and with a smooth scale.
RESERVED_BYTES = 1024 + 256 + 64 + 12 * 64 * 4
ELEMENT_BYTES, SMOOTH_ELEMENT_BYTES = 11, 15

#: One instruction repeats 255 times over 64 elements at most.
MAX_TILE = 255 * 64

#: AscendQuantV2 cuts rows into L2 lines of 512 bytes.
LINE_BYTES = 512

#: DequantSwigluQuant takes no more cores than this, and tiles of 16384 inputs for rows of 2048 and 4096.
DEQUANT_CORES = 36
DEQUANT_TILE = 16384


def dynamic_quant(rows: int, cols: int, chip: TilingChip, smooth: bool = False, asymmetric: bool = False) -> Spread:
    """Cores of DynamicQuant: as many rows as UB holds to each core, so few cores for short rows.

    asymmetric: with an offset (three outputs), which always takes one row or more to a core.
    """
    cores = chip.vector_cores
    if not asymmetric and cols in SPECIAL_COLS and rows in SPECIAL_ROWS:
        held = min(SPECIAL_TILE // cols, rows)
        tiles = by_rows(ceil(rows / held), 1, cores)
        return Spread(tiles.started, tiles.busy, min(rows, tiles.rows * held), min(rows, tiles.rows * held) * cols)
    room = (chip.ub_bytes - RESERVED_BYTES) // (SMOOTH_ELEMENT_BYTES if smooth else ELEMENT_BYTES) // 64 * 64
    room = min(room, MAX_TILE)
    if asymmetric or not 128 <= cols <= room or cols % 8:
        return by_heads_first(rows, cols, cores)
    held = min(room // cols, rows)
    loops = rows // held
    # Whole tiles first: each core takes loops // cores of them, so at times more than `cores` would be asked for.
    used = min(cores, loops // max(1, loops // cores))
    each = ceil(rows / used)
    return Spread(used, used, each, each * cols)


def ascend_quant_v2(rows: int, cols: int, chip: TilingChip, dtype_bytes: int = 2) -> Spread:
    """Cores of AscendQuantV2: it starts on all; rows or lines of a row have work, whichever busies more cores."""
    cores = chip.vector_cores
    lines = ceil(cols * dtype_bytes / LINE_BYTES)
    line = LINE_BYTES // dtype_bytes
    whole, cut = by_rows(rows, cols, cores), by_rows(lines, 1, cores)
    best = whole
    if cut.busy > whole.busy:
        best = Spread(cut.busy, cut.busy, rows, rows * min(cols, cut.rows * line))
    team = cores // rows if rows else 0
    if best.busy < cores and rows > 1 and cols > 32 and team:
        both = by_rows(lines, 1, team)
        if rows * both.busy > best.busy:
            best = Spread(rows * both.busy, rows * both.busy, 1, min(cols, both.rows * line))
    return on_all(best, cores)


def dequant_swiglu_quant(rows: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of DequantSwigluQuant in its grouped form, for INT32 inputs without bias; at most 36.

    The ungrouped form for short rows (under 1536 outputs and 128 rows) takes at most 12 cores.
    """
    outputs = cols // 2
    fixed = 1024 + 32 + 12 * outputs
    held = max(1, (chip.ub_bytes - fixed) // (2 * 4 * (cols + 8) + outputs + 4 + 4 * cols))
    if cols in (2048, 4096):
        held = DEQUANT_TILE // cols
    used = max(1, min(ceil(rows / min(held, max(1, rows))), DEQUANT_CORES, chip.vector_cores))
    each = ceil(rows / used)
    return Spread(used, used, each, each * outputs)
