"""The cycles by which the tiling of large products compares basic blocks.

Source: estimate/cache_tiling_basic_block_est.cc, common/cache_tiling_soc_spec.h and
common/cache_tiling_request_bytes.cc in src/common/op_host/op_tiling/gemm (github.com/Hayden727/cann-ops, commit
eef0ff7, a copy of gitee.com/ascend/cann-ops). Rates are that code's own, in bytes a cycle; one product, not a batch.
"""

from __future__ import annotations

from math import exp

from scenarios.records import dataclass
from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.matmul_blocks import Blocked
from sim.kernel.tiling.product import BLOCK, Product, align, ceil_div

_L1_READ, _L1_WRITE, _L0A, _L0B, _L0C = 256, 256, 256, 128, 128
_L2_TOTAL, _L2_CORE = 2550, 128
_L2_READ_DELAY, _L2_WRITE_DELAY, _HBM_READ_DELAY = 236, 96, 347
_READS, _WRITES = 64, 48
#: HBM bytes a cycle, of all cores and of one; chips whose L2 is not 192 MB have less.
_HBM, _HBM_SMALL = (850, 37), (530, 27)
#: The memory agents, their clock, and the share of a row-major burst.
_AGENTS, _AGENT_GHZ, _ROW_MAJOR = 8, 2, 0.75
#: Rows of these bytes that lie side by side merge into one burst.
_MERGED = frozenset({32, 64, 128, 160, 192, 224, 256})


