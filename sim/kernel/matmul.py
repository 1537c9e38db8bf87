"""Matrix products on the cube cores: the output is cut into a grid, one share a core, and each share into tiles.

A share of m x n outputs is worked off in tiles that fit the accumulator (L0C); for each tile the core loads m x k of
the left and k x n of the right side through L1 and multiplies blocks of 16 x 16 x 16. Shares quantise: 200 blocks of
columns over 24 cores give one of them 9. Where shares are fewer than cores, k may be split among them.

    time = start + the greater of (multiplying + streaming from and to memory) and (loading tiles from L2)

Measured products of 256 to 41,040 rows take the time of the multiplications at full rate *plus* the time of their
traffic: cores that wait for their first weights do not multiply, and outputs leave after the last block of k.
FRACTAL_NZ weights stream slower than row-major ones in a product of few rows, and faster in a tall one, whose row-major
weights are rearranged on the way. A library's tiling engine picks the grid; here the fastest stands for its choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from scenarios.ops.program import DTYPE_BITS, DType
from scenarios.ops.work import GroupedShape, MatmulShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.cost import Cost, start_ns
from sim.kernel.traffic import hbm_rate, prefetched_in_l2, traffic

#: Multiply-accumulates a cycle, relative to 16-bit inputs.
_RATE = {"int8": 2.0, "int4": 2.0, "fp32": 0.25}
#: Tallest tile; a tile is at most WIDEST columns wide.
TALLEST, WIDEST = 128, 512
#: Products with less k are never split along it.
MIN_SPLIT_K = 1024


@dataclass(frozen=True, slots=True)
class Grid:
    """Cores along m, along n, and parts of k; `batches` products follow one another on a core."""

    rows: int
    cols: int
    splits: int
    batches: int


def up16(value: float) -> int:
    """The next multiple of 16, the side of a cube block."""
    return 16 * ceil(value / 16)


def grids(shape: MatmulShape, cube_cores: int, narrowest: int) -> list[Grid]:
    """All ways to lay the product over the cores that leave no core out needlessly.

    narrowest: columns below which a library cuts no share.
    """
    spread = min(shape.batch, cube_cores)
    batches = ceil(shape.batch / spread)
    each = max(1, cube_cores // spread)
    result: dict[Grid, None] = {}
    for rows in range(1, min(each, ceil(shape.m / 16)) + 1):
        cols = min(each // rows, ceil(shape.n / narrowest))
        result[Grid(rows, cols, 1, batches)] = None
        spare = each // (rows * cols)
        if spare > 1 and shape.k >= MIN_SPLIT_K:
            result[Grid(rows, cols, spare, batches)] = None
    return list(result)


def matmul_cost(work: Work, hw: HardwareProfile, params: KernelParams, repeat: bool, resident: bool) -> Cost:
    """The cost of the fastest grid; `repeat` and `resident` as in `sim.kernel.price.price`."""
    shape = work.shape
    assert isinstance(shape, MatmulShape)
    narrowest = max(16, params.grain)
    costs = [
        grid_cost(work, hw, params, grid, repeat, resident) for grid in grids(shape, hw.chip.cube_cores, narrowest)
    ]
    return min(costs, key=lambda cost: cost.total_ns)


def grid_cost(work: Work, hw: HardwareProfile, params: KernelParams, grid: Grid, repeat: bool, resident: bool) -> Cost:
    """The cost of one grid."""
    shape, memory, kernel = work.shape, hw.memory, hw.kernel
    assert isinstance(shape, MatmulShape)
    rows, cols = up16(shape.m / grid.rows), up16(shape.n / grid.cols)
    cores = min(
        hw.chip.cube_cores,
        ceil(shape.n / cols) * ceil(shape.m / rows) * grid.splits * min(shape.batch, hw.chip.cube_cores),
    )
    multiply, load, tiles = share_ns(shape, hw, rows, min(cols, up16(shape.n)), shape.k / grid.splits)
    multiply, load = (grid.batches * (t + 1000 * tiles * kernel.tile_us) for t in (multiply, load))

    split = traffic(work, hw, resident)
    kept = prefetched_in_l2(work, hw)
    weights = min(work.cold_read_bytes - kept, split.hbm_read)
    fullest = weights * cols * grid.batches / (shape.n * shape.batch * grid.splits)
    stream = stream_ns(shape, hw, cores, weights, fullest, work.gm_bytes - weights - kept, split.hbm - weights)
    stream += kept / min(cores * memory.core_l2_gbps, memory.l2_read_gbps)
    # Loading counts by itself: it is the last leg of the stream, and again wherever shares read the same bytes.
    batch = shape.batch
    others = vector_beside_ns(shape.dtype, batch * shape.k * shape.n, batch * shape.m * shape.n, hw, params)
    body = max(multiply + stream, load, others)
    if grid.splits > 1:
        body += 1000 * kernel.split_us + 4 * shape.batch * shape.m * shape.n * grid.splits / memory.cube_gbps
    return Cost(start_ns(hw, params, cores, repeat), body, cores, multiply, max(stream, load), split.hbm, others)


def stream_ns(
    shape: MatmulShape | GroupedShape,
    hw: HardwareProfile,
    cores: int,
    weights: float,
    fullest: float,
    moved: float,
    spilled: float,
) -> float:
    """Streaming from and to memory, ns.

    weights: bytes of them from HBM, `fullest` of which one core draws. moved: bytes of operands and outputs, `spilled`
    of which L2 does not hold. Weights stream below the sustained rate where they are row-major in a tall product or
    FRACTAL_NZ in a flat one.
    """
    memory = hw.memory
    rows = shape.m if isinstance(shape, MatmulShape) else max(shape.loads, default=0)
    share, tall = 1.0, rows > TALLEST
    if tall != (shape.weight_format == "nz"):
        share = memory.nd_tall_share if tall else memory.nz_flat_share
    stream = max(weights / hbm_rate(cores, hw, share), fullest / memory.core_hbm_gbps)
    # Operands and outputs pass through L2; what does not fit there cannot come faster than HBM gives it.
    return stream + max(moved / memory.cube_gbps, spilled / hbm_rate(cores, hw))


def share_ns(
    shape: MatmulShape | GroupedShape,
    hw: HardwareProfile,
    rows: int,
    cols: int,
    depth: float,
    tallest: int = TALLEST,
    widest: int = WIDEST,
) -> tuple[float, float, int]:
    """(multiplying ns, loading ns, tiles) of a share of rows x cols outputs over `depth` of k.

    tallest, widest: limits of a tile.
    """
    chip, memory = hw.chip, hw.memory
    blocks = ceil(rows / chip.cube_m) * ceil(cols / chip.cube_n) * depth / chip.cube_k
    multiply = blocks * 1000 / chip.clock_mhz / _RATE.get(shape.dtype, 1.0) / hw.kernel.cube_efficiency
    height = min(rows, tallest)
    width = min(cols, widest, max(16, chip.l0c_bytes // 4 // height))
    down, across = ceil(rows / height), ceil(cols / width)
    right = DTYPE_BITS[shape.weight_dtype if shape.dtype == "int8" else shape.dtype] / 8
    load = depth * (rows * across * DTYPE_BITS[shape.dtype] / 8 + cols * down * right) / memory.core_l2_gbps
    return multiply, load, down * across


def vector_beside_ns(dtype: DType, weights: int, outputs: int, hw: HardwareProfile, params: KernelParams) -> float:
    """Vector cores next to the cube.

    Rescaling the outputs of an INT8 product, or unpacking weights that are multiplied as 16 bit.
    """
    elements = outputs if dtype in ("int8", "int4") else weights
    return elements / hw.chip.vector_cores * params.element_ns if params.element_ns else 0.0
