"""Work of attention: full, with a window or in chunks, over latent rows, over selected keys, and what selects them."""

from __future__ import annotations

from collections import Counter

from scenarios.ops.counting import whole_number
from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import DTYPE_BITS, Group, Op
from scenarios.ops.work import AttentionShape, Work

#: Queries of one piece of a prompt under a window: a block of prefill attention.
_BLOCK = 128


def attention_groups(op: Op) -> tuple[Group, ...]:
    """The groups of requests that an attention op serves."""
    raw = op.attr("groups")
    assert isinstance(raw, tuple)
    return tuple(Group(*g) for g in raw)


def attention(op: Op, kind: OpKind) -> Work:
    """Fused causal attention: q [tokens, heads, head_dim] against each request's cache.

    flops = 4 head_dim heads sum_requests sum_queries (keys that query sees); K and V of every visible token are read
    once per request, or (attribute static_tokens) the whole of a static cache. window, chunk: attributes of layers
    whose queries see some of the keys (`in_sight`).
    """
    if op.attr("latent", False):
        return _latent_attention(op, kind)
    query, key = op.inputs[0], op.inputs[1]
    heads, kv_heads, dim = (whole_number(op, a) for a in ("heads", "kv_heads", "head_dim"))
    groups = in_sight(attention_groups(op), whole_number(op, "window", 0), whole_number(op, "chunk", 0))
    pairs = _seen(groups)[0]
    kv_tokens = sum(_kept(g, whole_number(op, "window", 0), whole_number(op, "chunk", 0)) for g in attention_groups(op))
    static = whole_number(op, "static_tokens", 0)
    if static:  # read whole, whatever the lengths
        kv_tokens = sum(g.count for g in groups) * static
    kv_bytes = 2 * kv_tokens * kv_heads * dim * DTYPE_BITS[key.dtype] // 8
    tables = sum(t.bytes for t in op.inputs[3:])  # block table and scales
    antiquant = 2 * kv_tokens * kv_heads * dim if key.dtype == "int8" else 0
    shape = AttentionShape(
        groups,
        heads,
        kv_heads=kv_heads,
        head_dim=dim,
        kv_dtype=key.dtype,
        block_size=whole_number(op, "block_size", 0),
        static_tokens=static,
        cache_prefetched=bool(op.attr("cache_prefetched", False)),
    )
    softmax = 6 * heads * pairs  # scale, max, subtract, exp, sum, rescale: six vector passes over each score
    return Work(
        kind.unit,
        shape,
        cube_flops=4 * dim * heads * pairs,
        vector_ops=softmax + antiquant,
        cold_read_bytes=kv_bytes + tables,
        warm_read_bytes=query.bytes,
        write_bytes=op.out.bytes,
        program=kind.name,
    )


