"""Matrix products on the cube cores, laid over them as CANN's published tiling does (`sim.kernel.tiling`).

Cores, and what the busiest of them loads and multiplies, come from the tiling (`sim.kernel.busiest`). Then

    time = start + max(p-norm of (multiplying, streaming), weights of a core, loads through L1)  [+ left side]

- start: of the program, on all its cores (`fixed_us`; the published counts leave nothing to say about a core).
- multiplying: blocks of the busiest core at the clock and `cube_efficiency`; streaming: all bytes at what HBM sustains.
  They overlap, but not fully: the exponent `overlap_power` is 1 for one after the other, large for the slower alone.
- weights of a core: one core draws no more than `core_hbm_gbps`, so 12 cores do not reach what HBM gives.
- Few rows (up to 64) wait for their left side first, which each core loads from L2 at LEFT_SHARE of its rate, as other
  cores ask for the same lines. So do loads of rows that are no whole lines, and in small tiles.
- INT8: multiplications or loads, whichever is slower, then the stream. Its start is longer: it is started with vector
  cores, which rescale.

Row-major weights of few rows stream slower where k is no power of two (`nd_odd_share`: 1.0 to 1.2 TB/s for k of 3,072,
7,168 and 12,288, 1.4 to 1.6 for 1,024 to 4,096, on two chips and three stacks; why is not known, that rows of such a
pitch fall on the same banks is a guess). FRACTAL_NZ weights stream a little slower than row-major ones in a product of
few rows, and faster in one of many, whose row-major weights are rearranged on the way. Every number and what it was
fitted to stands in the profiles.
"""

from __future__ import annotations

from math import ceil

from scenarios.ops.program import DTYPE_BITS, DType
from scenarios.ops.work import GroupedShape, MatmulShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.busiest import FEW_ROWS, Busiest, busiest
from sim.kernel.cost import Cost
from sim.kernel.time import Code
from sim.kernel.traffic import hbm_rate, prefetched_in_l2, traffic

#: Blocks a cycle, relative to those of 16-bit inputs; a block is 32 bytes deep, so an INT8 block is twice the work.
_RATE = {"fp32": 0.5}
#: Part of a core's L2 rate at which all cores load the same bytes (122 GB/s seen in left sides, 97 in small tiles; 198
#: is one core's alone).
LEFT_SHARE = 0.5
#: The same of INT8 products, whose loads are long.
INT8_SHARE = 0.785
#: Instructions kept from a program that ran just before: rows from which on a twin is cheaper, and what it saves (gate
#: and up of 64 rows on 910B2: 11.8 and 9.6 us, icache misses 0.15 and 0; at 1 to 4 rows there is nothing to save).
TWIN_ROWS, TWIN_US = 16, 2.0


def matmul_cost(work: Work, hw: HardwareProfile, params: KernelParams, code: Code, resident: bool) -> Cost:
    """The cost of a product; `code` and `resident` as in `sim.kernel.price.price`."""
    shape = work.shape
    assert isinstance(shape, MatmulShape)
    core, split = busiest(shape, hw.chip), traffic(work, hw, resident)
    multiply = multiply_ns(core.blocks, shape.dtype, hw)
    kept = prefetched_in_l2(work, hw)
    weights = work.cold_read_bytes - kept
    stream = stream_ns(shape, hw, core.cores, weights, work.gm_bytes - work.cold_read_bytes)
    stream += kept / min(core.cores * hw.memory.core_l2_gbps, hw.memory.l2_read_gbps)
    fresh = weights / work.cold_read_bytes if work.cold_read_bytes else 0.0
    body, load = _body_ns(shape, hw, core, multiply, stream, fresh)
    others = vector_beside_ns(shape, shape.batch * shape.k * shape.n, shape.batch * shape.m * shape.n, hw, params)
    saved = TWIN_US if code == "twin" and shape.m >= TWIN_ROWS else 0.0
    head = 1000 * max(params.fixed_us - saved, hw.kernel.start_us)
    return Cost(
        head,
        max(body, others),
        cores=core.cores,
        compute_ns=multiply,
        memory_ns=max(stream, load),
        hbm_bytes=split.hbm,
        beside_ns=others,
    )


