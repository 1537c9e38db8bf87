"""How a vector kernel's work lies on the cores, and the two ways in which CANN deals out most of it."""

from __future__ import annotations

from math import ceil

from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Cores that a kernel starts on, cores that have work, and the fullest core's rows and elements.

    started is the profiler's `Block Dim`. Some kernels start on all cores and then leave most of them idle.
    """

    started: int
    busy: int
    rows: int
    elements: int


def by_rows(rows: int, cols: int, cores: int) -> Spread:
    """Whole rows to cores, ceil(rows / cores) to each until none is left.

    So 64 rows on 48 cores are two to a core, on 32 cores. The rule of most row-wise kernels in ops-nn and
    ops-transformer; the modules that use it name their files.
    """
    each = max(1, ceil(rows / cores))
    used = max(1, ceil(rows / each))
    return Spread(used, used, each, each * cols)


def by_heads_first(rows: int, cols: int, cores: int) -> Spread:
    """Whole rows, one more to some cores than to others, so that all cores work from `rows` = `cores` on."""
    used = max(1, min(rows, cores))
    each = max(1, ceil(rows / used))
    return Spread(used, used, each, each * cols)


def by_tiles(rows: int, tile_rows: int, cols: int, cores: int) -> Spread:
    """Tiles of `tile_rows` rows to cores: what a core takes is a whole number of tiles."""
    tiles = by_rows(ceil(max(1, rows) / max(1, tile_rows)), 1, cores)
    each = min(max(1, rows), tiles.rows * max(1, tile_rows))
    return Spread(tiles.started, tiles.busy, each, each * cols)


def on_all(spread: Spread, cores: int) -> Spread:
    """The same work by a kernel that starts on all cores, whatever it uses."""
    return Spread(cores, spread.busy, spread.rows, spread.elements)
