"""The cores and tiles of MatMul, MatMulV2 and MatMulV3, as CANN's tiling code decides them.

MatMul (a static graph's name) and MatMulV2 share one rule: large, aligned products take basic blocks, all others the
layout that takes the fewest cycles of a small model of a core. MatMulV3 starts on all cores, except for few rows of
16-bit data, where it asks MatMulV2's rule. Sources stand with each function.
"""

from __future__ import annotations

from functools import lru_cache

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.matmul_bandwidth import block_cycles, layout
from sim.kernel.tiling.matmul_blocks import TILES, Blocked, block_product, takes_blocks
from sim.kernel.tiling.matmul_search import find
from sim.kernel.tiling.product import BLOCK, Product, ProductTiling, ceil_div

#: Most rows for which MatMulV3 asks MatMulV2's rule.
V3_FEW_ROWS = 128


@lru_cache(maxsize=4096)
def matmul_v2_tiling(product: Product, chip: TilingChip) -> ProductTiling:
    """Cores and tile of MatMul and MatMulV2.

    Source: `GenTiling` in src/common/op_host/op_tiling/cache_tiling.cc (github.com/Hayden727/cann-ops, commit eef0ff7).
    """
    if takes_blocks(product, chip):
        return _from_blocks(product, chip)
    return searched(product, chip)


def searched(product: Product, chip: TilingChip) -> ProductTiling:
    """The layout of fewest cycles; one block of columns a core where none fits."""
    chosen = find(product, chip)
    block_k = product.block_k
    if chosen is None:
        n_cores = min(chip.cube_cores, product.blocks[2])
        return ProductTiling(
            cores=n_cores,
            m_cores=1,
            n_cores=n_cores,
            k_cores=1,
            tile_m=BLOCK,
            tile_n=BLOCK,
            tile_k=block_k,
            load_k_a=block_k,
            load_k_b=block_k,
        )
    return ProductTiling(
        cores=chosen.m_cores * chosen.n_cores,
        m_cores=chosen.m_cores,
        n_cores=chosen.n_cores,
        k_cores=1,
        tile_m=chosen.m_l0 * BLOCK,
        tile_n=chosen.n_l0 * BLOCK,
        tile_k=chosen.k_l0 * block_k,
        load_k_a=chosen.ka_l1 * block_k,
        load_k_b=chosen.kb_l1 * block_k,
    )


def _from_blocks(product: Product, chip: TilingChip) -> ProductTiling:
    """The basic block that takes the fewest cycles; the first of equals."""
    narrow = product.bias and product.n > 256
    tried = [block_product(product, chip, tile) for tile in TILES if tile[1] <= 256 or not narrow]
    best: Blocked = min(tried, key=lambda tile: block_cycles(product, chip, tile))
    m_cores, n_cores, _, _ = layout(product, best)
    return ProductTiling(
        cores=min(m_cores * n_cores, chip.cube_cores),
        m_cores=m_cores,
        n_cores=n_cores,
        k_cores=1,
        tile_m=best.tile_m,
        tile_n=best.tile_n,
        tile_k=best.tile_k,
        load_k_a=best.ka,
        load_k_b=best.kb,
    )


@lru_cache(maxsize=4096)
def matmul_v3_tiling(product: Product, chip: TilingChip) -> ProductTiling:
    """Cores and tile of MatMulV3.

    Source: `DoBasicTiling`, `SetBaseBlockTiling` and `DoIncreTiling` in
    matmul/mat_mul_v3/op_host/op_tiling/matmul_v3_base_tiling.cpp (github.com/hicann/ops-nn, commit e5c3fa9). Its blocks
    are worked off in turn by all cores. The rarer ways (one side whole in L1, k split on one core or over cores) are
    not written down: they change the loads, not the cores, of 16-bit products.
    """
    few = product.m <= V3_FEW_ROWS and product.item_bytes == 2 and product.k * 2 % 256 == 0
    if few and product.trans_b and not product.trans_a and not product.b_nz and not product.bias:
        return matmul_v2_tiling(product, chip)
    tile_m, tile_n = _v3_base(product, chip)
    tile_k = 128 // product.item_bytes
    room = (chip.l1_bytes + 256) // 2
    ka, kb = (room // tile_m // tile_k // product.item_bytes, room // tile_n // tile_k // product.item_bytes)
    if (ka * tile_m + kb * tile_n) * tile_k * product.item_bytes > 2 * room:
        ka, kb = (ka // 2, kb) if tile_m <= tile_n else (ka, kb // 2)
    cores = chip.cube_cores
    m_cores = min(cores, ceil_div(product.m, tile_m))
    return ProductTiling(
        cores=cores,
        m_cores=m_cores,
        n_cores=max(1, cores // m_cores),
        k_cores=1,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        load_k_a=ka // 2 * tile_k,
        load_k_b=kb // 2 * tile_k,
    )


def _v3_base(product: Product, chip: TilingChip) -> tuple[int, int]:
    """128 x 256 outputs, or 256 x 128 where that loads less."""
    if not product.trans_a and not product.trans_b:
        return 128, 256
    if product.trans_a and product.trans_b:
        return 256, 128
    if product.b_nz:
        return 128, 256
    long = chip.cube_cores // 2 * 256
    tall, wide = product.m >= long, product.n >= long
    if tall and wide:
        by_m = ceil_div(product.m, 256) * product.n + ceil_div(product.n, 128) * product.m
        by_n = ceil_div(product.m, 128) * product.n + ceil_div(product.n, 256) * product.m
        return (256, 128) if by_m < by_n else (128, 256)
    if tall or (not wide and product.m > product.n):
        return 256, 128
    return 128, 256