def _body_ns(
    shape: MatmulShape, hw: HardwareProfile, core: Busiest, multiply: float, stream: float, fresh: float
) -> tuple[float, float]:
    """(whole, loading alone), ns. fresh: part of the weights that comes from HBM."""
    memory = hw.memory
    drawn = fresh * core.right / memory.core_hbm_gbps
    if shape.dtype in ("int8", "int4"):
        loads = core.loaded / (INT8_SHARE * memory.core_l2_gbps) if shape.m > FEW_ROWS else 0.0
        return max(multiply, loads) + stream if loads else max(multiply, stream, drawn), loads
    left = core.left / (LEFT_SHARE * memory.core_l2_gbps)
    both = overlapped(multiply, stream, hw.kernel.overlap_power)
    if shape.m <= FEW_ROWS:
        return max(both, drawn) + left, left
    loads = core.loaded / (LEFT_SHARE * memory.core_l2_gbps) if core.slow else core.loaded / memory.core_l2_gbps
    return max(both, loads if core.slow else 0.0, left + drawn), loads


def overlapped(one: float, other: float, power: float) -> float:
    """The p-norm of two times: their sum for a power of 1, the longer alone for a large one."""
    longer = max(one, other)
    if longer <= 0:
        return 0.0
    return longer * float(((one / longer) ** power + (other / longer) ** power) ** (1 / power))


#: Multiply-adds of one block of 16-bit inputs: what an Ascend cube does in a cycle.
_BLOCK_MACS = 16 * 16 * 16


def multiply_ns(blocks: float, dtype: DType, hw: HardwareProfile) -> float:
    """`blocks` of 16 x 16 x 32 bytes on one core, ns; a cube of another size takes more or fewer cycles for one."""
    cycles = blocks * _BLOCK_MACS / (hw.chip.cube_m * hw.chip.cube_n * hw.chip.cube_k)
    return cycles * 1000 / hw.chip.clock_mhz / _RATE.get(dtype, 1.0) / hw.kernel.cube_efficiency


def stream_ns(
    shape: MatmulShape | GroupedShape, hw: HardwareProfile, cores: int, weights: float, moved: float
) -> float:
    """Streaming at the rate of HBM, ns. weights: bytes of them; moved: bytes of operands and outputs.

    In a network, operands are charged as if they came from HBM too: measured products show no gain of what L2 holds.
    """
    memory = hw.memory
    rows = shape.m if isinstance(shape, MatmulShape) else max(shape.loads, default=0)
    share, tall = 1.0, rows > 2 * FEW_ROWS
    if tall != (shape.weight_format == "nz"):
        share = memory.nd_tall_share if tall else memory.nz_flat_share
    elif not tall and isinstance(shape, MatmulShape) and _rows_of_odd_pitch(shape):
        share = memory.nd_odd_share
    return weights / hbm_rate(cores, hw, share) + moved / memory.hbm_gbps


def _rows_of_odd_pitch(shape: MatmulShape) -> bool:
    """Whether row-major weights of 16 bit have rows whose length is no power of two."""
    return shape.weight_rows == "n" and DTYPE_BITS[shape.weight_dtype] == 16 and shape.k & (shape.k - 1) != 0


def vector_beside_ns(
    shape: MatmulShape | GroupedShape, weights: int, outputs: int, hw: HardwareProfile, params: KernelParams
) -> float:
    """Vector cores next to the cube, ns.

    Rescaling the outputs of an INT8 product, or unpacking weights that are multiplied as 16 bit.
    """
    elements = outputs if shape.dtype in ("int8", "int4") else weights
    return elements / hw.chip.vector_cores * params.element_ns if params.element_ns else 0.0


def up16(value: float) -> int:
    """The next multiple of 16, the side of a cube block."""
    return 16 * ceil(value / 16)
