"""Measured matrix products and attention as `Work`."""

from __future__ import annotations

from math import prod
from typing import Literal

from scenarios.ops.program import DTYPE_BITS, Format, Group
from scenarios.ops.work import AttentionShape, FfnShape, GroupedShape, MatmulShape, Unit, Work
from sim.accuracy.rows.row import Row, Unpriced, rows_of

#: Programs that run on cube cores only; the others rescale or unpack on the vector cores next to them.
_CUBE = ("matmul", "batch_matmul", "transpose_batch_matmul")

#: Warm-up runs of a server attend to no more keys than this; queries with their own keys and more than that are a
#: prefill.
DUMMY_KEYS = 16


def _weight(row: Row, index: int, k: int) -> tuple[int, Format, Literal["n", "k"]]:
    """(n, format, what its rows are) of the right side of a product over k.

    FRACTAL_NZ names its columns of blocks first, so weights of n rows are [k / 16, n / 16, 16, 16] and those of k rows
    [n / 16, k / 16, 16, 16]. Where k equals n, n rows are taken. Raises Unpriced where the shapes do not fit.
    """
    shape = row.shape(index)
    if len(shape) == 4 and shape[2] == 16 and shape[3] in (16, 32):
        first, second, width = shape[0], shape[1], shape[3]
        if width == 16 and k == 16 * first:
            return 16 * second, "nz", "n"
        if width == 16 and k == 16 * second:
            return 16 * first, "nz", "k"
        if width == 32 and k == 16 * second:  # INT8: blocks of 16 x 32
            return 32 * first, "nz", "k"
        if width == 32 and k == 32 * first:
            return 16 * second, "nz", "n"
    if len(shape) == 2 and k in shape:
        return (shape[0], "nd", "n") if shape[1] == k else (shape[1], "nd", "k")
    raise Unpriced(f"no side of {shape} fits K = {k}")


def _product(shape: MatmulShape, program: str, extra: int = 0) -> Work:
    """extra: bytes of scales and biases."""
    left = shape.batch * shape.m * shape.k * DTYPE_BITS[shape.dtype] // 8
    right = shape.batch * shape.k * shape.n * DTYPE_BITS[shape.weight_dtype] // 8
    out = shape.batch * shape.m * shape.n * (4 if shape.dtype == "fp32" else 2)
    unit: Unit = "cube" if program in _CUBE else "mix"
    return Work(
        unit,
        shape,
        cube_flops=2 * shape.batch * shape.m * shape.k * shape.n,
        cold_read_bytes=right + extra,
        warm_read_bytes=left,
        write_bytes=out,
        program=program,
    )


def matmul(row: Row) -> Work:
    """[m, k] x [k, n], either side transposed or the right one in FRACTAL_NZ."""
    left, right = row.shape(0), row.shape(1)
    if len(left) < 2 or not right:
        raise Unpriced("two matrices are due")
    if len(left) == 3 and len(right) == 3:
        return batch_matmul(row)
    m, k = rows_of(left)
    if len(right) == 2 and k not in right and m in right:  # the left side is transposed
        m, k = k, m
    n, fmt, rows = _weight(row, 1, k)
    return _product(
        MatmulShape(1, m, k=k, n=n, dtype=row.dtype(0), weight_dtype=row.dtype(1), weight_format=fmt, weight_rows=rows),
        "matmul",
    )


def batch_matmul(row: Row) -> Work:
    """[b, m, k] x [b, k, n], the right side transposed where only that fits."""
    left, right = row.shape(0), row.shape(1)
    if len(left) < 3 or len(right) < 3:
        raise Unpriced("two batches of matrices are due")
    k = left[-1]
    rows: Literal["n", "k"] = "k" if right[-2] == k else "n"
    n = right[-1] if rows == "k" else right[-2]
    program = "transpose_batch_matmul" if row.op_type == "TransposeBatchMatMul" else "batch_matmul"
    return _product(
        MatmulShape(
            prod(left[:-2]),
            left[-2],
            k=k,
            n=n,
            dtype=row.dtype(0),
            weight_dtype=row.dtype(1),
            weight_format="nd",
            weight_rows=rows,
        ),
        program,
    )


def quant_matmul(row: Row) -> Work:
    """INT8 x INT8 with scales."""
    m, k = rows_of(row.shape(0))
    n, fmt, rows = _weight(row, 1, k)
    return _product(
        MatmulShape(1, m, k=k, n=n, dtype="int8", weight_dtype="int8", weight_format=fmt, weight_rows=rows),
        "quant_matmul",
        4 * n,
    )


def weight_quant(row: Row) -> Work:
    """16 bit x INT8 weights, unpacked on the way."""
    m, k = rows_of(row.shape(0))
    n, fmt, rows = _weight(row, 1, k)
    return _product(
        MatmulShape(1, m, k=k, n=n, dtype=row.dtype(0), weight_dtype="int8", weight_format=fmt, weight_rows=rows),
        "weight_quant_matmul",
        4 * n,
    )


