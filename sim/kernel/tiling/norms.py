"""RMS norms: rows to cores, and the kernel variant that the row length picks.

Sources, all hicann/ops-nn at e5c3fa93: `norm/rms_norm/op_host/rms_norm_tiling.cpp`,
`norm/add_rms_norm/op_host/add_rms_norm_tiling.cpp` (AddRmsNorm and InplaceAddRmsNorm),
`norm/add_rms_norm_quant/op_host/add_rms_norm_quant_tiling.cpp`,
`norm/add_rms_norm_dynamic_quant/op_host/arch22/add_rms_norm_dynamic_quant_tiling.cpp`,
`norm/add_rms_norm_cast/op_host/add_rms_norm_cast_tiling.cpp`. All deal whole rows, ceil(rows / cores) to a core.
AddRmsNormBias of vLLM-Ascend is taken for AddRmsNorm (assumed).
"""

from __future__ import annotations

from math import ceil
from typing import Literal

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_rows

#: Rows of at most so many columns (padded to 32 bytes) go several to one tile on A2 and A3.
MERGED_COLS = 2000

#: Columns that one tile holds at most, by bytes of an element; longer rows are cut.
TILE_COLS = {2: 12288, 4: 10240}

Mode = Literal["normal", "cut_row", "many_rows", "one_row"]


def rms_norm(rows: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of RmsNorm; the same for AddRmsNorm, InplaceAddRmsNorm and their quantising and casting kinds."""
    return by_rows(rows, cols, chip.vector_cores)


def rms_norm_mode(cols: int, dtype_bytes: int = 2) -> Mode:
    """Which RmsNorm kernel runs: many rows to a tile, one row to a tile, or rows cut into pieces."""
    padded = ceil(cols * dtype_bytes / 32) * 32 // dtype_bytes
    if padded <= MERGED_COLS:
        return "many_rows"
    return "cut_row" if padded > TILE_COLS[dtype_bytes] else "normal"


def add_rms_norm_mode(rows: int, cols: int, chip: TilingChip, dtype_bytes: int = 2) -> Mode:
    """Which AddRmsNorm kernel runs: a core with one row runs a shorter program than one with several."""
    if cols > TILE_COLS[dtype_bytes]:
        return "cut_row"
    if rms_norm(rows, cols, chip).rows == 1:
        return "one_row"
    padded = ceil(cols * dtype_bytes / 32) * 32 // dtype_bytes
    return "many_rows" if padded <= MERGED_COLS else "normal"


def merged_rows(cols: int, chip: TilingChip, dtype_bytes: int = 2) -> int:
    """Rows of RmsNorm that one tile of the many-row kernel holds: 16 bytes an element and 260 a row."""
    padded = ceil(cols * dtype_bytes / 32) * 32 // dtype_bytes
    return max(1, chip.ub_bytes // (16 * padded + 260))
