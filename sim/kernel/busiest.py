"""What the busiest core of a matrix product does, on the tiling that CANN publishes (`sim.kernel.tiling`)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from scenarios.ops.program import DTYPE_BITS
from scenarios.ops.work import MatmulShape
from scenarios.records import dataclass
from sim.hardware.sections import Chip
from sim.kernel.tiling.chip import tiling_chip
from sim.kernel.tiling.matmul import matmul_v2_tiling, matmul_v3_tiling
from sim.kernel.tiling.product import BLOCK, Product, ProductTiling, align, ceil_div
from sim.kernel.tiling.quant_matmul import quant_matmul_tiling

#: Products of at most this many rows wait for their weights; of more, for their multiplications and all their bytes.
FEW_ROWS = 64
#: From these sizes on MatMulV3 takes a product (CANN's own test is not public; so in all profiles at hand but one).
V3_ROWS, V3_SIDE = 2048, 1024
#: Rows beyond this are rounded up to it for the tiling alone, which hardly differs and is then remembered.
_ROUND_ROWS = 128
#: An L2 line; rows of k that are no multiple of it load slowly. Tiles whose both sides are this small load often.
LINE_BYTES, _SMALL_TILE = 512, 64


@dataclass(frozen=True, slots=True)
class Busiest:
    """The busiest of `cores` cores.

    blocks: of the cube (16 x 16 x 32 bytes). loaded: bytes through its L1. right: bytes of the right side that it
    needs, each once. left: bytes of the left side, at most FEW_ROWS rows, once: later loads hide behind the stream.
    slow: it loads rows that are no whole lines, or small tiles.
    """

    cores: int
    blocks: int
    loaded: int
    right: int
    left: int
    slow: bool


@lru_cache(maxsize=16384)
def busiest(shape: MatmulShape, chip: Chip) -> Busiest:
    """The busiest core of `shape`; batches go to cores first, and each product to what cores are left for it."""
    if min(shape.batch, shape.m, shape.k, shape.n) < 1:
        return Busiest(1, 0, 0, 0, 0, False)
    item = max(1, DTYPE_BITS[shape.dtype] // 8)
    spread = min(shape.batch, chip.cube_cores)
    turns = ceil_div(shape.batch, spread)
    on = tiling_chip(chip, max(1, chip.cube_cores // spread))
    out = 4 if shape.dtype == "fp32" else 2
    nz = shape.weight_format == "nz"
    product = Product(shape.m, shape.k, shape.n, item, out, trans_b=shape.weight_rows == "n", b_nz=nz)
    rounded = replace(product, m=_rounded(shape.m))
    if item == 1:
        by_blocks, tiling = shape.m > FEW_ROWS, quant_matmul_tiling(rounded, on)
    else:
        by_blocks = shape.m >= V3_ROWS and min(shape.k, shape.n) >= V3_SIDE
        tiling = (matmul_v3_tiling if by_blocks else matmul_v2_tiling)(rounded, on)
    one = (_dealt if by_blocks else _own_share)(product, tiling, on.cube_cores)
    return Busiest(
        one.cores * spread, one.blocks * turns, one.loaded * turns, one.right * turns, one.left * turns, one.slow
    )


def _rounded(rows: int) -> int:
    """Rows as the tiling is asked for them."""
    return align(rows, BLOCK if rows <= 2 * _ROUND_ROWS else _ROUND_ROWS)


def _dealt(product: Product, tiling: ProductTiling, cores: int) -> Busiest:
    """Blocks of outputs dealt to the cores column by column; the first cores have one more, and few rims."""
    m, k, n, item = product.m, product.k, product.n, product.item_bytes
    high, wide = min(tiling.tile_m, align(m, BLOCK)), min(tiling.tile_n, align(n, BLOCK))
    down, across = ceil_div(m, high), ceil_div(n, wide)
    rounds = ceil_div(down * across, cores)
    missing = (down * high - m) // BLOCK * (rounds // down)  # rows of blocks that rims at the bottom do not have
    blocks = (rounds * (high // BLOCK) - missing) * (wide // BLOCK) * ceil_div(k, product.block_k)
    right = ceil_div(rounds, down) * wide * k * item
    loaded = rounds * (high + wide) * k * item
    return Busiest(min(cores, down * across), blocks, loaded, right, min(m, FEW_ROWS) * k * item, False)


def _own_share(product: Product, tiling: ProductTiling, cores: int) -> Busiest:
    """A rectangle of outputs a core, worked off tile by tile."""
    m, k, n, item = product.m, product.k, product.n, product.item_bytes
    rows = min(align(ceil_div(m, tiling.m_cores), BLOCK), align(m, BLOCK))
    cols = min(align(ceil_div(n, tiling.n_cores), BLOCK), align(n, BLOCK))
    if m > FEW_ROWS:  # shares are whole tiles
        rows, cols = min(align(rows, tiling.tile_m), align(m, BLOCK)), min(align(cols, tiling.tile_n), align(n, BLOCK))
    down, across = ceil_div(rows, tiling.tile_m), ceil_div(cols, tiling.tile_n)
    turns = max(1, ceil_div(tiling.m_cores * tiling.n_cores, cores))
    blocks = turns * (rows // BLOCK) * (cols // BLOCK) * ceil_div(k, product.block_k)
    loaded = turns * (across * rows + down * cols) * k * item
    left = min(rows, m, FEW_ROWS) * k * item
    slow = k * item % LINE_BYTES != 0 or max(tiling.tile_m, tiling.tile_n) <= _SMALL_TILE
    return Busiest(min(cores, tiling.cores), blocks, loaded, turns * cols * k * item, left, slow)
