"""A gated feed-forward layer in one kernel (npu_ffn): two products on the cube cores, chained through global memory.

What the operator does is public: CANN's ops-transformer, ffn/ffn (design notes, tiling, the kernel for gated
activations).

- Its vector cores drive. Each owns a share of the first product and asks its cube core for one block of gate and one of
  up at a time, waits for them, asks for the next two and activates the last two meanwhile. A cube core serves its two
  vector cores in turn. Products and activated blocks pass through a workspace in global memory.
- All cores meet; then a cube core works off one share of the second product, as in a kernel of its own.
- The grid is laid down, not searched for: columns in blocks of 256 (second product: 128), what is left of the cores
  along the rows, K never split. Shares fill vector cores in order, so 38 shares keep 19 cube cores busy.

    time = start + first product + activating its last blocks + meeting + second product

Each product takes the time of a product (`sim.kernel.matmul`) on this grid. The first one takes more: a block is
loaded when it is asked for, so the cube waits for what fills half of L1 (the other half is filled while this one is
multiplied), but for the first row of blocks, whose wait is in the stream of the weights. No number here is fitted.
Assumed: that nothing is loaded ahead of a request, that the halves of L1 are full, that meeting costs as much as
starting.

The one measurement (A3 die, 2,080 x 896 x 4,864): 386.5 us against 323.1 in kernels of their own, a gain of 0.84. Here
377 against 334, 0.89. Rows of 896 elements are no whole lines of L2, in either. The cube multiplies for 43.5 % of the
measured time.
"""

from __future__ import annotations

from math import ceil

from scenarios.ops.program import DTYPE_BITS
from scenarios.ops.work import FfnShape, MatmulShape, Work
from scenarios.records import dataclass
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.busiest import LINE_BYTES
from sim.kernel.cost import Cost
from sim.kernel.matmul import LEFT_SHARE, multiply_ns, stream_ns, up16
from sim.kernel.time import Code
from sim.kernel.traffic import hbm_rate, traffic
from sim.kernel.vector import vector_gbps

#: Columns of a block of the first and of the second product; a narrower layer halves them.
FIRST_WIDTH, SECOND_WIDTH = 256, 128
#: Elements that a vector core activates at a time; a block of the cube is four times as tall where there are rows.
ACTIVATED_ELEMENTS = 4096
#: Elements of a block of the second product.
SECOND_ELEMENTS = 16384
#: Tallest tile of a block; a tile is at most WIDEST columns wide.
TALLEST, WIDEST = 128, 512


@dataclass(frozen=True, slots=True)
class Layout:
    """A product cut into `shares` of rows x cols outputs, each worked off in blocks of height x width."""

    shares: int
    rows: int
    cols: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Half:
    """One of the two products, ns: how long it takes, what its multiplying and its moving alone would; HBM bytes."""

    total_ns: float
    multiply_ns: float
    move_ns: float
    hbm_bytes: float


def ffn_cost(work: Work, hw: HardwareProfile, params: KernelParams, code: Code, resident: bool) -> Cost:
    """The cost of the fused kernel; `code` and `resident` as in `sim.kernel.price.price`."""
    shape = work.shape
    assert isinstance(shape, FfnShape)
    grid = first_layout(shape, hw)
    block_ns = _activate_ns(work, hw, grid, resident)
    activate_ns = block_ns * ceil(grid.rows / grid.height) * ceil(grid.cols / grid.width)
    first, second = _first(shape, hw, grid, activate_ns, resident), _second(shape, hw, resident)
    # The last blocks are activated when the cube is through with the first product.
    last_rows = grid.rows - (ceil(grid.rows / grid.height) - 1) * grid.height
    rendezvous_ns = 1000 * (hw.kernel.start_us + hw.chip.cube_cores * hw.kernel.core_us)
    return Cost(
        head_ns=1000 * max(params.fixed_us, hw.kernel.start_us),
        body_ns=first.total_ns + block_ns * last_rows / grid.height + rendezvous_ns + second.total_ns,
        cores=hw.chip.cube_cores,
        compute_ns=first.multiply_ns + second.multiply_ns,
        memory_ns=first.move_ns + second.move_ns,
        hbm_bytes=first.hbm_bytes + second.hbm_bytes,
        beside_ns=activate_ns,
    )


