"""The rules of the two attention calls: heads, lengths, masks, blocks and the scales of an INT8 cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from device.operators.npu.needs import HALF, MAX_INNER, need, same_type, typed

#: Heads of a query that may share one key.
MAX_GROUP = 64
#: Query heads that may share a latent row.
LATENT_HEADS = (1, 2, 4, 8, 16, 32, 64, 128)
#: Query and key heads that INT8 blocks in NZ are read for.
NZ_HEADS = ((10, 1), (64, 8), (80, 8), (128, 16))
#: Side of the compressed causal mask.
MASK_SIDE = 2048
#: pre_tokens and next_tokens of a call that says nothing of them.
NO_BAND = (2147483647, 2147483647)
#: Dimensions of a head next to learned sinks.
SINK_DIMS = (64, 128)


def _heads(name: str, query: Any, heads: int, kv_heads: int, layout: str) -> int:
    """Head dimension; Refused where the head counts and the query do not fit each other."""
    need(0 < kv_heads <= heads, f"{name}: {kv_heads} key heads for {heads} query heads; both must be given")
    need(heads % kv_heads == 0, f"{name}: {heads} query heads do not share {kv_heads} keys evenly")
    need(heads // kv_heads <= MAX_GROUP, f"{name}: {heads // kv_heads} query heads share a key, at most {MAX_GROUP}")
    need(layout in ("TND", "BSND"), f"{name}: layout {layout}; the adapter speaks TND and BSND")
    rank = 3 if layout == "TND" else 4
    need(len(query.shape) == rank, f"{name}: query has {len(query.shape)} dimensions, {layout} has {rank}")
    need(query.shape[-2] == heads, f"{name}: query has {query.shape[-2]} heads, num_heads says {heads}")
    dim: int = query.shape[-1]
    need(dim <= 512 and dim % 16 == 0, f"{name}: head dimension {dim}; multiples of 16 up to 512 are taken")
    return dim


def _block(name: str, size: int, one_query: bool, is_int8: bool) -> None:
    if one_query:
        unit = 32 if is_int8 else 16
        holds, takes = 0 < size <= 512 and size % unit == 0, f"multiples of {unit} up to 512"
    else:
        holds, takes = 128 <= size <= 512 and size % 128 == 0, "128, 256, 384 and 512 for more than one query token"
    need(holds, f"{name}: blocks of {size} tokens; it takes {takes}")


def _lengths(name: str, layout: str, query: Any, queries: Any, keys: Any, requests: int) -> None:
    need(keys is not None, f"{name}: the key lengths are missing; without them it reads whole blocks or rows")
    need(len(keys) == requests, f"{name}: {len(keys)} key lengths for {requests} requests")
    need(min(keys) >= 0, f"{name}: a key length is negative")
    if layout == "TND":
        need(queries is not None, f"{name}: TND needs the query lengths, summed up")
        need(len(queries) == requests, f"{name}: {len(queries)} query lengths for {requests} requests")
        need(all(a <= b for a, b in pairwise(queries)), f"{name}: query lengths of TND are sums and never fall")
        need(queries[-1] == query.shape[0], f"{name}: the queries end at {queries[-1]} of {query.shape[0]} rows")
    elif queries is not None:
        need(max(queries) <= query.shape[1], f"{name}: a query of {max(queries)} tokens in {query.shape[1]} rows")


def _mask(name: str, mode: int, mask: Any, one_query: bool, band: tuple[int, int] = NO_BAND) -> None:
    """band: keys before and behind the query's own that it sees, where sparse_mode is 4."""
    need(mode in (0, 3, 4), f"{name}: sparse_mode {mode}; the adapter asks for 0 (one query), 3 (causal) and 4 (band)")
    if mode == 4:
        need(0 <= band[0] < NO_BAND[0] and band[1] == 0, f"{name}: a band of {band} tokens before and behind a query")
    else:
        need(band == NO_BAND, f"{name}: pre_tokens and next_tokens are read in sparse_mode 4 alone")
    if mode in (3, 4):
        need(mask is not None, f"{name}: sparse_mode {mode} needs the mask of {MASK_SIDE} x {MASK_SIDE}")
        shape = list(mask.shape)
        need(shape[-2:] == [MASK_SIDE] * 2, f"{name}: a mask of {shape}; sparse_mode {mode} takes the compressed one")
        typed(f"{name}: mask", mask, torch.int8, torch.uint8, torch.bool)
    else:
        need(one_query, f"{name}: several query tokens without a mask see what comes after them")


