"""The tile pipeline of one core: load, compute, store, each on its own unit, with a few buffers between them.

A core's DMA engine loads a tile from global memory (MTE2), its vector or cube unit computes on it, and a second DMA
engine stores the result (MTE3). Each unit takes the tiles in order. With `buffers` input and output buffers, a load
waits until the tile `buffers` before it has been computed, and a computation until that tile has been stored.
`tiles_simpy.py` plays the same rules with SimPy.
"""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class Tile:
    """Times of one tile on the three units, nanoseconds."""

    load_ns: int
    compute_ns: int
    store_ns: int


def pipeline_ns(tiles: Sequence[Tile], buffers: int = 2) -> int:
    """The end of the last store, from the start of the first load, nanoseconds; any tiles. `buffers` is at least 1.

    loaded[i]   = max(loaded[i-1], computed[i-buffers]) + load[i]
    computed[i] = max(loaded[i], computed[i-1], stored[i-buffers]) + compute[i]
    stored[i]   = max(computed[i], stored[i-1]) + store[i]
    """
    loaded = [0] * (len(tiles) + buffers)
    computed = [0] * (len(tiles) + buffers)
    stored = [0] * (len(tiles) + buffers)
    for i, tile in enumerate(tiles, start=buffers):
        loaded[i] = max(loaded[i - 1], computed[i - buffers]) + tile.load_ns
        computed[i] = max(loaded[i], computed[i - 1], stored[i - buffers]) + tile.compute_ns
        stored[i] = max(computed[i], stored[i - 1]) + tile.store_ns
    return stored[-1]


def uniform_ns(count: int, tile: Tile, buffers: int = 2) -> int:
    """`pipeline_ns` of `count` equal tiles in closed form.

    The first tile passes all three units; every further one adds a period: the slowest unit with two buffers or more;
    with one buffer the computation and the slower of the transfers that must wait for it.
    """
    if count <= 0:
        return 0
    load, compute, store = tile.load_ns, tile.compute_ns, tile.store_ns
    period = max(load, compute, store) if buffers > 1 else compute + max(load, store)
    return load + compute + store + (count - 1) * period
