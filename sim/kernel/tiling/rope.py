"""Rotary embeddings, and the norm, rotation and cache write of MLA in one kernel.

Sources, hicann/ops-transformer at c29bc106:
`posembedding/apply_rotary_pos_emb/op_host/apply_rotary_pos_emb_tiling.cpp`,
`posembedding/rotary_position_embedding/op_host/rope_rotate_half_tiling.cpp`,
`posembedding/interleave_rope/op_host/interleave_rope_tiling.cpp`,
`posembedding/rope_with_sin_cos_cache/op_host/rope_with_sin_cos_cache_tiling.cpp`; and, from a later state of the same
repository, `posembedding/kv_rms_norm_rope_cache/op_host/kv_rms_norm_rope_cache_ds_tiling.cpp`.
"""

from __future__ import annotations

from math import ceil

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_heads_first, by_rows

#: Sequences from this length on, with an angle for each position, are cut along the sequence by InterleaveRope.
LONG_TOKENS = 512


def apply_rotary_pos_emb(tokens: int, heads: int, dim: int, chip: TilingChip) -> Spread:
    """Cores of ApplyRotaryPosEmb on `tokens` x `heads` (queries and keys together) x `dim`: whole tokens."""
    return by_rows(tokens, heads * dim, chip.vector_cores)


def rotary_mul(lines: int, heads: int, dim: int, chip: TilingChip) -> Spread:
    """Cores of RotaryPositionEmbedding (RotaryMul) in half mode.

    lines: positions that share one angle; heads: vectors that share a line (all axes along which cos is broadcast).
    """
    return by_heads_first(lines, heads * dim, chip.vector_cores)


def rope_with_sin_cos_cache(tokens: int, heads: int, dim: int, chip: TilingChip) -> Spread:
    """Cores of RopeWithSinCosCache: one token or more to a core."""
    return by_heads_first(tokens, heads * dim, chip.vector_cores)


def interleave_rope(batch: int, heads: int, tokens: int, dim: int, chip: TilingChip, one_angle: bool = True) -> Spread:
    """Cores of InterleaveRope on batch x heads x tokens x dim; one_angle: cos has one position.

    Below one request a core and fewer requests than heads, heads are dealt out and each core does all requests.
    """
    cores, vectors = chip.vector_cores, heads * tokens
    if tokens >= LONG_TOKENS and not one_angle:
        return by_rows(tokens, batch * heads * dim, cores)
    if one_angle and (batch, heads, tokens) == (32, 32, 1):
        return Spread(batch // 4, batch // 4, 4, 4 * vectors * dim)
    if not one_angle or batch >= cores or batch >= vectors:
        return by_rows(batch, vectors * dim, cores)
    return by_rows(vectors, batch * dim, cores)


def kv_rms_norm_rope_cache(tokens: int, chip: TilingChip, cols: int = 576) -> Spread:
    """Cores of KvRmsNormRopeCache: whole tokens of 512 normed and 64 rotated columns."""
    return by_rows(tokens, cols, chip.vector_cores)


def triton_rope(tokens: int, heads: int, dim: int, chip: TilingChip) -> Spread:
    """Cores of vLLM-Ascend's Triton rotary kernel: a grid of min(tokens, vector cores) programs (assumed)."""
    used = max(1, min(tokens, chip.vector_cores))
    return Spread(used, used, ceil(tokens / used), ceil(tokens / used) * heads * dim)