def _cache(name: str, query: Any, key: Any, value: Any, heads: int, dim: int, table: Any, size: int) -> None:
    need(key.shape == value.shape, f"{name}: keys are {list(key.shape)}, values {list(value.shape)}")
    same_type(f"{name}: keys and values", key, value)
    need(
        key.dtype in (query.dtype, torch.int8),
        f"{name}: keys are {str(key.dtype).removeprefix('torch.')}; they must be of the query's type or INT8",
    )
    if table is None:
        need(list(key.shape[2:]) == [heads, dim], f"{name}: a token of the cache is {list(key.shape[2:])}")
        return
    typed(f"{name}: block_table", table, torch.int32)
    need(len(key.shape) == 3, f"{name}: a paged cache has 3 dimensions (blocks, block size, heads x dim)")
    need(key.shape[1] == size, f"{name}: block_size says {size}, a block of the cache has {key.shape[1]} tokens")
    need(key.shape[2] == heads * dim, f"{name}: a token of the cache has {key.shape[2]} values, not {heads * dim}")
    need(heads * dim <= MAX_INNER, f"{name}: {heads * dim} values a token in a block, at most {MAX_INNER}")


def _covers(name: str, table: Any, size: int, keys: Sequence[int], requests: int) -> None:
    need(table.shape[0] == requests, f"{name}: {table.shape[0]} rows in the block table for {requests} requests")
    most = max(-(-length // size) for length in keys)
    need(table.shape[1] >= most, f"{name}: {table.shape[1]} blocks a request in the table, {most} are needed")


def fused_infer_attention_score(
    query: Any,
    key: Any,
    value: Any,
    *,
    atten_mask: Any = None,
    actual_seq_lengths: Any = None,
    actual_seq_lengths_kv: Any = None,
    key_antiquant_scale: Any = None,
    value_antiquant_scale: Any = None,
    block_table: Any = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = NO_BAND[0],
    next_tokens: int = NO_BAND[1],
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    block_size: int = 0,
    key_antiquant_mode: int = 0,
    value_antiquant_mode: int = 0,
) -> None:
    name = "npu_fused_infer_attention_score"
    typed(f"{name}: query", query, *HALF)
    dim = _heads(name, query, num_heads, num_key_value_heads, input_layout)
    need(input_layout == "BSND", f"{name}: its documentation excludes blocks and INT8 in {input_layout}; v2 takes TND")
    requests, one_query, is_int8 = query.shape[0], query.shape[1] == 1, key.dtype == torch.int8
    _cache(
        name=name,
        query=query,
        key=key,
        value=value,
        heads=num_key_value_heads,
        dim=dim,
        table=block_table,
        size=block_size,
    )
    _lengths(name, input_layout, query, actual_seq_lengths, actual_seq_lengths_kv, requests)
    if block_table is not None:
        _block(name, block_size, one_query, is_int8)
        _covers(name, block_table, block_size, actual_seq_lengths_kv, requests)
    _mask(name, sparse_mode, atten_mask, one_query, (pre_tokens, next_tokens))
    if not is_int8:
        need(key_antiquant_scale is None, f"{name}: antiquant scales for keys that are not INT8")
        return
    need(one_query, f"{name}: INT8 keys with several query tokens of a request")
    need(dim % 32 == 0, f"{name}: head dimension {dim}; INT8 takes multiples of 32")
    need(key_antiquant_mode == value_antiquant_mode, f"{name}: keys and values are scaled in two ways")
    for scale_of in (key_antiquant_scale, value_antiquant_scale):
        _antiquant(
            name=name, scale=scale_of, mode=key_antiquant_mode, query=query, key=key, heads=num_key_value_heads, dim=dim
        )


def _antiquant(name: str, scale: Any, mode: int, query: Any, key: Any, heads: int, dim: int) -> None:
    """Modes: 0 a channel, 1 a token, 3 a token and head; 4 and 5 are 1 and 3 of a paged cache."""
    places, size = key.shape[0], key.shape[1]
    shapes = {
        0: (1, heads, dim),
        1: (1, places, size),
        3: (places, heads, size),
        4: (places, size),
        5: (places, heads, size),
    }
    need(scale is not None, f"{name}: INT8 keys and values need their scales")
    need(mode in shapes, f"{name}: antiquant mode {mode}; the adapter asks for {sorted(shapes)}")
    need((mode in (4, 5)) == (len(key.shape) == 3) or mode == 0, f"{name}: antiquant mode {mode} for this layout")
    need(tuple(scale.shape) == shapes[mode], f"{name}: scales of {list(scale.shape)}, mode {mode} has {shapes[mode]}")
    typed(f"{name}: scales", scale, query.dtype if mode == 0 else torch.float32)


def fused_infer_attention_score_v2(
    query: Any,
    key: Any,
    value: Any,
    *,
    query_rope: Any = None,
    key_rope: Any = None,
    atten_mask: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    block_table: Any = None,
    dequant_scale_key: Any = None,
    dequant_scale_value: Any = None,
    learnable_sink: Any = None,
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_scale: float = 1.0,
    pre_tokens: int = NO_BAND[0],
    next_tokens: int = NO_BAND[1],
    input_layout: str = "BSH",
    sparse_mode: int = 0,
    block_size: int = 0,
    key_quant_mode: int = 0,
    value_quant_mode: int = 0,
    inner_precise: int = 0,
) -> None:
    """Four forms: plain TND over blocks, latent TND over blocks, TND without blocks, BSND over INT8 blocks in NZ."""
    name, heads = "npu_fused_infer_attention_score_v2", (num_query_heads, num_key_value_heads)
    typed(f"{name}: query", query, *HALF)
    queries, keys, requests = actual_seq_qlen, actual_seq_kvlen, len(actual_seq_kvlen or ())
    if key.dtype == torch.int8:
        need(key_quant_mode == value_quant_mode == 0, f"{name}: quant modes {key_quant_mode} and {value_quant_mode}")
        need(inner_precise == 1, f"{name}: inner_precise {inner_precise}; NZ blocks have the high-performance mode, 1")
        scales = dequant_scale_key, dequant_scale_value
        _int8_blocks(name, query, key=key, value=value, scales=scales, heads=heads, layout=input_layout)
        need(block_table is not None and keys is not None, f"{name}: NZ blocks need their table and the key lengths")
        _lengths(name, input_layout, query, queries, keys, query.shape[0])
        _table(name, block_table, key.shape[3], block_size, keys, query.shape[0])
        _mask(name, sparse_mode, atten_mask, query.shape[1] == 1)
        return
    need(input_layout == "TND", f"{name}: layout {input_layout}; the adapter speaks TND over 16-bit caches")
    need(key.dtype == query.dtype, f"{name}: keys of another type than the query")
    _lengths(name, input_layout, query, queries, keys, len(queries or ()))
    one_query = query.shape[0] == requests
    _mask(name, sparse_mode, atten_mask, one_query, (pre_tokens, next_tokens))
    plain_blocks = block_table is not None and query_rope is None
    need(plain_blocks or learnable_sink is None, f"{name}: the adapter asks for sinks over blocks alone")
    if query_rope is not None or key_rope is not None:
        need(query_rope is not None and key_rope is not None, f"{name}: query_rope and key_rope go together")
        need(num_key_value_heads == 1, f"{name}: {num_key_value_heads} key heads; a latent row serves all queries: 1")
        _latent(name, query, key, query_rope, key_rope, heads=num_query_heads, queries=queries)
        need(block_table is not None, f"{name}: latent rows are read through a block table only")
        need(block_size in (16, 128), f"{name}: blocks of {block_size} tokens; latent rows take 16 and 128")
    elif block_table is None:
        _unpacked(name, query, key=key, value=value, heads=heads, queries=queries, keys=keys)
        return
    else:
        _block(name, block_size, one_query, is_int8=False)
        _over_blocks(name, query, learnable_sink, key=key, value=value, heads=heads, table=block_table, size=block_size)
    _table(name, block_table, key.shape[1], block_size, keys, requests)


def _over_blocks(
    name: str, query: Any, sinks: Any, *, key: Any, value: Any, heads: tuple[int, int], table: Any, size: int
) -> None:
    """TND over 16-bit blocks. heads: of the query, of keys and values."""
    dim = _heads(name, query, *heads, "TND")
    _sinks(name, sinks, query, heads[0])
    taken = (128,) if sinks is None else SINK_DIMS
    need(dim in taken, f"{name}: TND with head dimension {dim}; TND takes {' and '.join(map(str, taken))}")
    _cache(name, query, key, value, heads=heads[1], dim=dim, table=table, size=size)


def _sinks(name: str, sinks: Any, query: Any, heads: int) -> None:
    """A learned score of each head, as wide as the query."""
    if sinks is None:
        return
    need(list(sinks.shape) == [heads], f"{name}: sinks of {list(sinks.shape)} for {heads} heads")
    typed(f"{name}: sinks", query, torch.bfloat16)
    same_type(f"{name}: query and sinks", query, sinks)


def _table(name: str, table: Any, holds: int, block_size: int, keys: Sequence[int], requests: int) -> None:
    """The block table of a cache whose blocks hold so many tokens."""
    typed(f"{name}: block_table", table, torch.int32)
    need(holds == block_size, f"{name}: block_size says {block_size}, a block of the cache has {holds} tokens")
    _covers(name, table, block_size, keys, requests)


def _int8_blocks(
    name: str, query: Any, key: Any, value: Any, scales: tuple[Any, Any], heads: tuple[int, int], layout: str
) -> None:
    """INT8 blocks in NZ, with their scales. heads: of the queries, of the keys and values."""
    dim = _heads(name, query, *heads, layout)
    _nz(
        name=name,
        query=query,
        key=key,
        value=value,
        scales=scales,
        heads=heads[0],
        kv_heads=heads[1],
        dim=dim,
        layout=layout,
    )


def _latent(
    name: str, query: Any, key: Any, query_rope: Any, key_rope: Any, heads: int, queries: Sequence[int]
) -> None:
    """Latent rows of 512 with rotated parts of 64, for requests of 1 to 16 query tokens."""
    need(len(query.shape) == 3 and query.shape[1] == heads, f"{name}: query is {list(query.shape)} for {heads} heads")
    need(heads in LATENT_HEADS, f"{name}: {heads} heads over a latent row; 1, 2, 4 .. 128 are taken")
    need(query.shape[2] == 512, f"{name}: a latent query of {query.shape[2]} dimensions; it takes 512")
    same_type(f"{name}: query, key and their rotated parts", query, key, query_rope, key_rope)
    wanted = [*query.shape[:2], 64]
    need(list(query_rope.shape) == wanted, f"{name}: query_rope is {list(query_rope.shape)}, not {wanted}")
    need(len(key.shape) == 3 and key.shape[2] == 512, f"{name}: latent rows are {list(key.shape)}; a token has 512")
    wanted = [*key.shape[:2], 64]
    need(list(key_rope.shape) == wanted, f"{name}: key_rope is {list(key_rope.shape)}, not {wanted}")
    longest = max(b - a for a, b in pairwise((0, *queries)))
    need(1 <= longest <= 16, f"{name}: a request of {longest} query tokens over latent rows; 1 to 16 are taken")


def _unpacked(
    name: str,
    query: Any,
    key: Any,
    value: Any,
    heads: tuple[int, int],
    queries: Sequence[int],
    keys: Sequence[int],
) -> None:
    """Heads over keys that lie one after the other: key lengths are sums too. heads: of the queries, of the keys."""
    kv_heads = heads[1]
    typed(f"{name}: query without a block table", query, torch.bfloat16)
    _heads(name, query, *heads, "TND")
    dims = tuple(x.shape[-1] for x in (query, key, value))
    taken = ((128, 128, 128), (192, 192, 128), (192, 192, 192))
    need(dims in taken, f"{name}: heads of {dims} dimensions without a block table; it takes {taken}")
    need(key.shape[:2] == value.shape[:2], f"{name}: keys are {list(key.shape)}, values {list(value.shape)}")
    need(key.shape[1] == kv_heads, f"{name}: keys have {key.shape[1]} heads, num_key_value_heads says {kv_heads}")
    need(all(a <= b for a, b in pairwise(keys)), f"{name}: without a block table key lengths are sums and never fall")
    need(keys[-1] == key.shape[0], f"{name}: the keys end at {keys[-1]} of {key.shape[0]} rows")
    each = zip(pairwise((0, *queries)), pairwise((0, *keys)), strict=True)
    need(all(q[1] - q[0] <= k[1] - k[0] for q, k in each), f"{name}: a request has more query tokens than keys")


def _nz(
    name: str, query: Any, key: Any, value: Any, scales: Sequence[Any], heads: int, kv_heads: int, dim: int, layout: str
) -> None:
    """INT8 blocks in FRACTAL_NZ, scales a channel."""
    typed(f"{name}: query over INT8 blocks", query, torch.bfloat16)
    need(layout == "BSND", f"{name}: layout {layout}; the adapter speaks BSND over INT8 blocks")
    need(dim == 128, f"{name}: head dimension {dim}; INT8 blocks in NZ take 128")
    need(
        (heads, kv_heads) in NZ_HEADS,
        f"{name}: {heads} query and {kv_heads} key heads over NZ blocks; taken are "
        f"{', '.join(f'{a} and {b}' for a, b in NZ_HEADS)}",
    )
    need(query.shape[1] <= 16, f"{name}: {query.shape[1]} query tokens over NZ blocks, at most 16")
    wanted = [kv_heads, dim // 32, 32]
    for x in (key, value):
        need(len(x.shape) == 5, f"{name}: NZ blocks have 5 dimensions (blocks, heads, dim / 32, block size, 32)")
        need([*x.shape[1:3], x.shape[4]] == wanted, f"{name}: a block is {list(x.shape[1:])}; its heads give {wanted}")
    need(key.shape[3] in (128, 512), f"{name}: blocks of {key.shape[3]} tokens; NZ takes 128 and 512")
    for scale in scales:
        need(scale is not None, f"{name}: INT8 keys and values need their scales")
        need(list(scale.shape) == [kv_heads, dim], f"{name}: scales of {list(scale.shape)}, not {[kv_heads, dim]}")
        typed(f"{name}: scales", scale, torch.bfloat16)
