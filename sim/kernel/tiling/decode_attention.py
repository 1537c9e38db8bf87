"""The cores of decode attention: IncreFlashAttention, and FusedInferAttentionScore where it is the same program.

A task is one request and one KV head; its keys may be cut into parts that other cores take (flash decode). Tasks are
counted against vector cores, except in the modes in which the cube writes whole tiles.
"""

from __future__ import annotations

from typing import Literal

from scenarios.records import dataclass
from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.product import align, ceil_div

#: How the products are computed: on the vector cores alone, one vector core a task, the cube for two, or MLA.
Mode = Literal["vector", "normal", "cube", "mla"]
#: Keys below which a part is not cut further, and below which grouped heads, and paged caches, are not cut at all.
MIN_PART, MIN_GROUPED, MIN_PAGED = 512, 2048, 1024
#: Tasks, times stretches of 2,048 keys, from which on the cube view pays.
_CUBE_TASKS, _STRETCH = 128, 2048
#: Keys of one tile by queries a KV head (up to 4, up to 9, more); MLA takes 512.
_TILES, _MLA_TILE = (8192, 4096, 2048), 512


@dataclass(frozen=True, slots=True)
class Decode:
    """One decode step of attention.

    kv_tokens: of the longest request as the kernel sees it. A static graph without lengths passes the capacity. paged:
    the cache is read through a block table. bsh: heads lie side by side, so that a paged cube view is not taken.
    mla: latent attention with a separate rotary part. half: all data are FP16.
    """

    batch: int
    q_heads: int
    kv_heads: int
    head_dim: int
    kv_tokens: int
    paged: bool = False
    bsh: bool = False
    mla: bool = False
    half: bool = True

    @property
    def tasks(self) -> int:
        return self.batch * self.kv_heads

    @property
    def queries(self) -> int:
        """Queries of a KV head."""
        return self.q_heads // self.kv_heads


@dataclass(frozen=True, slots=True)
class DecodeTiling:
    """cores: cube cores started (`Block Num`). vector_cores: of them that work. parts: of a task's keys.

    workers: cores that share the tasks (vector or cube cores). waves: tasks of the fullest worker. tile_kv: keys of a
    step.
    """

    cores: int
    vector_cores: int
    mode: Mode
    parts: int
    workers: int
    waves: int
    tile_kv: int


def decode_tiling(shape: Decode, chip: TilingChip) -> DecodeTiling:
    """How IncreFlashAttention lays its tasks over the cores; lengths alike, one query token a request.

    Source: `SetupPerfMode`, `SplitUnbalanced`, `SplitBNS`, `SplitBN_V0`, `CalcBlockDim`, `CalcInnerSize` in
    attention/incre_flash_attention/op_host/incre_flash_attention_tiling.cpp and `IsFlashDecode`, `CheckCoreOkFlag`,
    `EnableC1V1` in incre_flash_attention_tiling_check.cpp (github.com/hicann/ops-transformer, commit c29bc10).
    """
    mode = _mode(shape)
    on_cubes = mode in ("cube", "mla")
    available = chip.cube_cores if on_cubes else chip.vector_cores
    tile = _MLA_TILE if shape.mla else _TILES[min(shape.queries // 5, 2)]
    if _is_cut(shape, mode, available):
        parts = max(1, available // shape.tasks)
        while parts > 1 and shape.kv_tokens // parts < MIN_PART:
            parts -= 1
        workers = shape.tasks * parts
        cores = workers if mode == "mla" else chip.cube_cores
        vector = 2 * workers if on_cubes else workers
        keys = ceil_div(shape.kv_tokens, parts)
        return DecodeTiling(
            cores=cores, vector_cores=vector, mode=mode, parts=parts, workers=workers, waves=1, tile_kv=min(tile, keys)
        )
    workers = min(available, shape.tasks)
    if mode == "mla":
        workers = ceil_div(shape.tasks, ceil_div(shape.tasks, chip.cube_cores))
    waves = ceil_div(shape.tasks, workers)
    if on_cubes:
        cores, vector = workers, 2 * workers
    elif mode == "normal" and 2 * shape.tasks <= chip.vector_cores:
        cores, vector = workers, workers
    else:
        vector = align(workers, 2)
        cores = vector // 2
    return DecodeTiling(
        cores=cores,
        vector_cores=vector,
        mode=mode,
        parts=1,
        workers=workers,
        waves=waves,
        tile_kv=min(tile, shape.kv_tokens),
    )


def _mode(shape: Decode) -> Mode:
    if shape.mla:
        return "mla"
    if not shape.paged and shape.queries == 1 and shape.head_dim <= 512 and shape.half:
        return "vector"
    stretches = ceil_div(shape.kv_tokens, _STRETCH)
    if shape.queries > 16 or shape.head_dim != 128 or shape.tasks * stretches <= _CUBE_TASKS:
        return "normal"
    return "cube" if shape.paged and not shape.bsh else "normal"


def _is_cut(shape: Decode, mode: Mode, available: int) -> bool:
    """Whether a task's keys are cut into parts: few tasks for the cores, and keys enough."""
    if shape.paged and mode != "mla" and shape.kv_tokens <= MIN_PAGED:
        return False
    if shape.mla and shape.queries > 128:
        return False
    if mode in ("cube", "mla"):
        few = shape.tasks <= 0.5 * available
    else:
        few = shape.tasks < (0.5 if mode == "vector" else 0.4) * available
    return few and (shape.queries == 1 or shape.kv_tokens >= MIN_GROUPED)