def in_sight(groups: tuple[Group, ...], window: int, chunk: int) -> tuple[Group, ...]:
    """`groups` as the requests of full attention that have as many keys in sight.

    A window of w keys: a query sees w at most, so the prompt is cut into pieces of _BLOCK queries with w - 1 keys
    before each. A chunk of c positions: each piece of a prompt that lies in one chunk is a request of its own.
    """
    if not window and not chunk:
        return groups
    pieces: Counter[tuple[int, int]] = Counter()
    for group in groups:
        at, end = group.context, group.kv_len
        while at < end:
            size = min(end - at, _BLOCK if window else chunk - at % chunk)
            same = 1
            if (window and at >= window) or (chunk and at % chunk == 0):  # all pieces from here on are alike
                same = max(1, (end - at) // size)
            before = min(at, max(0, window - 1)) if window else at % chunk
            pieces[size, before] += group.count * same
            at += size * same
    return tuple(Group(count, query, context) for (query, context), count in pieces.items())


def _kept(group: Group, window: int, chunk: int) -> int:
    """Keys of a group that some query of it sees."""
    if window:
        return group.count * min(group.kv_len, window + group.query - 1)
    if chunk:
        return group.count * (group.kv_len - group.context // chunk * chunk)
    return group.count * group.kv_len


def _latent_attention(op: Op, kind: OpKind) -> Work:
    """MLA with its projections absorbed: all heads read one latent row per token, for keys and for values.

    Inputs: latent and rotated part of the query, then the two caches (and a block table).
    """
    heads, row = whole_number(op, "heads"), whole_number(op, "head_dim")
    groups = attention_groups(op)
    if top_k := whole_number(op, "top_k", 0):
        return _sparse_attention(op, kind, top_k)
    pairs, kv_tokens = _seen(groups)
    caches = [t for t in op.inputs if t.role == "kv_cache"]
    cold = kv_tokens * row * DTYPE_BITS[caches[0].dtype] // 8 + sum(t.bytes for t in op.inputs if t.role == "table")
    queries = sum(t.bytes for t in op.inputs if t.role == "activation")
    shape = AttentionShape(groups, heads, 1, row, caches[0].dtype, whole_number(op, "block_size", 0))
    return Work(
        kind.unit,
        shape,
        cube_flops=4 * row * heads * pairs,
        vector_ops=6 * heads * pairs,
        cold_read_bytes=cold,
        warm_read_bytes=queries,
        write_bytes=op.out.bytes,
        program="mla_attention",
    )


def _sparse_attention(op: Op, kind: OpKind, top_k: int) -> Work:
    """Latent attention in which each query reads its own keys, at most `top_k`: no two queries share a tile, so a query
    of a prefill is priced as a request of its own. What several of them read comes from HBM once."""
    heads, row = whole_number(op, "heads"), whole_number(op, "head_dim")
    size = DTYPE_BITS[op.inputs[2].dtype] // 8
    each, cold, pairs = [], 0, 0
    for group in attention_groups(op):
        keys = _selected_keys(group, top_k)
        mean = max(1, keys // group.query)
        each.append(Group(group.count * group.query, 1, mean - 1))
        pairs += group.count * keys
        cold += group.count * min(keys, group.kv_len) * row * size
    tables = sum(t.bytes for t in op.inputs if t.role == "table")
    queries = sum(t.bytes for t in op.inputs if t.role == "activation")
    shape = AttentionShape(tuple(each), heads, 1, row, op.inputs[2].dtype, whole_number(op, "block_size", 0))
    again = pairs * row * size - cold
    return Work(
        kind.unit,
        shape,
        cube_flops=4 * row * heads * pairs,
        vector_ops=6 * heads * pairs,
        cold_read_bytes=cold + tables,
        warm_read_bytes=queries + max(0, again),
        write_bytes=op.out.bytes,
        program="mla_attention",
    )


def _selected_keys(group: Group, top_k: int) -> int:
    """Keys that the queries of one request attend to, summed: query i sees context + i + 1, and takes top_k at most."""
    below = max(0, min(group.query, top_k - group.context))  # queries that see no more than top_k
    return below * group.context + below * (below + 1) // 2 + (group.query - below) * top_k


def lightning_indexer(op: Op, kind: OpKind) -> Work:
    """Scores of all keys by small heads, summed with weights, and the best `top_k` for each query.

    One product where attention has two, and one row per key where it has keys and values: the shape is that of
    attention with heads half as wide. Priced as latent attention is (assumed: no measured row of this kernel).
    """
    heads, dim = whole_number(op, "heads"), whole_number(op, "head_dim")
    groups = attention_groups(op)
    pairs, kv_tokens = _seen(groups)
    cache = next(t for t in op.inputs if t.role == "kv_cache")
    cold = kv_tokens * dim * DTYPE_BITS[cache.dtype] // 8 + sum(t.bytes for t in op.inputs if t.role == "table")
    warm = sum(t.bytes for t in op.inputs if t.role == "activation")
    shape = AttentionShape(groups, heads, 1, dim // 2, cache.dtype, whole_number(op, "block_size", 0))
    return Work(
        kind.unit,
        shape,
        cube_flops=2 * dim * heads * pairs,
        vector_ops=3 * heads * pairs,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=op.out.bytes,
        program="mla_attention",
    )


def _seen(groups: tuple[Group, ...]) -> tuple[int, int]:
    """(query-key pairs under a causal mask, keys of all requests)."""
    pairs = sum(g.count * (g.query * g.context + g.query * (g.query + 1) // 2) for g in groups)
    return pairs, sum(g.count * g.kv_len for g in groups)