def grouped(row: Row) -> Work:
    """[tokens, k] x [experts, k, n]: the tokens are taken as spread evenly over the experts."""
    tokens, k = rows_of(row.shape(0))
    right = row.shape(1)
    if len(right) != 3:
        raise Unpriced("[experts, k, n] is due")
    n = right[2] if right[1] == k else right[1]
    held = max(1, min(right[0], tokens))
    loads = tuple(sorted((tokens // held + (i < tokens % held) for i in range(held)), reverse=True))
    shape = GroupedShape(loads, k, n, row.dtype(0), row.dtype(1), "nd")
    weights = held * k * n * DTYPE_BITS[row.dtype(1)] // 8
    read, written = (tokens * width * DTYPE_BITS[row.dtype(0)] // 8 for width in (k, n))
    return Work(
        "cube",
        shape,
        cube_flops=2 * tokens * k * n,
        cold_read_bytes=weights,
        warm_read_bytes=read,
        write_bytes=written,
        program="grouped_matmul",
    )


def ffn(row: Row) -> Work:
    """x [m, k], w1 [k, 2 i], w2 [i, k] of a gated activation; what passes between the products is moved as well."""
    (m, k), w1, w2 = rows_of(row.shape(0)), row.shape(1), row.shape(2)
    if len(w1) != 2 or len(w2) != 2:
        raise Unpriced("a feed-forward layer over experts is not known")
    intermediate = w2[0]
    if w1 != (k, 2 * intermediate) or w2[1] != k:
        raise Unpriced(f"no gated feed-forward layer: {w1} and {w2} of an input of {k}")
    moved = 2 * m * (k + 3 * intermediate)
    shape = FfnShape(m, k, intermediate, row.dtype(0))
    return Work(
        "mix",
        shape,
        cube_flops=6 * m * k * intermediate,
        vector_ops=5 * m * intermediate,
        cold_read_bytes=6 * k * intermediate,
        warm_read_bytes=moved,
        write_bytes=moved,
        program="ffn",
    )


def attention_work(
    groups: tuple[Group, ...],
    heads: int,
    kv_heads: int,
    dim: int,
    program: str = "attention",
    block_size: int = 128,
    static_tokens: int = 0,
) -> Work:
    """Fused attention in 16 bit; MLA has kv_heads 1, dim 576 and one cache for keys and values. A static cache of
    static_tokens is read whole."""
    pairs = sum(g.count * (g.query * g.context + g.query * (g.query + 1) // 2) for g in groups)
    tokens = sum(g.count * g.query for g in groups)
    caches = 1 if program == "mla_attention" else 2
    cold = 2 * caches * kv_heads * dim * sum(g.count * (static_tokens or g.kv_len) for g in groups)
    moved = 2 * tokens * heads * dim
    shape = AttentionShape(
        groups,
        heads,
        kv_heads=kv_heads,
        head_dim=dim,
        kv_dtype="bf16",
        block_size=block_size,
        static_tokens=static_tokens,
    )
    return Work(
        "mix",
        shape,
        cube_flops=4 * dim * heads * pairs,
        vector_ops=6 * heads * pairs,
        cold_read_bytes=cold,
        warm_read_bytes=moved,
        write_bytes=moved,
        program=program,
    )


def attention(row: Row) -> Work:
    """FusedInferAttentionScore: query, key, value, ..., the lengths as one-dimensional shapes.

    The pool's shape does not tell the length of the cache, so `kv_tokens` must: keys of each request. Keys that have
    as many tokens as the queries are a prefill without a cache.
    """
    query, key = row.shape(0), row.shape(1)
    if not row.kv_tokens:
        raise Unpriced("the length of the cache is not known")
    if len(query) == 4:
        return _by_request(row)
    if len(query) != 3 or len(key) not in (3, 4):
        raise Unpriced("[tokens, heads, dim] or [requests, heads, queries, dim] is due")
    tokens, heads, dim = query
    lengths = [s[0] for s in row.shapes[3:] if len(s) == 1]
    requests = min(tokens, lengths[0]) if lengths else tokens
    others = key[0] == tokens
    if others and row.kv_tokens > DUMMY_KEYS:
        count = max(1, round(tokens / row.kv_tokens))  # printed lists of lengths are padded
        return attention_work((Group(count, tokens // count, 0),), heads, key[1], dim)
    kv_heads = key[-2] if others or len(key) == 4 else max(1, key[2] // dim)
    return attention_work((Group(requests, 1, row.kv_tokens - 1),), heads, kv_heads, dim)


def _by_request(row: Row) -> Work:
    """[requests, heads, queries, dim].

    One KV head of 512 is MLA's absorbed decode (and 64 more for the rotated part).
    """
    requests, heads, queries, dim = row.shape(0)
    key = row.shape(1)
    group = Group(requests, queries, max(0, row.kv_tokens - queries))
    if dim == 512 and len(key) == 4 and key[1] == 1:
        return attention_work((group,), heads, 1, 576, "mla_attention")
    # IncreFlashAttention in a static graph gets a mask and no lengths: it reads the cache that the shape tells.
    static = key[2] if row.op_type == "IncreFlashAttention" and len(key) == 4 and queries == 1 else 0
    return attention_work((group,), heads, key[1] if len(key) == 4 else 1, dim, static_tokens=static)


def mla_prefill(row: Row) -> Work:
    """RINGMLAPrefill: [tokens, heads, 128] attend to themselves; earlier chunks are not in the shapes."""
    tokens, heads, dim = row.shape(0)
    return attention_work((Group(1, tokens, 0),), heads, heads, dim)
