"""The rules of latent attention's calls: the latent row with its rotated part, its pools, its products."""

from __future__ import annotations

from typing import Any

import torch

from device.operators.npu.needs import HALF, MAX_INNER, need, same_type, typed

#: What the calls are written for: dimensions of a latent row and of its rotated part.
KV_RANK, ROPE_DIM = 512, 64
#: Heads x rank that npu_transpose_batchmatmul turns must stay below this; its inner dimensions come in TILES.
MAX_TURNED, TILE = 65536, 128


def kv_rmsnorm_rope_cache_v2(
    kv: Any,
    gamma: Any,
    cos: Any,
    sin: Any,
    index: Any,
    k_cache: Any,
    ckv_cache: Any,
    *,
    epsilon: float = 1e-5,
    cache_mode: str = "Norm",
    is_output_kv: bool = False,
) -> None:
    name = "npu_kv_rmsnorm_rope_cache_v2"
    typed(f"{name}: kv", kv, *HALF)
    same_type(f"{name}: kv, gamma, cos, sin and caches", kv, gamma, cos, sin, k_cache, ckv_cache)
    need(cache_mode in ("PA", "PA_BNSD"), f"{name}: cache_mode {cache_mode}; these are plain blocks: PA_BNSD")
    width = KV_RANK + ROPE_DIM
    need(len(kv.shape) == 4 and kv.shape[1] == 1, f"{name}: kv of {list(kv.shape)}, not [batch, 1, tokens, row]")
    need(kv.shape[3] == width, f"{name}: a latent row of {kv.shape[3]} elements; it takes {width} ({KV_RANK} latent)")
    need(tuple(gamma.shape) == (KV_RANK,), f"{name}: gamma has {list(gamma.shape)} elements, the row {KV_RANK}")
    for what, x in (("cos", cos), ("sin", sin)):
        wanted = [*kv.shape[:3], ROPE_DIM]
        need(list(x.shape) == wanted, f"{name}: {what} is {list(x.shape)}, not {wanted}")
    for what, cache, row in (("k_cache", k_cache, ROPE_DIM), ("ckv_cache", ckv_cache, KV_RANK)):
        need(len(cache.shape) == 4, f"{name}: {what} has {len(cache.shape)} dimensions, not 4")
        need(list(cache.shape[2:]) == [1, row], f"{name}: a token of {what} is {list(cache.shape[2:])}, not [1, {row}]")
    need(k_cache.shape[:2] == ckv_cache.shape[:2], f"{name}: the two caches have other blocks")
    typed(f"{name}: index", index, torch.int64)
    tokens = kv.shape[0] * kv.shape[2]
    need(tuple(index.shape) == (tokens,), f"{name}: {list(index.shape)} slots for {tokens} tokens")


def interleave_rope(x: Any, cos: Any, sin: Any) -> None:
    name = "npu_interleave_rope"
    typed(f"{name}: x", x, *HALF)
    same_type(f"{name}: x, cos and sin", x, cos, sin)
    for what, t in (("x", x), ("cos", cos), ("sin", sin)):
        need(len(t.shape) == 4, f"{name}: {what} has {len(t.shape)} dimensions, not 4")
        need(t.shape[3] == ROPE_DIM, f"{name}: {what} has {t.shape[3]} dimensions a head; it takes {ROPE_DIM}")
        need(t.shape[0] == x.shape[0], f"{name}: {what} has {t.shape[0]} rows, x {x.shape[0]}")
    for what, t in (("cos", cos), ("sin", sin)):
        need(t.shape[1] == 1, f"{name}: {what} has {t.shape[1]} heads, not 1")
        need(t.shape[2] in (1, x.shape[2]), f"{name}: {what} has {t.shape[2]} places, x {x.shape[2]}")


def transpose_batchmatmul(x: Any, weight: Any, *, perm_x1: Any = None, perm_x2: Any = None, perm_y: Any = None) -> None:
    name = "npu_transpose_batchmatmul"
    typed(f"{name}: input", x, *HALF, torch.float32)
    same_type(f"{name}: input and weight", x, weight)
    need(len(x.shape) == len(weight.shape) == 3, f"{name}: both operands have 3 dimensions")
    need(list(perm_x1) == [1, 0, 2], f"{name}: perm_x1 {perm_x1}; the adapter turns its first operand: [1, 0, 2]")
    need(list(perm_x2) == [0, 1, 2], f"{name}: perm_x2 {perm_x2}; it takes [0, 1, 2]")
    need(list(perm_y) == [1, 0, 2], f"{name}: perm_y {perm_y}; it takes [1, 0, 2]")
    _, batches, inner = x.shape
    need(weight.shape[0] == batches, f"{name}: {batches} batches times {weight.shape[0]}")
    need(weight.shape[1] == inner, f"{name}: rows of {inner} times a weight of {weight.shape[1]} inputs")
    need(batches * inner < MAX_TURNED, f"{name}: {batches} x {inner} to turn; it must stay below {MAX_TURNED}")
    for what, size in (("k", inner), ("n", weight.shape[2])):
        need(size % TILE == 0 and size <= MAX_INNER, f"{name}: {what} is {size}; multiples of {TILE} are taken")


def gather_pa_kv_cache(
    key_cache: Any, value_cache: Any, block_tables: Any, seq_lens: Any, key: Any, value: Any
) -> None:
    name = "npu_gather_pa_kv_cache"
    typed(f"{name}: key_cache", key_cache, *HALF, torch.int8)
    same_type(f"{name}: caches and what is read", key_cache, value_cache, key, value)
    for what, t in (("block_tables", block_tables), ("seq_lens", seq_lens)):
        typed(f"{name}: {what}", t, torch.int32)
    need(
        block_tables.shape[0] == seq_lens.shape[0],
        f"{name}: {seq_lens.shape[0]} lengths, {block_tables.shape[0]} tables",
    )
    for cache, out in ((key_cache, key), (value_cache, value)):
        need(len(cache.shape) == 4, f"{name}: a cache has {len(cache.shape)} dimensions, not 4")
        need(list(out.shape[1:]) == list(cache.shape[2:]), f"{name}: a token is {list(cache.shape[2:])} in the cache")
    need(key.shape[0] == value.shape[0], f"{name}: {key.shape[0]} keys, {value.shape[0]} values")