def first_layout(shape: FfnShape, hw: HardwareProfile) -> Layout:
    """Shares of gate and up over the vector cores: `cols` columns of each."""
    width = _halved(FIRST_WIDTH, shape.intermediate)
    height = _halved(ACTIVATED_ELEMENTS // width, shape.m)
    if 4 * height <= shape.m:
        height *= 4
        accumulated = hw.chip.l0c_bytes // (4 * width)
        if width == FIRST_WIDTH and accumulated < shape.m:
            height = accumulated
    return _laid(shape.m, shape.intermediate, height, width, hw.chip.vector_cores)


def second_layout(shape: FfnShape, hw: HardwareProfile) -> Layout:
    """Shares of the second product over the cube cores."""
    width = _halved(SECOND_WIDTH, shape.hidden)
    height = _halved(min(SECOND_ELEMENTS // width, hw.chip.l0c_bytes // (4 * width)), shape.m)
    return _laid(shape.m, shape.hidden, height, width, hw.chip.cube_cores)


def _halved(side: int, most: int) -> int:
    """`side`, halved until it is at most `most`; 16 is the smallest."""
    while side > max(16, most):
        side //= 2
    return max(16, side)


def _laid(m: int, n: int, height: int, width: int, cores: int) -> Layout:
    """Columns first, a block's width at least; then rows over what is left of `cores`."""
    cols = max(width, up16(n / min(cores, ceil(n / width))))
    across = ceil(n / cols)
    rows = up16(m / max(1, cores // across))
    while height > max(16, rows):
        height //= 2
    return Layout(across * ceil(m / rows), rows, cols, height, width)


def _first(shape: FfnShape, hw: HardwareProfile, grid: Layout, activate_ns: float, resident: bool) -> Half:
    """Gate and up, two products on every share; no block of them is loaded while the one before is multiplied."""
    chip, element = hw.chip, _element_bytes(shape)
    served = max(1, chip.vector_cores // chip.cube_cores)
    cores = min(chip.cube_cores, ceil(grid.shares / served))
    products = 2 * min(served, grid.shares)  # that follow one another on a cube core
    whole = MatmulShape(
        1,
        shape.m,
        k=shape.hidden,
        n=2 * shape.intermediate,
        dtype=shape.dtype,
        weight_dtype=shape.dtype,
        weight_format="nd",
    )
    multiply, load, blocks = _share_ns(whole, hw, grid, min(grid.height, TALLEST))
    multiply, load = products * multiply, products * load
    block_bytes = element * whole.k * (grid.height + grid.width)
    wait = min(block_bytes, chip.l1_bytes / 2) / _l1_gbps(whole.k * element, hw)
    waits = products * (blocks - ceil(grid.cols / grid.width)) * wait
    # The blocks of products stay in a small ring; what L2 must hold is the input and what has been activated.
    inputs, activated = element * shape.m * shape.hidden, element * shape.m * shape.intermediate
    work = Work(
        "cube", whole, cold_read_bytes=element * whole.k * whole.n, warm_read_bytes=inputs, write_bytes=activated
    )
    stream, hbm = _stream(work, hw, cores, products * grid.cols, inputs + 2 * activated, resident)
    return Half(max(multiply + stream + waits, load, activate_ns), multiply, max(stream + waits, load), hbm)


def _second(shape: FfnShape, hw: HardwareProfile, resident: bool) -> Half:
    """Down: one share a core."""
    grid, element = second_layout(shape, hw), _element_bytes(shape)
    whole = MatmulShape(
        1,
        shape.m,
        k=shape.intermediate,
        n=shape.hidden,
        dtype=shape.dtype,
        weight_dtype=shape.dtype,
        weight_format="nd",
    )
    multiply, load, _ = _share_ns(whole, hw, grid, grid.height)
    activated, outputs = element * shape.m * whole.k, element * shape.m * whole.n
    work = Work(
        "cube", whole, cold_read_bytes=element * whole.k * whole.n, warm_read_bytes=activated, write_bytes=outputs
    )
    stream, hbm = _stream(work, hw, grid.shares, grid.cols, activated + outputs, resident)
    return Half(max(multiply + stream, load), multiply, max(stream, load), hbm)


def _share_ns(shape: MatmulShape, hw: HardwareProfile, grid: Layout, tallest: int) -> tuple[float, float, int]:
    """(multiplying ns, loading ns, tiles) of one share of `grid`."""
    chip, element = hw.chip, DTYPE_BITS[shape.dtype] // 8
    blocks = ceil(grid.rows / 16) * ceil(grid.cols / 16) * ceil(shape.k * element / 32)
    height = min(grid.rows, tallest)
    width = min(grid.cols, grid.width, WIDEST, max(16, chip.l0c_bytes // 4 // height))
    down, across = ceil(grid.rows / height), ceil(grid.cols / width)
    load = shape.k * element * (grid.rows * across + grid.cols * down) / _l1_gbps(shape.k * element, hw)
    return multiply_ns(blocks, shape.dtype, hw), load, down * across


def _l1_gbps(row_bytes: int, hw: HardwareProfile) -> float:
    """What a core loads into L1: rows that are no whole lines of L2 load slowly, as in a product of its own."""
    return hw.memory.core_l2_gbps * (LEFT_SHARE if row_bytes % LINE_BYTES else 1.0)


def _stream(work: Work, hw: HardwareProfile, cores: int, cols: int, moved: int, resident: bool) -> tuple[float, float]:
    """(streaming ns, HBM bytes) of a product of which the fullest core works on `cols` columns."""
    shape, split = work.shape, traffic(work, hw, resident)
    assert isinstance(shape, MatmulShape)
    weights = min(work.cold_read_bytes, split.hbm_read)
    fullest = weights * min(1.0, cols / shape.n) / hw.memory.core_hbm_gbps
    streamed = stream_ns(shape, hw, cores, weights, 0)
    # What passes between the products and does not fit L2 cannot come faster than HBM gives it.
    return max(streamed, fullest) + moved / hbm_rate(cores, hw), split.hbm


def _activate_ns(work: Work, hw: HardwareProfile, grid: Layout, resident: bool) -> float:
    """Activating one block on every vector core that has a share, with one buffer each for what comes and goes."""
    shape = work.shape
    assert isinstance(shape, FfnShape)
    each, element = grid.height * grid.width, _element_bytes(shape)
    moving = element * each * (2 / hw.memory.core_l2_gbps + 1 / hw.memory.core_write_gbps)  # two halves in, one out
    params = hw.programs.get("swiglu", hw.programs["elementwise"])
    together = 3 * element * grid.shares * each
    return each * params.element_ns + max(moving, together / vector_gbps(together, hw, resident))


def _element_bytes(shape: FfnShape) -> int:
    return DTYPE_BITS[shape.dtype] // 8