@dataclass(frozen=True, slots=True)
class _Core:
    """What one core does: its share of the outputs, its tile, and what it keeps in L1."""

    product: Product
    chip: TilingChip
    tile: Blocked
    m_cores: int
    n_cores: int
    share_m: int
    share_n: int
    padded_m: int
    padded_n: int
    a_loads: int
    b_loads: int
    shuffled: bool
    inwards: bool

    @property
    def active(self) -> int:
        return min(self.m_cores * self.n_cores, self.chip.cube_cores)

    @property
    def m_run(self) -> int:
        return min(self.m_cores, self.active)

    @property
    def n_run(self) -> int:
        return min(self.n_cores, self.active // self.m_run)

    @property
    def ghz(self) -> float:
        return 1.8 if self.chip.l2_bytes == 192 << 20 else 1.5


def layout(product: Product, tile: Blocked) -> tuple[int, int, int, int]:
    """Cores along m and n once tiles are whole, and the padded rows and columns of a core."""
    m_blocks, _, n_blocks = product.blocks
    tile_m, tile_n = tile.tile_m // BLOCK, tile.tile_n // BLOCK
    core_m = min(align(ceil_div(m_blocks, tile.m_cores), tile_m), m_blocks)
    core_n = min(align(ceil_div(n_blocks, tile.n_cores), tile_n), n_blocks)
    return ceil_div(m_blocks, core_m), ceil_div(n_blocks, core_n), core_m * BLOCK, core_n * BLOCK


def _core(product: Product, chip: TilingChip, tile: Blocked) -> _Core:
    m_cores, n_cores, padded_m, padded_n = layout(product, tile)
    share_m, share_n = ceil_div(product.m, m_cores), ceil_div(product.n, n_cores)
    k = align(product.k, product.block_k)
    a_k, b_k = tile.ka >= k, tile.kb >= k
    by_m, by_n = padded_m // tile.tile_m, padded_n // tile.tile_n
    a_full, b_full = a_k and padded_m <= tile.tile_m, b_k and padded_n <= tile.tile_n
    if a_full and b_full:
        loads = 1, 1
    elif b_full:
        loads = by_n, 1
    elif a_full:
        loads = (1, 1) if b_k else (1, by_m)
    elif a_k:
        loads = 1, by_m
    elif b_k:
        loads = by_n, 1
    else:
        loads = by_n, by_m
    item = product.item_bytes
    active = min(m_cores * n_cores, chip.cube_cores)
    m_run = min(m_cores, active)
    reach = 8 if m_cores * n_cores > 24 else max(m_run, min(n_cores, active // m_run))
    shuffled = (share_m != 1 or share_n != 1) and reach > 2 and ceil_div(product.k, tile.ka) > reach // 2
    inwards = share_m * item % 32 == 0 and product.k * item % 32 == 0 and share_n * item % 32 == 0
    return _Core(
        product=product,
        chip=chip,
        tile=tile,
        m_cores=m_cores,
        n_cores=n_cores,
        share_m=share_m,
        share_n=share_n,
        padded_m=padded_m,
        padded_n=padded_n,
        a_loads=loads[0],
        b_loads=loads[1],
        shuffled=shuffled,
        inwards=inwards,
    )


def _requests(rows: int, cols: int, whole: int, item: int, sizes: tuple[int, ...]) -> tuple[int, int]:
    """Bus requests that move `rows` x `cols` out of rows of `whole` elements, and the bytes that they reserve.

    Requests are 512, 256 or 128 bytes long (`sizes`) and start at a multiple of their length.
    """
    if cols == whole and (cols * item in _MERGED if sizes[0] == 512 else cols * item <= 256):
        rows, cols = 1, rows * cols
    count = reserved = 0
    pitch, length = whole * item, cols * item
    period = next(p for p in (1, 2, 4, 0) if p == 0 or pitch * p % sizes[0] == 0)
    seen = range(min(rows, period)) if period else range(min(rows, 64))
    each = [_row_requests(row * pitch, length, sizes) for row in seen]
    for index, (requests, size) in enumerate(each):
        repeats = (rows - index + len(each) - 1) // len(each)
        count, reserved = count + requests * repeats, reserved + size * repeats
    return count, reserved


def _row_requests(address: int, length: int, sizes: tuple[int, ...]) -> tuple[int, int]:
    """Requests of one row that starts at `address`."""
    count = reserved = 0
    end = address + length
    while address < end:
        if address % 128:
            size, step = 128, 128 - address % 128
        else:
            size = step = next((s for s in sizes if address % s == 0 and end - address >= s), 128)
        address, count, reserved = address + step, count + 1, reserved + size
    return count, reserved


def _same_address(length: int, pitch: int, rows: int) -> int:
    """How many requests of a row meet at one agent, at most."""

    def aligned(size: int) -> int:
        if size <= 128 or size == 256 or size >= 512:
            return 1
        return 2 if size <= 384 else 3

    def after_128(size: int) -> int:
        if size <= 128:
            return 1
        if size <= 256:
            return 2
        return 3 if size < 384 else max(2, aligned(size - 384))

    def after_256(size: int) -> int:
        if size <= 128:
            return 1
        return 2 if size < 256 else aligned(size - 256)

    def after_384(size: int) -> int:
        return 1 if size <= 128 else aligned(size - 128)

    if rows == 1:
        return aligned(length)
    if pitch % 128:
        return max(aligned(length), after_128(length), after_256(length), after_384(length)) + 1
    by_offset = {0: (), 1: (after_128, after_256, after_384), 2: (after_256,), 3: (after_128, after_256, after_384)}
    return max([aligned(length)] + [f(length) for f in by_offset[pitch % 512 // 128][: max(1, rows - 1)]])


def _side_rates(core: _Core, left: bool) -> tuple[float, float]:
    """Bytes a cycle into L1 of one core from L2 and from HBM."""
    product, tile, item = core.product, core.tile, core.product.item_bytes
    if left:
        rows = tile.tile_m if core.inwards else min(core.share_m, tile.tile_m)
        cols = tile.ka if core.inwards else min(product.k, tile.ka)
        rows, cols, whole = (cols, rows, product.m) if product.trans_a else (rows, cols, product.k)
        sharing = core.n_run
        alone = core.shuffled and core.n_run > core.m_run
    else:
        rows = tile.tile_n if core.inwards else min(core.share_n, tile.tile_n)
        cols = tile.kb if core.inwards else min(product.k, tile.kb)
        rows, cols, whole = (rows, cols, product.k) if product.trans_b else (cols, rows, product.n)
        sharing = core.m_run
        alone = core.shuffled and core.m_run >= core.n_run
    total = rows * cols * item
    count, reserved = _requests(rows, cols, whole, item, (512, 256, 128))
    merged = cols == whole and cols * item in _MERGED
    same = _same_address(total if merged else cols * item, whole * item, 1 if merged else rows)
    row_major = cols != whole or cols * item != 32

    def paced(delay: int) -> float:
        rate = total * _READS / (delay * count)
        spent = sharing * total / rate
        return rate * spent / (spent + delay / 2) * (_ROW_MAJOR if row_major else 1.0)

    readers = 1 if alone else min(core.active, sharing)
    spread = readers * rows * max(cols * item, 128) / 1e6
    penalty = readers * (same - 1) * count / (1 - 0.91 * exp(-0.053 * spread)) * 0.03
    agents = total / (count * core.active / _AGENTS * _AGENT_GHZ / core.ghz + penalty)
    hbm, hbm_core = _HBM if core.chip.l2_bytes == 192 << 20 else _HBM_SMALL
    straight = 128 * _AGENTS * _AGENT_GHZ / core.active / core.ghz * total / reserved
    l2 = min(_L2_TOTAL / core.active, _L1_WRITE, paced(_L2_READ_DELAY), _L2_CORE, agents)
    return l2, min(hbm / core.active, _L1_WRITE, paced(_HBM_READ_DELAY), hbm_core, straight, agents)


def _out_rate(core: _Core) -> float:
    """Bytes a cycle of a core's outputs on their way to L2."""
    product, tile, item = core.product, core.tile, core.product.out_bytes
    rows = tile.tile_m if core.inwards else min(core.share_m, tile.tile_m)
    cols = tile.tile_n if core.inwards else min(core.share_n, tile.tile_n)
    total = rows * cols * item
    count, _ = _requests(rows, cols, product.n, item, (256, 128))
    rate = total * _WRITES / (_L2_WRITE_DELAY * count)
    spent = total / rate
    rate *= spent / (spent + _L2_WRITE_DELAY / 2) * _ROW_MAJOR
    agents = total / (count * core.active / _AGENTS * _AGENT_GHZ / core.ghz)
    return min(_L0C, _L2_TOTAL / core.active, rate, _L2_CORE, agents)


def _load_cycles(core: _Core) -> tuple[float, float]:
    """Cycles of all loads into L1 of a core, and of one tile's."""
    product, tile, item = core.product, core.tile, core.product.item_bytes
    a_l2, a_hbm = _side_rates(core, True)
    b_l2, b_hbm = _side_rates(core, False)
    a_bytes, b_bytes = core.share_m * product.k * item, core.share_n * product.k * item
    if core.inwards:
        a_bytes = align(core.share_m, tile.tile_m) * align(product.k, tile.ka) * item
        b_bytes = align(core.share_n, tile.tile_n) * align(product.k, tile.kb) * item
    one = tile.tile_m * tile.ka * item / a_hbm + tile.tile_n * tile.kb * item / b_hbm
    inputs = (product.m + product.n) * product.k * item
    if not core.shuffled and inputs + product.m * product.n * product.out_bytes <= core.chip.l2_bytes:
        left = a_bytes / a_hbm + a_bytes * (core.a_loads - 1) / a_l2
        return left + b_bytes / b_hbm + b_bytes * (core.b_loads - 1) / b_l2, one
    a_hit, b_hit = _hits(core)
    left = a_bytes * core.a_loads * (a_hit / a_l2 + (1 - a_hit) / a_hbm)
    return left + b_bytes * core.b_loads * (b_hit / b_l2 + (1 - b_hit) / b_hbm), one


def _hits(core: _Core) -> tuple[float, float]:
    """The parts of both sides' loads that L2 serves."""
    product, tile, item = core.product, core.tile, core.product.item_bytes
    a_parts, b_parts = ceil_div(product.k, tile.ka), ceil_div(product.k, tile.kb)
    a_all, b_all = product.m * product.k * item * a_parts, product.k * product.n * item * b_parts
    a_strip = core.m_run * tile.tile_m * tile.ka * item * a_parts
    b_strip = core.n_run * tile.tile_n * tile.kb * item * b_parts
    a_miss, b_miss = 1 / core.n_run, 1 / core.m_run
    room = core.chip.l2_bytes
    if a_all + b_all <= room or a_all + b_strip <= room:
        a_miss, b_miss = a_miss / core.a_loads, b_miss / core.b_loads
    elif b_all + a_strip <= room or a_strip + b_strip <= room:
        b_miss /= core.b_loads
    return 1 - a_miss, 1 - b_miss


def block_cycles(product: Product, chip: TilingChip, tile: Blocked) -> float:
    """Cycles of the product in this tile."""
    core = _core(product, chip, tile)
    item = product.item_bytes
    step_k = 4 if item == 4 else product.block_k
    step = tile.tile_m // BLOCK * (tile.tile_k // step_k) * tile.tile_n // BLOCK
    slower = max(tile.tile_m * tile.tile_k * item / _L0A / step, tile.tile_n * tile.tile_k * item / _L0B / step, 1.0)
    m, n, k = align(core.share_m, BLOCK), align(core.share_n, BLOCK), align(product.k, product.block_k)
    cube = align(m, tile.tile_m) * align(k, tile.kb) * align(n, tile.tile_n) / (BLOCK * step_k * BLOCK) * slower
    load, load_one = _load_cycles(core)
    a_repeats, b_repeats = core.padded_n // tile.tile_n, core.padded_m // tile.tile_m
    to_l0 = m * k * item * a_repeats / _L0A + n * k * item * b_repeats / _L0B
    to_l0_one = tile.tile_k * item * (tile.tile_m / _L0A + tile.tile_n / _L0B)
    rate = _out_rate(core)
    out = core.share_m * core.share_n * product.out_bytes / rate
    out_one = tile.tile_m * tile.tile_n * product.out_bytes / rate
    total = _overlap(core, step, cube, (load, load_one), (to_l0, to_l0_one), (out, out_one))
    return total * ceil_div(core.m_cores * core.n_cores, chip.cube_cores)


def _overlap(
    core: _Core, step: int, cube: float, load: tuple[float, float], to_l0: tuple[float, float], out: tuple[float, float]
) -> float:
    """The longest of the pipes plus what stands before and after it; pairs are (all, one tile)."""
    doubled = core.tile.c_buffers == 2
    joined = not doubled and not core.shuffled
    longest = max(cube, to_l0[0], load[0] + out[0])
    if cube == longest:
        tail = out[1] if doubled else max(out[0] - step, out[1]) if joined else out[0]
        return longest + load[1] + to_l0[1] + tail
    if load[0] + out[0] == longest:
        if doubled:
            return longest + step + to_l0[1]
        rest = cube - load[0] - (step if joined else 0)
        return longest + to_l0[1] + max(step, rest)
    return longest + step + load[1] + out[0]
