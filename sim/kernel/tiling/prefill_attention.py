"""The cores and blocks of prefill attention: PromptFlashAttention, FusedInferAttentionScore, FlashAttentionScore.

Blocks of queries of one head go to the cores, so that all get about the same number of (queries x keys) tiles; a causal
mask leaves out the tiles above the diagonal.
"""

from __future__ import annotations

from scenarios.records import dataclass
from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.product import align, ceil_div


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prefill: `q_tokens` queries of each request over `kv_tokens` keys.

    causal: keys after a query's own are left out. paged: the cache is read through a block table. precise: BF16, or
    FP16 at high precision.
    """

    batch: int
    q_heads: int
    kv_heads: int
    head_dim: int
    q_tokens: int
    kv_tokens: int
    causal: bool = True
    paged: bool = False
    precise: bool = True


@dataclass(frozen=True, slots=True)
class PrefillTiling:
    """cores: cube cores started. block_q, block_kv: queries and keys of one tile; block_q is a cube core's, that is two
    vector cores' queries. tiles: (queries x keys) tiles in all. rounds: of the fullest core.
    """

    cores: int
    block_q: int
    block_kv: int
    tiles: int
    rounds: int


def fused_infer_tiling(shape: Prefill, chip: TilingChip) -> PrefillTiling:
    """PromptFlashAttention, and FusedInferAttentionScore in packed (TND) layout, decode included: all cores start.

    Source: `RunBigKernelTilingWithParams`, `AdjustCVTilingCVDiff`, `PromptFlashAttentionSplitSeqOneN` in
    attention/prompt_flash_attention/op_host/prompt_flash_attention_tiling.cpp and `IsUsingIFA` in
    attention/fused_infer_attention_score/op_host/fused_infer_attention_score_tiling.cpp
    (github.com/hicann/ops-transformer, commit c29bc10).
    """
    block_q, block_kv = 128, 1024
    if shape.kv_tokens <= 1024:
        block_kv = 512
    if shape.precise:
        block_q, block_kv = (64 if align(shape.head_dim, 16) >= 200 else 128), 512
    if shape.paged:
        block_q = 64
    if shape.q_tokens <= 16:
        block_q = 16
        if shape.kv_tokens > 2048 and not shape.causal:
            block_kv = 2048
    return _counted(shape, chip, chip.cube_cores, 2 * block_q, block_kv)


def flash_attention_score_tiling(shape: Prefill, chip: TilingChip) -> PrefillTiling:
    """FlashAttentionScore, the kernel of training: 128 queries a vector core at the most, all keys.

    Source: `SetMultiCoreParams`, `CalcS1S2BasicBlock` and the templates of
    attention/flash_attention_score/op_host/flash_attention_score_tiling_general.cpp (github.com/hicann/ops-transformer,
    commit c29bc10).
    """
    block_q, block_kv = min(128, align(shape.q_tokens, 16)), min(128, align(shape.kv_tokens, 16))
    blocks = shape.batch * shape.q_heads * ceil_div(shape.q_tokens, block_q)
    vector = min(chip.vector_cores, blocks)
    return _counted(shape, chip, ceil_div(vector, chip.vector_cores // chip.cube_cores), 2 * block_q, 8 * block_kv)


def _counted(shape: Prefill, chip: TilingChip, cores: int, block_q: int, block_kv: int) -> PrefillTiling:
    rows = ceil_div(shape.q_tokens, block_q)
    before = shape.kv_tokens - shape.q_tokens
    seen = [
        min(shape.kv_tokens, before + min(shape.q_tokens, (row + 1) * block_q)) if shape.causal else shape.kv_tokens
        for row in range(rows)
    ]
    tiles = shape.batch * shape.q_heads * sum(max(1, ceil_div(keys, block_kv)) for keys in seen)
    return PrefillTiling(cores, block_q, block_kv, tiles, ceil_div(tiles, cores))
