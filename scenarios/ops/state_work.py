"""Work of layers that keep a state in place of keys and values: convolution, and the rule in both of its ways."""

from __future__ import annotations

from scenarios.ops.attention_work import attention_groups
from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import DTYPE_BITS, Group, Op, Tensor
from scenarios.ops.work import AttentionShape, RowsShape, Work

#: Tokens that the chunked way takes at once.
CHUNK = 64
#: Passes over each element of the state for a token: decay, what the key finds (2), the new value under it (2), what
#: the query reads (2).
PASSES = 7
#: Queries of one piece of the chunked way, priced as a block of prefill attention.
_BLOCK = 128


def causal_conv1d(op: Op, kind: OpKind) -> Work:
    """Each channel over the last tokens of its request: x [tokens, channels], filters, and the state of each request,
    which is read and written."""
    x, filters, held = op.inputs[0], op.inputs[1], op.inputs[-1]
    size = held.bytes
    ops = x.elements * (2 * filters.shape[1] + 7)  # multiply and add of each tap, and a SiLU
    shape = RowsShape(*x.shape)
    return Work(
        kind.unit,
        shape,
        vector_ops=ops,
        cold_read_bytes=filters.bytes + size,
        warm_read_bytes=x.bytes,
        write_bytes=op.out.bytes + size,
        program=kind.name,
    )


def recurrent_rule(op: Op, kind: OpKind) -> Work:
    """Token by token: the state of each head is read, changed and written. A row is the state of one head of one
    request."""
    held, groups = _held(op), attention_groups(op)
    requests, tokens = sum(g.count for g in groups), sum(g.count * g.query for g in groups)
    heads, cells = held.shape[1], held.shape[2] * held.shape[3]
    state = requests * heads * cells * DTYPE_BITS[held.dtype] // 8
    read, written = _share(op, tokens)
    ops = tokens * heads * cells * PASSES
    return Work(
        kind.unit,
        RowsShape(requests * heads, cells),
        vector_ops=ops,
        cold_read_bytes=state,
        warm_read_bytes=read,
        write_bytes=written + state,
        program=kind.name,
    )


def chunked_rule(op: Op, kind: OpKind) -> Work:
    """Chunk by chunk of C tokens. Multiply-adds of a token in one head, for keys of k and values of v elements:

        C (3 k + 2 v) inside the chunk (K K^T, its inverse applied to K and V, Q K^T, what that weighs), and
        3 k v with the state (what it holds for the keys, what the queries read, its change)

    Priced as prefill attention with as many multiply-adds (assumed: no measured row of this kernel).
    """
    _, _, key_dim, value_dim = _held(op).shape
    return _chunked(op, kind, CHUNK, CHUNK * (3 * key_dim + 2 * value_dim) + 3 * key_dim * value_dim)


def chunked_scan(op: Op, kind: OpKind) -> Work:
    """Mamba-2 by chunks of C tokens, for states of n elements a channel and heads of p channels: C (n + p)
    multiply-adds inside the chunk (C B^T, and what it weighs) and 3 n p with the state. Priced as `chunked_rule`
    (assumed)."""
    _, _, head_dim, state_dim = _held(op).shape
    chunk = op.attr("chunk")
    assert isinstance(chunk, int)
    return _chunked(op, kind, chunk, chunk * (head_dim + state_dim) + 3 * head_dim * state_dim)


def _held(op: Op) -> Tensor:
    """The state of all requests."""
    return next(t for t in op.inputs if t.role == "kv_cache")


def _chunked(op: Op, kind: OpKind, chunk: int, macs: int) -> Work:
    """Work of `macs` multiply-adds for each token of each head."""
    held, groups = _held(op), attention_groups(op)
    _, heads, key_dim, value_dim = held.shape
    tokens = sum(g.count * g.query for g in groups)
    keys = macs // (key_dim + value_dim)  # keys that a query of attention would see for as many
    pieces = []
    for group in groups:
        whole, rest = divmod(group.query, _BLOCK)
        pieces += [Group(group.count * whole, _BLOCK, max(0, keys - _BLOCK // 2))] if whole else []
        pieces += [Group(group.count, rest, max(0, keys - rest // 2))] if rest else []
    shape = AttentionShape(tuple(pieces), heads, heads, (key_dim + value_dim) // 2, op.inputs[0].dtype, 0)
    state = sum(g.count for g in groups) * heads * key_dim * value_dim * DTYPE_BITS[held.dtype] // 8
    read, written = _share(op, tokens)
    softmax = 6 * heads * tokens * chunk  # decays, masks and gates of the products inside a chunk
    return Work(
        kind.unit,
        shape,
        cube_flops=2 * macs * heads * tokens,
        vector_ops=softmax,
        cold_read_bytes=state,
        warm_read_bytes=read,
        write_bytes=written + state,
        program="attention",
    )


def _share(op: Op, tokens: int) -> tuple[int, int]:
    """(bytes read, bytes written) of activations by `tokens` of the step's."""
    own = tuple(t for t in op.inputs if t.role == "activation" and t.name != op.out.name)
    rows = op.out.shape[0]
    return sum(t.bytes for t in own) * tokens // rows, op.out.bytes * tokens // rows
