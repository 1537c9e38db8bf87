"""The cores and tiles of QuantBatchMatmulV3: INT8 inputs, 16-bit outputs, scales per channel and per token."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.matmul import matmul_v3_tiling, searched
from sim.kernel.tiling.product import BLOCK, Product, ProductTiling, align, ceil_div

#: Products of more rows take whole blocks of 128 x 256 outputs, unless a side is as short as this.
FEW_ROWS = 256
#: From these sizes on a few rows of per-token scales get tiles of their own, on 16 or 24 cores.
_WIDE_N, _DEEP_K = 7168, 4096
#: Bytes of L1 that stay free.
_SPARE = 256


@lru_cache(maxsize=4096)
def quant_matmul_tiling(product: Product, chip: TilingChip, per_token: bool = True) -> ProductTiling:
    """Cores and tile of QuantBatchMatmulV3 with BF16 outputs.

    product: `item_bytes` 1. per_token: scales of the left side, one a row. Few rows go through the same search as
    MatMulV2, in blocks of 32 k; wide products of per-token scales then get the tile that needs the fewest rounds. More
    rows are cut into blocks (the choice among 64 to 512 by 64 to 512 is not written down: 128 x 256 stands for it).
    Source: `DoOpTiling`, `CheckUseBasicTiling` in matmul/quant_batch_matmul_v3/op_host/op_tiling/
    quant_batch_matmul_v3_basic_tiling.cpp and `UpdateSmallMTbeTiling`, `SetBlockDimsAndSingleCore` in
    quant_batch_matmul_v3_tiling.cpp (github.com/hicann/ops-nn, commit e5c3fa9). No block count of this kernel is in the
    measured data.
    """
    if min(product.m, product.n) > FEW_ROWS:
        blocks = matmul_v3_tiling(product, chip)
        count = ceil_div(product.m, blocks.tile_m) * ceil_div(product.n, blocks.tile_n)
        cores = min(chip.cube_cores, count)
        return replace(blocks, cores=cores, n_cores=max(1, cores // blocks.m_cores))
    plain = product.b_nz and not (product.trans_a or product.trans_b or product.bias)
    wide = product.n >= _WIDE_N and product.k >= _DEEP_K and product.m <= FEW_ROWS
    if per_token and plain and wide and chip.cube_cores in (16, 24):
        return _few_rounds(product, chip) or searched(product, chip)
    return searched(product, chip)


def _few_rounds(product: Product, chip: TilingChip) -> ProductTiling | None:
    """All rows in one tile, columns so that the rounds over the cores are few; None where one round is too little."""
    tile_m = align(product.m, BLOCK)
    half = chip.l0a_bytes // 2
    if product.m <= 96:
        tile_n = min(chip.l0c_bytes // 4 // tile_m, half // 64) // 32 * 32
        if product.n > tile_n * chip.cube_cores:
            return None
        tile_k = min(min(half // tile_m, half // tile_n) // 64 * 64, 128)
    else:
        widths = [w for w in (128, 192, 256) if w * tile_m <= 128 * 256]
        tile_n = max(widths, key=lambda width: (_round_score(product, chip, tile_m, width), -width), default=128)
        tile_k = 128
    step_a, step_b = (4, 4) if product.m > 96 else (8, 4)
    shrink_a = True
    while (step_a * tile_m + step_b * tile_n) * tile_k * 2 > chip.l1_bytes - _SPARE:
        step_a, step_b = (step_a // 2, step_b) if shrink_a else (step_a, step_b // 2)
        shrink_a = not shrink_a
    blocks = ceil_div(product.n, tile_n)
    cores = ceil_div(blocks, ceil_div(blocks, chip.cube_cores))
    return ProductTiling(
        cores=cores,
        m_cores=1,
        n_cores=cores,
        k_cores=1,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        load_k_a=step_a * tile_k,
        load_k_b=step_b * tile_k,
    )


def _round_score(product: Product, chip: TilingChip, tile_m: int, tile_n: int) -> int:
    """Ten for a core, a hundred less for each round, seven for each unit of reuse."""
    blocks = ceil_div(product.n, tile_n)
    rounds = ceil_div(blocks, chip.cube_cores)
    return 7 * (tile_n * tile_m // (tile_n + tile_m)) + 10 * ceil_div(blocks, rounds) - 100 * rounds
