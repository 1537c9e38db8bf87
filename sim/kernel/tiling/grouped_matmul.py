"""The cores and tile of GroupedMatmul: one product after another, each over all cores."""

from __future__ import annotations

from scenarios.records import dataclass
from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.product import BLOCK, align, ceil_div

#: Columns of a tile.
TILE_N = 256
#: INT8 weights stored as FRACTAL_NZ with up to this many rows a group may take wider shares, up to 1,024 columns.
_FEW_ROWS, _WIDEST, _WIDE_N = 32, 1024, 2048


@dataclass(frozen=True, slots=True)
class Groups:
    """Products of one kernel: m rows in all, k x n weights, of which `count` groups are multiplied.

    item_bytes: of an element. nz: weights stored as FRACTAL_NZ.
    """

    m: int
    k: int
    n: int
    count: int
    item_bytes: int = 2
    nz: bool = False


@dataclass(frozen=True, slots=True)
class GroupedTiling:
    """cores: what the kernel starts on. tile_m, tile_n, tile_k: elements. share_n: columns that a core takes at once.

    rounds: shares of the fullest core where rows spread evenly over the groups.
    """

    cores: int
    tile_m: int
    tile_n: int
    tile_k: int
    share_n: int
    rounds: int


def grouped_matmul_tiling(groups: Groups, chip: TilingChip) -> GroupedTiling:
    """Cores and tile of GroupedMatmul; it starts on all cube cores, however few blocks there are.

    Source: `CalMMTiling`, `RunFusionKernelTiling`, `FindBestSingleNPertoken` in
    gmm/grouped_matmul/op_host/op_tiling/grouped_matmul_tiling.cpp (github.com/hicann/ops-transformer, commit c29bc10).
    A tuning hint for one group may take fewer cores; the engines of this project give none.
    """
    cores = chip.cube_cores
    tile_k = align(chip.l0b_bytes // 2 // (TILE_N * groups.item_bytes), BLOCK)
    most = min(chip.l0a_bytes // 2 // (tile_k * groups.item_bytes), chip.l0c_bytes // (TILE_N * 4))
    tile_m = min(most, align(groups.m, BLOCK))
    share_n = TILE_N
    if groups.item_bytes == 1 and groups.nz and groups.m <= _FEW_ROWS * groups.count:
        share_n = _wide_share(groups, cores)
    rows = ceil_div(ceil_div(groups.m, max(1, groups.count)), tile_m)
    shares = groups.count * rows * ceil_div(groups.n, share_n)
    return GroupedTiling(cores, tile_m, TILE_N, tile_k, share_n, ceil_div(shares, cores))


def _wide_share(groups: Groups, cores: int) -> int:
    """Columns a core takes at once: as many as leave the last round full."""
    if ceil_div(groups.n, TILE_N) * groups.count <= cores:
        return TILE_N
    if groups.n >= _WIDE_N:
        return _WIDEST
    best, best_rest = TILE_N, groups.count * ceil_div(groups.n, TILE_N) % cores
    for width in range(_WIDEST, TILE_N, -TILE_N):
        rest = groups.count * ceil_div(groups.n, width) % cores
        if rest == 0:
            return width
        if rest > best_rest or (rest == best_rest and groups.n % width == 0):
            best, best_rest = width, rest
    return best
