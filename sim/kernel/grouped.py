"""Grouped matrix products: all experts of a layer in one kernel, each with its own rows and weight.

Every expert's product is cut into blocks of outputs, at most BLOCK_ROWS x BLOCK_COLS, and the blocks of all experts are
dealt over the cores in one row, so small experts fill the cores together. As in `sim.kernel.matmul` the time is that of
multiplying plus that of the traffic; weights of an expert come from HBM once, whatever its rows.
"""

from __future__ import annotations

from math import ceil

from scenarios.ops.work import GroupedShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.cost import Cost, start_ns
from sim.kernel.matmul import share_ns, stream_ns, vector_beside_ns
from sim.kernel.traffic import traffic

#: Outputs of one block: what the accumulator (L0C, 128 KiB) holds of 32-bit sums.
BLOCK_ROWS, BLOCK_COLS = 128, 256


def grouped_cost(work: Work, hw: HardwareProfile, params: KernelParams, repeat: bool, resident: bool) -> Cost:
    """The cost over all experts that have rows; `repeat` and `resident` as in `sim.kernel.price.price`."""
    shape = work.shape
    assert isinstance(shape, GroupedShape)
    across = ceil(shape.n / BLOCK_COLS)
    blocks = across * sum(ceil(load / BLOCK_ROWS) for load in shape.loads)
    cores = max(1, min(hw.chip.cube_cores, blocks))
    waves = ceil(blocks / cores) if blocks else 0
    # The fullest core has `waves` blocks; blocks differ in rows, so it is taken to have its share of all work.
    stretch = waves * cores / max(1, blocks)
    multiply = load_ns = 0.0
    for rows in shape.loads:
        one_multiply, one_load, tiles = share_ns(shape, hw, min(rows, BLOCK_ROWS), min(BLOCK_COLS, shape.n), shape.k)
        each = across * ceil(rows / BLOCK_ROWS) * stretch / cores
        multiply += each * (one_multiply + 1000 * tiles * hw.kernel.tile_us)
        load_ns += each * one_load
    split = traffic(work, hw, resident)
    weights = min(work.cold_read_bytes, split.hbm_read)
    # Blocks of one expert that differ in rows only share their columns of the weight.
    columns = max(1, across * len(shape.loads))
    fullest = ceil(columns / cores) * weights / columns
    stream = stream_ns(shape, hw, cores, weights, fullest, work.gm_bytes - weights, split.hbm - weights)
    rows = sum(shape.loads)
    others = vector_beside_ns(shape.dtype, shape.k * shape.n * len(shape.loads), rows * shape.n, hw, params)
    body = max(multiply + stream, load_ns, others)
    return Cost(start_ns(hw, params, cores, repeat), body, cores, multiply, max(stream, load_ns), split.hbm, others)
