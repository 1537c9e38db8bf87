"""SwiGlu: tiles of rows by columns, searched for the most cores and then the fewest tiles.

Source: hicann/ops-nn `activation/swi_glu/op_host/swi_glu_tiling.cpp` at e5c3fa93.
"""

from __future__ import annotations

from math import ceil

from scenarios.records import dataclass
from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread

#: A tile's columns are whole L2 lines of 512 bytes where the row is cut; a copy's rows are padded to 32 bytes.
LINE_BYTES = 512
BLOCK_BYTES = 32

#: Limits of one strided copy: rows, and blocks of 32 bytes skipped between two rows.
MAX_ROWS = 4095
MAX_STRIDE = 65535


@dataclass(frozen=True, slots=True)
class _Tiles:
    """A way to cut: cores, tiles, and rows and columns of one tile."""

    cores: int
    tiles: int
    rows: int
    cols: int
    whole: int

    @property
    def per_core(self) -> int:
        return ceil(self.tiles / self.cores)

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """More cores first, then fewer tiles, then larger ones, then fewer partly filled ones."""
        return self.cores, -self.tiles, self.rows * self.cols, self.whole


def swi_glu(rows: int, cols: int, chip: TilingChip, dtype_bytes: int = 2) -> Spread:
    """Cores of SwiGlu on `rows` x `cols`, of which both halves are read and one half's columns are written.

    With two tiles to a core, twice the tile without double buffering is tried: one tile to a core, on no fewer cores.
    elements: those written by the fullest core.
    """
    best = _search(rows, cols // 2, chip, dtype_bytes, buffers=2)
    if best.per_core == 2:
        single = _search(rows, cols // 2, chip, dtype_bytes, buffers=1)
        if single.per_core == 1 and single.cores >= best.cores:
            best = single
    tile = min(best.rows, rows) * min(best.cols, cols // 2)
    return Spread(best.cores, best.cores, best.per_core * min(best.rows, rows), best.per_core * tile)


def _search(rows: int, cols: int, chip: TilingChip, dtype_bytes: int, buffers: int) -> _Tiles:
    """The best cut of rows x cols outputs with tiles that fit UB, from the widest tile to one line."""
    block, line = BLOCK_BYTES // dtype_bytes, LINE_BYTES // dtype_bytes
    # Three queues (two inputs, one output) and scratch in float: two of it for 16-bit types, one for float.
    element_bytes = buffers * 3 * dtype_bytes + (8 if dtype_bytes == 2 else 4)
    longest = chip.ub_bytes // element_bytes // block * block
    aligned = cols % block == 0
    width = min(cols, longest, MAX_STRIDE if aligned else MAX_STRIDE // dtype_bytes)
    if line < width < cols:
        width = width // line * line
    best: _Tiles | None = None
    while True:
        high = min(longest // (ceil(width / block) * block), rows, MAX_ROWS)
        if _one_row_only(cols, width, block, dtype_bytes, aligned):
            high = 1
        tiles = ceil(rows / high) * ceil(cols / width)
        result = _Tiles(min(tiles, chip.vector_cores), tiles, high, width, (rows // high) * (cols // width))
        best = result if best is None or result.rank > best.rank else best
        if width <= line or high >= min(rows, MAX_ROWS):
            return best
        width = width - line if width % line == 0 else width // line * line


def _one_row_only(cols: int, width: int, block: int, dtype_bytes: int, aligned: bool) -> bool:
    """Whether the gap between rows is more than one copy can skip."""
    gap = 2 * cols - width
    return gap > MAX_STRIDE * block if aligned else gap * dtype_bytes > MAX_STRIDE
