"""Basic blocks: how large products are cut, for one choice of tile.

A tile of a fixed table is laid over the cores in several ways; the way that loads the fewest bytes for the arithmetic
that the chip can feed is kept. `matmul_bandwidth` then picks among the tiles.
Source, in src/common/op_host/op_tiling/gemm: cache_tiling_basic.h, cache_tiling_basic_block.cc and
cache_tiling_basic_block_calc.cc (github.com/Hayden727/cann-ops, commit eef0ff7, a copy of gitee.com/ascend/cann-ops).
One product, not a batch; k is not split.
"""

from __future__ import annotations

from math import gcd, sqrt

from scenarios.records import dataclass
from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.product import BLOCK, Product, align, ceil_div

#: Tiles tried, in this order: rows, columns, and k in bytes of two buffers' halves.
TILES: tuple[tuple[int, int, int], ...] = (
    (64, 64, 256), (64, 64, 512), (64, 64, 1024), (64, 128, 256), (64, 128, 512), (64, 256, 256), (128, 64, 256),
    (128, 64, 512), (128, 128, 256), (128, 128, 512), (256, 64, 256), (96, 320, 256), (128, 192, 256), (128, 256, 256),
    (192, 128, 256), (256, 128, 256), (320, 96, 256), (320, 64, 256), (64, 320, 256), (512, 64, 128), (64, 512, 128),
)  # fmt: skip
#: Tiles whose accumulator has two buffers.
TWO_ACCUMULATORS = frozenset({(64, 64, 1024), (128, 128, 512)})
#: Bytes of a full burst, of an aligned one, and of a load worth its start.
_LINE, _ALIGN, _LOAD_BYTES = 512, 256, 64 * 1024
#: How much dearer a miss in L2 is than a hit, and a read of the same address by all cores.
_MISS, _SAME_ADDRESS = 2.9, 1.2
#: Shorter sides never take basic blocks.
MIN_SIDE = 256


@dataclass(frozen=True, slots=True)
class Blocked:
    """One tile laid over the cores. Sizes in elements; ka, kb: k of one load of either side into L1."""

    m_cores: int
    n_cores: int
    tile_m: int
    tile_n: int
    ka: int
    kb: int
    tile_k: int
    c_buffers: int


@dataclass(frozen=True, slots=True)
class _Sweet:
    """Flops a byte where the chip turns from memory-bound to compute-bound, and the smallest share of busy cores."""

    high: float
    low: float
    busy_high: float
    busy_low: float


def _sweet(product: Product, chip: TilingChip) -> _Sweet:
    scale = {1: 2.0, 2: 1.0, 4: 0.25}[product.item_bytes]
    if chip.cube_cores == 24:
        return _Sweet(140 * scale, 73 * scale, 0.7, 0.8)
    if chip.l2_bytes == 192 << 20:
        return _Sweet(117 * scale, 61 * scale, 0.85, 1.0)
    return _Sweet(195 * scale, 101 * scale, 0.5, 0.75)


def takes_blocks(product: Product, chip: TilingChip) -> bool:
    """Whether a product is large and aligned enough for basic blocks."""
    m, k, n, item = product.m, product.k, product.n, product.item_bytes
    if product.a_nz or min(m, k, n) <= MIN_SIDE or k * (m + n) * 2 * item / chip.cube_cores <= chip.l1_bytes:
        return False
    inner_a, inner_b = (m if product.trans_a else k), (k if product.trans_b else n)
    return inner_a * item % 32 == 0 and inner_b * item % 32 == 0


@dataclass(frozen=True, slots=True)
class _Fit:
    """A product and one tile, with the costs of a byte of either side (a_cost, b_cost, times the side's length)."""

    product: Product
    chip: TilingChip
    tile_m: int
    tile_n: int
    tile_k: int
    rows: int
    cols: int
    a_cost: float
    b_cost: float
    ratio: float
    sweet: _Sweet
    bound: float
    busy: float
    fits_l2: bool


def _inner_cost(inner_bytes: int) -> float:
    if inner_bytes % _LINE == 0:
        return 1.0
    return 2.0 if inner_bytes > _LINE else 2.5


