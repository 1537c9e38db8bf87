"""Work of DeepSeek-V4's layers: what compresses keys, chooses among compressed rows and attends to them, and what mixes
the streams of its residual.

No row of these kernels is measured: each is priced as the fitted program of the kernel that it is most like (assumed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from scenarios.ops.attention_work import attention_groups
from scenarios.ops.counting import split_reads, total_bytes, whole_number
from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import DTYPE_BITS, Group, Op, Tensor
from scenarios.ops.work import AttentionShape, MatmulShape, RowsShape, Work

#: Queries of one piece of a prompt: a block of prefill attention.
_BLOCK = 128
#: Requests with at most this many new tokens are priced as ones that decode.
_DECODE_QUERY = 16
#: Vector passes over each of a compressor's scores and values: softmax, product, sum.
_POOL_PASSES = 8


def compressor(op: Op, kind: OpKind) -> Work:
    """Two products of the step's tokens (values and scores of what is compressed), their place in the state, and of
    each finished window a weighed sum, a norm and rotary angles. Priced as one product of both weights side by side.

    Inputs: x [tokens, hidden], weights of values and of scores [parts x dim, hidden], a bias of each place, the norm's
    weight, cosines and sines of the new rows, the state.
    """
    x, values, scores, *_, state = op.inputs
    m, k = x.shape
    n = values.shape[0] + scores.shape[0]
    cold = sum(t.bytes for t in op.inputs if t.role == "weight")
    windows, depth = op.out.shape[0], state.shape[1]
    read = windows * depth * state.shape[2] * 4
    written = m * state.shape[2] * 4
    return Work(
        kind.unit,
        MatmulShape(1, m, k=k, n=n, dtype=x.dtype, weight_dtype=values.dtype, weight_format=values.format),
        cube_flops=2 * m * k * n,
        vector_ops=windows * depth * (n // 2) * _POOL_PASSES,
        cold_read_bytes=cold + read,
        warm_read_bytes=sum(t.bytes for t in op.inputs if t.role == "activation"),
        write_bytes=op.out.bytes + written,
        program="matmul",
    )


def row_write(op: Op, kind: OpKind) -> Work:
    """Finished rows into the cache of compressed ones, row by row."""
    new, slots = op.inputs[0], op.inputs[-1]
    return Work(
        kind.unit,
        RowsShape(new.shape[0], new.elements // new.shape[0]),
        warm_read_bytes=new.bytes + slots.bytes,
        write_bytes=new.bytes,
        program=kind.name,
    )


def partial_rotary(op: Op, kind: OpKind) -> Work:
    """The turning dimensions of each head in place: the others are not touched."""
    x, cos, *_ = op.inputs
    rows, width = x.elements // x.shape[-1], cos.shape[-1]
    size = rows * width * DTYPE_BITS[x.dtype] // 8
    return Work(
        kind.unit,
        RowsShape(x.shape[0], rows // x.shape[0] * width),
        vector_ops=rows * width * kind.ops_per_element,
        warm_read_bytes=size + 2 * cos.bytes,
        write_bytes=size,
        program=kind.name,
    )


def mixed_streams(op: Op, kind: OpKind) -> Work:
    """One row of streams a token. The projection of all of them (attribute mixed: its outputs) is a product of a few
    columns; the kernel streams its operands, and is priced as a row-wise one."""
    cold, warm = split_reads(op.inputs)
    streams = max((t for t in op.inputs if t.role == "activation"), key=lambda t: t.elements)
    mixed, rounds = whole_number(op, "mixed", 0), whole_number(op, "iterations", 0)
    return Work(
        kind.unit,
        RowsShape(*streams.shape),
        cube_flops=2 * streams.elements * mixed,
        vector_ops=streams.elements * kind.ops_per_element + streams.shape[0] * mixed * 4 * rounds,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=total_bytes(op.outputs),
        program=kind.name,
    )


def shared_kv_attention(op: Op, kind: OpKind) -> Work:
    """All heads over one row of a token: those of the window, and (attribute ratio) compressed ones, all that are there
    or (attribute top_k) the chosen ones of each query.

    As latent attention, whose rows are keys and values too. Queries of a prefill that choose share no tile of keys, so
    each is priced as a request of its own, as in `attention_work._sparse_attention`.
    """
    heads, dim = whole_number(op, "heads"), whole_number(op, "head_dim")
    window, ratio, top_k = (whole_number(op, name, 0) for name in ("window", "ratio", "top_k"))
    caches = [t for t in op.inputs if t.role == "kv_cache"]
    size = DTYPE_BITS[caches[0].dtype] // 8

    def seen(keys: int) -> int:
        rows = keys // ratio if ratio else 0
        return min(keys, window) + (min(rows, top_k) if top_k else rows)

    groups = attention_groups(op)
    pieces = _pieces(groups, seen, alone=top_k > 0)
    pairs = sum(g.count * g.query * (g.context + (g.query + 1) / 2) for g in pieces)
    read = 0
    for group in groups:
        rows = group.kv_len // ratio if ratio else 0
        chosen = min(rows, top_k * group.query) if top_k else rows
        read += group.count * (min(group.kv_len, window + group.query - 1) + chosen)
    cold, flops = read * dim * size, int(4 * dim * heads * pairs)
    again = max(0, int(pairs) * dim * size - cold) if top_k else 0
    return Work(
        kind.unit,
        AttentionShape(pieces, heads, 1, dim, caches[0].dtype, whole_number(op, "block_size", 0)),
        cube_flops=flops,
        vector_ops=int(6 * heads * pairs),
        cold_read_bytes=cold + sum(t.bytes for t in op.inputs if t.role == "table"),
        warm_read_bytes=sum(t.bytes for t in op.inputs if t.role == "activation") + again,
        write_bytes=op.out.bytes,
        program="mla_attention",
    )


def quant_lightning_indexer(op: Op, kind: OpKind) -> Work:
    """Scores of all compressed keys in INT8 by small heads, and the best `top_k` rows of each query.

    Priced as `attention_work.lightning_indexer` over as many bytes of 16-bit keys, since the cube takes INT8 as it is;
    what it multiplies at the rate of 16 bits, an upper bound."""
    heads, dim, ratio = (whole_number(op, name) for name in ("heads", "head_dim", "ratio"))
    groups = attention_groups(op)
    pieces = _pieces(groups, lambda keys: keys // ratio, alone=False)
    pairs = sum(g.count * g.query * (g.context + (g.query + 1) / 2) for g in pieces)
    keys, scales = (t for t in op.inputs if t.role == "kv_cache")
    rows = sum(g.count * (g.kv_len // ratio) for g in groups)
    return Work(
        kind.unit,
        AttentionShape(pieces, heads, 1, dim // 4, "bf16", 0),
        cube_flops=int(2 * dim * heads * pairs),
        vector_ops=int(3 * heads * pairs),
        cold_read_bytes=rows * (_row_bytes(keys) + _row_bytes(scales)),
        warm_read_bytes=sum(t.bytes for t in op.inputs if t.role == "activation"),
        write_bytes=op.out.bytes,
        program="mla_attention",
    )


def _row_bytes(cache: Tensor) -> int:
    return cache.shape[-1] * DTYPE_BITS[cache.dtype] // 8


def _pieces(groups: tuple[Group, ...], seen: Callable[[int], int], alone: bool) -> tuple[Group, ...]:
    """`groups` as the requests of full attention that see as many keys. seen: of a query behind so many tokens, its own
    included. alone: each query of a prefill by itself, else in blocks, each of as many keys as its middle query."""
    pieces: Counter[tuple[int, int]] = Counter()
    for group in groups:
        if group.query <= _DECODE_QUERY:
            pieces[group.query, max(0, seen(group.kv_len) - group.query)] += group.count
            continue
        for start in range(0, group.query, _BLOCK):
            size = min(_BLOCK, group.query - start)
            keys = seen(group.context + start + (size + 1) // 2)
            if alone:
                pieces[1, max(0, keys - 1)] += group.count * size
            else:
                pieces[size, max(0, keys - (size + 1) // 2)] += group.count
    return tuple(Group(count, query, context) for (query, context), count in pieces.items())
