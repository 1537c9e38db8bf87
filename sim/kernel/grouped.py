"""Grouped matrix products: all experts of a layer in one kernel, each with its own rows and weight.

The kernel starts on all cube cores; every expert's product is cut into blocks of 128 x 256 outputs, and the blocks of
all experts are dealt over the cores in one row (`sim.kernel.tiling.grouped_matmul`). As in `sim.kernel.matmul` blocks
are multiplied while bytes stream; weights of an expert come from HBM once, whatever its rows.
"""

from __future__ import annotations

from math import ceil

from scenarios.ops.program import DTYPE_BITS
from scenarios.ops.work import GroupedShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.cost import Cost
from sim.kernel.matmul import multiply_ns, overlapped, stream_ns, vector_beside_ns
from sim.kernel.tiling.chip import tiling_chip
from sim.kernel.tiling.grouped_matmul import Groups, grouped_matmul_tiling
from sim.kernel.time import Code
from sim.kernel.traffic import prefetched_in_l2, traffic


def grouped_cost(work: Work, hw: HardwareProfile, params: KernelParams, code: Code, resident: bool) -> Cost:
    """The cost over all experts that have rows; `code` and `resident` as in `sim.kernel.price.price`."""
    shape = work.shape
    assert isinstance(shape, GroupedShape)
    rows, item = sum(shape.loads), max(1, DTYPE_BITS[shape.dtype] // 8)
    groups = Groups(max(1, rows), shape.k, shape.n, len(shape.loads), item, shape.weight_format == "nz")
    tiling = grouped_matmul_tiling(groups, tiling_chip(hw.chip))
    across = ceil(shape.n / tiling.tile_n)
    dealt = across * sum(ceil(load / tiling.tile_m) for load in shape.loads)
    # The fullest core has ceil(dealt / cores) blocks; they differ in rows, so it is taken to have its share of all.
    stretch = ceil(dealt / tiling.cores) / dealt if dealt else 0.0
    outputs = sum(ceil(load / 16) for load in shape.loads) * ceil(shape.n / 16)
    multiply = multiply_ns(stretch * outputs * ceil(shape.k * item / 32), shape.dtype, hw)
    split = traffic(work, hw, resident)
    kept = prefetched_in_l2(work, hw)
    weights = work.cold_read_bytes - kept
    drawn = ceil(dealt / tiling.cores) * weights / max(1, across * len(shape.loads))
    fullest = min(drawn, weights) / hw.memory.core_hbm_gbps if max(shape.loads, default=0) <= tiling.tile_m else 0.0
    stream = stream_ns(shape, hw, tiling.cores, weights, work.gm_bytes - work.cold_read_bytes)
    stream += kept / min(tiling.cores * hw.memory.core_l2_gbps, hw.memory.l2_read_gbps)
    stream = max(stream, fullest)
    others = vector_beside_ns(shape, shape.k * shape.n * len(shape.loads), rows * shape.n, hw, params)
    body = max(overlapped(multiply, stream, hw.kernel.overlap_power), others)
    return Cost(
        1000 * params.fixed_us,
        body,
        cores=tiling.cores,
        compute_ns=multiply,
        memory_ns=stream,
        hbm_bytes=split.hbm,
        beside_ns=others,
    )