def _fit(product: Product, chip: TilingChip, tile: tuple[int, int, int]) -> _Fit:
    item = product.item_bytes
    tile_m, tile_n = align(min(tile[0], product.m), BLOCK), align(min(tile[1], product.n), BLOCK)
    tile_k = align(min(tile[2] * 2 // item, product.k), product.block_k)
    inner_a = (product.m if product.trans_a else product.k) * item
    inner_b = (product.k if product.trans_b else product.n) * item
    a, b = _inner_cost(inner_a), _inner_cost(inner_b)
    sweet = _sweet(product, chip)
    held = chip.l2_bytes / (product.k * item)
    large = (inner_a % _LINE != 0 or product.m > held) and (inner_b % _LINE != 0 or product.n > held)
    return _Fit(
        product=product,
        chip=chip,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        rows=ceil_div(product.m, tile_m),
        cols=ceil_div(product.n, tile_n),
        a_cost=a * product.m,
        b_cost=b * product.n,
        ratio=a / b,
        sweet=sweet,
        bound=sweet.high if large else sweet.low,
        busy=sweet.busy_high if large else sweet.busy_low,
        fits_l2=held >= min(product.m, product.n),
    )


@dataclass(frozen=True, slots=True)
class _Cut:
    """Cores along m and n, tiles along them, and the tile."""

    m_cut: int
    n_cut: int
    rows: int
    cols: int
    tile_m: int
    tile_n: int


@dataclass(frozen=True, slots=True)
class _Load:
    """How good a cut is. held: "both", "left", "right" or "" stays in L1; min_k: of a load of the other side."""

    blocks: float
    busy: float
    skew: int
    merit: float
    min_k: int
    held: str


def block_product(product: Product, chip: TilingChip, tile: tuple[int, int, int]) -> Blocked:
    """The product cut into `tile`, laid over the cores."""
    fit = _fit(product, chip, tile)
    item = product.item_bytes
    intensity = 2.0 * product.m * product.n / (fit.a_cost * fit.cols + fit.b_cost * fit.rows) / item
    whole = align(product.m, BLOCK) % fit.rows == 0 and align(product.n, BLOCK) % fit.cols == 0
    share = 1.0 if whole else _l2_share(product, chip)
    bound_by = min(2.0 * product.k * share / product.out_bytes, intensity)
    best: tuple[_Cut, _Load] | None = None
    for m_cut, n_cut in _cuts(fit):
        cut = _Cut(m_cut, n_cut, fit.rows, fit.cols, fit.tile_m, fit.tile_n)
        if intensity >= fit.sweet.low:
            cut = _evened(fit, cut)
        load = _load(fit, cut)
        if best is None or _improves(fit, best[1], load, bound_by, intensity):
            best = cut, load
    assert best is not None
    cut, load = best
    ka, kb = _k_loads(fit, cut, load)
    k_l0 = _k_step(fit, cut, min(ka, kb))
    return Blocked(
        m_cores=min(cut.m_cut, cut.rows),
        n_cores=min(cut.n_cut, cut.cols),
        tile_m=cut.tile_m,
        tile_n=cut.tile_n,
        ka=ka,
        kb=kb,
        tile_k=k_l0,
        c_buffers=2 if tile in TWO_ACCUMULATORS else 1,
    )


def _l2_share(product: Product, chip: TilingChip) -> float:
    """What of the way out is hidden, by how much of L2 the output takes."""
    if product.item_bytes == 4:
        return 0.4
    out = product.m * product.n * product.item_bytes
    return 0.4 * (0.6 if out >= chip.l2_bytes else 0.8 if out >= chip.l2_bytes // 2 else 1.0)


def _cuts(fit: _Fit) -> list[tuple[int, int]]:
    """The ways to share the cores between rows and columns that are compared, in order."""
    cores, rows, cols = fit.chip.cube_cores, fit.rows, fit.cols
    m_gcd, n_gcd = gcd(rows, cores), gcd(cols, cores)
    cuts = {(m_gcd, min(cols, cores // m_gcd)), (min(rows, cores // n_gcd), n_gcd)}
    if m_gcd == 1:
        by_rows = max(1, min(rows, cores))
        cuts.add((by_rows, cores // by_rows))
    if n_gcd == 1:
        by_cols = max(1, min(cols, cores))
        cuts.add((cores // by_cols, by_cols))
    aims = [
        sqrt(fit.ratio * cores * fit.tile_n / fit.tile_m),
        sqrt(cores * rows * fit.tile_m / (cols * fit.tile_n) / fit.ratio),
    ]
    if cores in (m_gcd, n_gcd):
        aims.append(sqrt(cores))
    for aim in aims:
        for near in _near(aim, cores):
            cuts.add((min(near, rows), min(cores // near, cols)))
    return sorted(cuts)


def _near(aim: float, cores: int) -> tuple[int, int]:
    """The divisors of `cores` around `aim`."""
    if aim >= cores:
        return cores, cores
    divisors = [d for d in range(1, cores + 1) if cores % d == 0]
    above = next(d for d in divisors if d >= aim)
    below = [d for d in divisors if d < aim]
    return (above, below[-1]) if aim >= 1 and below else (1, 1)


def _evened(fit: _Fit, cut: _Cut) -> _Cut:
    """The same cut with the tile shrunk to equal shares, along sides whose tiles may have any size."""
    rows, tile_m, cols, tile_n = cut.rows, cut.tile_m, cut.cols, cut.tile_n
    if not fit.product.trans_a:
        rows, tile_m = _even(rows, tile_m, fit.product.m, cut.m_cut)
    if fit.product.trans_b:
        cols, tile_n = _even(cols, tile_n, fit.product.n, cut.n_cut)
    return _Cut(cut.m_cut, cut.n_cut, rows, cols, tile_m, tile_n)


def _even(count: int, tile: int, length: int, cut: int) -> tuple[int, int]:
    each = ceil_div(count, cut)
    busy = ceil_div(count, each)
    evened = ceil_div(align(length, BLOCK), each * cut * BLOCK) * BLOCK
    fewer = ceil_div(length, evened)
    if ceil_div(fewer, ceil_div(fewer, cut)) >= busy:
        return fewer, evened
    return count, tile


def _load(fit: _Fit, cut: _Cut) -> _Load:
    """The merit of a cut: what it loads, from L2 and beyond, and how many cores it keeps busy."""
    product, cores, item = fit.product, fit.chip.cube_cores, fit.product.item_bytes
    each_m, each_n = ceil_div(cut.rows, cut.m_cut), ceil_div(cut.cols, cut.n_cut)
    blocks = each_m * each_n * max(1.0, cut.n_cut * cut.m_cut / cores)
    busy_m, busy_n = ceil_div(cut.rows, each_m), ceil_div(cut.cols, each_n)
    active = busy_m * busy_n
    busy = active / align(active, cores)
    skew = abs(busy_m - busy_n)
    a_cost = fit.a_cost * (_SAME_ADDRESS if cut.n_cut == 1 else 1.0)
    b_cost = fit.b_cost * (_SAME_ADDRESS if cut.m_cut == 1 else 1.0)
    m_miss, n_miss = (1, 1) if fit.fits_l2 else (each_n, each_m)

    def merit(base: int, m_repeats: int, n_repeats: int) -> float:
        hits = a_cost * (m_repeats - m_miss) + b_cost * (n_repeats - n_miss)
        return base + 1.0 / (hits + _MISS * (product.m * m_miss + product.n * n_miss))

    k = align(product.k, product.block_k)
    bias = int(product.bias)
    room = fit.chip.l1_bytes
    if k <= fit.tile_k and (cut.tile_m * fit.tile_k + cut.tile_n * (bias + fit.tile_k)) * item * 2 <= room:
        repeats = cut.m_cut if cut.rows <= cut.m_cut or cut.cols <= cut.n_cut else cut.rows
        return _Load(blocks, busy, skew, merit(3, cut.n_cut, repeats), fit.tile_k, "both")
    if cut.rows <= cut.m_cut:
        smallest = _smallest_k(product, k, cut.tile_n)
        if (k * cut.tile_m + (smallest + bias) * cut.tile_n * 2) * item <= room:
            return _Load(blocks, busy, skew, merit(1, cut.n_cut, cut.m_cut), smallest, "left")
    if cut.cols <= cut.n_cut:
        smallest = _smallest_k(product, k, cut.tile_m)
        if ((k + bias) * cut.tile_n + smallest * cut.tile_m * 2) * item <= room:
            return _Load(blocks, busy, skew, merit(1, cut.n_cut, cut.m_cut), smallest, "right")
    rounded = merit(0, align(cut.cols, cut.n_cut), align(cut.rows, cut.m_cut))
    return _Load(blocks, busy, skew, rounded, fit.tile_k, "")


def _smallest_k(product: Product, k: int, side: int) -> int:
    """The shortest load of a side that is worth its start and divides k."""
    block = product.block_k
    wanted = ceil_div(_LOAD_BYTES, side * product.item_bytes * block)
    count = k // block
    root = int(sqrt(count))
    if wanted < root:
        return next((i for i in range(wanted, root) if count % i == 0), count) * block
    part = next((j for j in range(count // wanted, 0, -1) if count % j == 0), None)
    return (count // part if part else count) * block


def _improves(fit: _Fit, old: _Load, new: _Load, bound_by: float, intensity: float) -> bool:
    """Whether a later cut replaces the best so far: by blocks where arithmetic binds, else by loads or busy cores."""

    def sign(a: float, b: float) -> int:
        return (a > b) - (a < b)

    if bound_by >= fit.sweet.high:
        order = [sign(old.blocks, new.blocks), sign(new.busy, old.busy), sign(old.skew, new.skew)]
    else:
        busy = min(new.busy, old.busy)
        if busy >= fit.busy and intensity < fit.bound * busy * busy:
            order = [sign(new.merit, old.merit), sign(old.busy, new.busy)]
        else:
            order = [sign(new.busy, old.busy), sign(new.merit, old.merit)]
        order += [sign(old.skew, new.skew), sign(old.blocks, new.blocks)]
    return next((o for o in order if o), 0) > 0


def _k_loads(fit: _Fit, cut: _Cut, load: _Load) -> tuple[int, int]:
    """k of one load of either side into L1."""
    product, item = fit.product, fit.product.item_bytes
    block, line = product.block_k, _LINE // fit.product.item_bytes
    k = align(product.k, block)
    bias = int(product.bias)
    if ceil_div(product.k, fit.tile_k) <= 1 or load.held == "both":
        return fit.tile_k, fit.tile_k
    room = fit.chip.l1_bytes // item
    if load.held == "left":
        kb = load.min_k
        if product.trans_b and k % line == 0:
            most = min(k, (room - 2 * bias * cut.tile_n // item - k * cut.tile_m) // cut.tile_n // 2)
            kb = next((i for i in range(kb, most + 1, block) if k % i == 0 and i % line == 0), kb)
        return k, kb
    if load.held == "right":
        ka = load.min_k
        if not product.trans_a and k % line == 0:
            most = min(k, (room - bias * cut.tile_n // item - k * cut.tile_n) // cut.tile_m // 2)
            ka = next((i for i in range(ka, most + 1, block) if k % i == 0 and i % line == 0), ka)
        return ka, k
    return _k_loads_streamed(fit, cut, room)


def _k_loads_streamed(fit: _Fit, cut: _Cut, room: int) -> tuple[int, int]:
    """As `_k_loads`, where neither side stays in L1. room: elements of L1."""
    product = fit.product
    block, line = product.block_k, _LINE // product.item_bytes
    k = align(product.k, block)
    room -= 2 * int(product.bias) * cut.tile_n // product.item_bytes
    wanted = align(ceil_div(_LOAD_BYTES, max(cut.tile_m, cut.tile_n) * product.item_bytes), block)
    short = next((i for i in range(wanted, fit.tile_k + 1, block) if fit.tile_k % i == 0), fit.tile_k)
    whole = next((i for i in range(short, fit.tile_k + 1, block) if i % line == 0), fit.tile_k)
    ka, kb = (short if product.trans_a else whole), (whole if product.trans_b else short)
    aligned = k * product.item_bytes % _ALIGN == 0
    more_a = not product.trans_a and not aligned
    more_b = product.trans_b and not aligned
    if not product.trans_a and product.trans_b:
        more_a = more_b = True
    if more_a and more_b:
        ka = kb = min(k, room // ((cut.tile_m + cut.tile_n) * 2)) // whole * whole
    if more_a:
        most = min(k, (room - kb * cut.tile_n * 2) // (cut.tile_m * 2))
        if most >= ka:
            ka = most // ka * ka
            left = min(k // block, (room - ka * cut.tile_m * 2) // cut.tile_n // 2 // block)
            kb = block * _divisor(ka // block, left)
    elif more_b:
        most = min(k, (room - ka * cut.tile_m * 2) // (cut.tile_n * 2))
        if most >= kb:
            kb = most // kb * kb
            left = min(k // block, (room - kb * cut.tile_n * 2) // cut.tile_m // 2 // block)
            ka = block * _divisor(kb // block, left)
    return ka, kb


def _divisor(value: int, most: int) -> int:
    """The largest divisor of `value` up to `most`, and at any rate 1."""
    return next((d for d in range(most, 1, -1) if value % d == 0), 1)


def _k_step(fit: _Fit, cut: _Cut, k_l1: int) -> int:
    """k of one step through L0, elements."""
    block, item = fit.product.block_k, fit.product.item_bytes
    most = min(fit.chip.l0a_bytes // item // 2 // cut.tile_m, fit.chip.l0b_bytes // item // 2 // cut.tile_n)
    if item == 4 and (fit.product.trans_a or not fit.product.trans_b):
        most = most // BLOCK * BLOCK
    if most >= k_l1:
        return align(k_l1, block)
    count = ceil_div(k_l1, block)
    return block * next((i for i in range(most // block, 0, -1) if count % i == 0), ceil_div(most, block))
