"""What each class of operations asks of a device: flops by engine, bytes by memory level. No times.

Each function makes the `Work` of an op; `scenarios.ops.catalogue` says which kind uses which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Literal, cast

from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import DTYPE_BITS, DType, Group, Op, Tensor
from scenarios.ops.routing import Routing
from scenarios.ops.work import (
    AttentionShape,
    Collective,
    CollectiveShape,
    Exchange,
    ExchangeShape,
    FfnShape,
    FixedShape,
    FlatShape,
    GroupedShape,
    MatmulCollectiveShape,
    MatmulShape,
    RowsShape,
    Work,
)


def _split_reads(tensors: tuple[Tensor, ...]) -> tuple[int, int]:
    """(cold, warm) bytes of inputs read in full: weights, tables and caches are cold, activations warm."""
    cold = sum(t.bytes for t in tensors if t.role != "activation")
    return cold, sum(t.bytes for t in tensors if t.role == "activation")


def _bytes(tensors: tuple[Tensor, ...]) -> int:
    return sum(t.bytes for t in tensors)


def flat_shape(elements: int, cols: int, tensors: tuple[Tensor, ...]) -> FlatShape:
    """`elements` of rows of `cols`, computed in the widest of the tensors' types."""
    return FlatShape(elements, cols, max(computed_bytes(t.dtype) for t in tensors))


def computed_bytes(dtype: DType) -> int:
    """Bytes of an element while a vector core computes with it: BF16 is computed in FP32, booleans in FP16."""
    return {"bf16": 4, "bool": 2}.get(dtype, max(1, DTYPE_BITS[dtype] // 8))


def flat(op: Op, kind: OpKind) -> Work:
    """Elementwise: every operand is read once, every output written once."""
    cold, warm = _split_reads(op.inputs)
    elements = max([t.elements for t in op.outputs] + [t.elements for t in op.inputs if t.role == "activation"])
    program = _stretching(op, elements) if kind.elementwise else ""
    ops = int(op.attr("fused_ops", kind.ops_per_element))  # type: ignore[arg-type]
    if kind.elementwise and DTYPE_BITS[(op.inputs or op.outputs)[0].dtype] == 16:
        ops += 2  # 16 bit is computed in float32: a cast in and a cast out
    largest = max((*op.outputs, *op.inputs), key=lambda t: t.elements)
    shape = flat_shape(elements, largest.shape[-1] if largest.shape else 1, (*op.inputs, *op.outputs))
    if op.parts:  # what a graph compiler joins is computed in float32
        shape = replace(shape, widest_bytes=max(shape.widest_bytes, 4))
    return Work(
        kind.unit,
        shape,
        vector_ops=elements * ops,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=_bytes(op.outputs),
        program=program or kind.name,
    )


def _stretching(op: Op, elements: int) -> str:
    """The program that stretches a smaller operand over the largest: a column element by element, a row by
    addressing."""
    small = [t for t in op.inputs if 1 < t.elements < elements]
    if not small:
        return ""
    return "broadcast" if any(t.shape[-1] == 1 for t in small) else "broadcast_row"


def copies(op: Op, kind: OpKind) -> Work:
    """Copies that cut or join the last dimension: each row of each part is a run of memory of its own, read and
    written."""
    cold, warm = _split_reads(op.inputs)
    parts = op.inputs if len(op.inputs) > len(op.outputs) else op.outputs
    runs = 2 * sum(prod(t.shape[:-1]) for t in parts)
    elements = sum(t.elements for t in op.outputs)
    whole = op.inputs[0] if len(op.outputs) > len(op.inputs) else op.out  # a split deals out rows of what it reads
    shape = flat_shape(elements, whole.shape[-1], op.outputs)
    return Work(
        kind.unit,
        shape,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=_bytes(op.outputs),
        program=kind.name,
        pieces=runs,
    )


def rows(op: Op, kind: OpKind) -> Work:
    """Row-wise: the last dimension of the first input is reduced as a whole."""
    cold, warm = _split_reads(op.inputs)
    x = op.inputs[0]
    shape = RowsShape(prod(x.shape[:-1]), x.shape[-1])
    return Work(
        kind.unit,
        shape,
        vector_ops=x.elements * kind.ops_per_element,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=_bytes(op.outputs),
        program=kind.name,
    )


def norm_through_add(op: Op, work: Work) -> Work:
    """A norm run as AddRmsNorm: zeros of the input's size are read as the residual, and their sum is written too."""
    size = op.inputs[0].bytes
    return replace(
        work, program="add_rms_norm", warm_read_bytes=work.warm_read_bytes + size, write_bytes=work.write_bytes + size
    )


def scattered(_: Op, work: Work) -> Work:
    """A write into a static cache: a kernel with little code and no slots to read, Scatter."""
    return replace(work, program="scatter", cold_read_bytes=0)


#: Work of kernels that a stack runs in place of a kind's own: (kind, profiler's name) -> (op, the kind's work) -> Work.
VARIANTS: dict[tuple[str, str], Callable[[Op, Work], Work]] = {
    ("rms_norm", "InplaceAddRmsNorm"): norm_through_add,
    ("kv_cache_write", "Scatter"): scattered,
}


def swiglu(op: Op, kind: OpKind) -> Work:
    """[rows, 2 n] -> [rows, n]: silu of one half times the other."""
    _, warm = _split_reads(op.inputs)
    elements = op.inputs[0].elements
    shape = flat_shape(elements, op.inputs[0].shape[-1], op.inputs[:1])
    return Work(
        kind.unit,
        shape,
        vector_ops=op.out.elements * kind.ops_per_element,
        warm_read_bytes=warm,
        write_bytes=op.out.bytes,
        program=kind.name,
    )


def dequant_swiglu_quant(op: Op, kind: OpKind) -> Work:
    """INT32 sums [rows, 2 n], scales of the weight and of the rows -> INT8 [rows, n] and a scale per row. Its program
    is that of SwiGLU, as measured rows of this kernel are priced."""
    cold, warm = _split_reads(op.inputs)
    work = swiglu(op, kind)
    return replace(work, cold_read_bytes=cold, warm_read_bytes=warm, write_bytes=_bytes(op.outputs), program="swiglu")


def rope(op: Op, kind: OpKind) -> Work:
    """Query and key of one token are rotated together: a row is a token."""
    cold, warm = _split_reads(op.inputs)
    rows = op.inputs[0].shape[0]
    elements = sum(t.elements for t in op.outputs)
    shape = RowsShape(rows, elements // rows)
    return Work(
        kind.unit,
        shape,
        vector_ops=elements * kind.ops_per_element,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=_bytes(op.outputs),
        program=kind.name,
    )


def gather(op: Op, kind: OpKind) -> Work:
    """Rows picked from a table: only the picked rows are read."""
    indices = sum(t.bytes for t in op.inputs if t.role == "activation" and t is not op.inputs[0])
    picked = op.out.bytes
    cold, warm = (picked, 0) if op.inputs[0].role != "activation" else (0, picked)
    cols = op.out.shape[-1]
    rows = max(1, op.out.elements // cols)
    return Work(
        kind.unit,
        RowsShape(rows, cols),
        cold_read_bytes=cold,
        warm_read_bytes=warm + indices,
        write_bytes=picked,
        program=kind.name,
    )


def matmul(op: Op, kind: OpKind) -> Work:
    """[.., m, k] x [n, k] (a linear weight) or [b, m, k] x [b, k, n] (attr batched); bias and scales are further
    inputs."""
    x, w = op.inputs[0], op.inputs[1]
    if op.attr("batched", False):
        batch, m, k = prod(x.shape[:-2]), x.shape[-2], x.shape[-1]
        n = op.out.shape[-1]
    else:
        batch, k, n = 1, x.shape[-1], w.shape[0]
        m = x.elements // k
    cold, warm = _split_reads(op.inputs)
    # Products of integers take [k, n], as torch_npu's calls ask for; a linear layer keeps [n, k].
    usual = "k" if op.attr("batched", False) or w.dtype in ("int8", "int4") else "n"
    rows = op.attr("weight_rows", usual)
    shape = MatmulShape(
        batch,
        m,
        k=k,
        n=n,
        dtype=x.dtype,
        weight_dtype=w.dtype,
        weight_format=w.format,
        weight_rows=cast(Literal["n", "k"], rows),
    )
    return Work(
        kind.unit,
        shape,
        cube_flops=2 * batch * m * k * n,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=_bytes(op.outputs),
        program=kind.name,
        prefetched_bytes=int(op.attr("prefetched_bytes", 0)),  # type: ignore[arg-type]
        prefetched_together_bytes=int(op.attr("prefetched_together_bytes", 0)),  # type: ignore[arg-type]
    )


def matmul_all_reduce(op: Op, kind: OpKind) -> Work:
    """A product of any weight type and the all-reduce of its output: the work of both, one after the other."""
    x, weight = op.inputs[:2]
    inner = "quant_matmul" if x.dtype == "int8" else "matmul" if x.dtype == weight.dtype else "weight_quant_matmul"
    product = matmul(op, replace(kind, name=inner, unit="cube" if inner == "matmul" else "mix"))
    assert isinstance(product.shape, MatmulShape)
    whole = op.out.bytes
    reduced = CollectiveShape("all_reduce", whole, _whole(op, "ranks"))
    return replace(
        product,
        shape=MatmulCollectiveShape(product.shape, reduced),
        warm_read_bytes=product.warm_read_bytes + whole,
        write_bytes=product.write_bytes + whole,
    )


def ffn(op: Op, kind: OpKind) -> Work:
    """x [m, hidden], w1 [2 intermediate, hidden] (gate over up), w2 [hidden, intermediate] -> [m, hidden].

    What passes between the cube and the vector cores goes through a workspace in global memory, as it does between
    kernels: the first product and the activated half of it are written and read.
    """
    x, w1 = op.inputs[0], op.inputs[1]
    hidden, intermediate = x.shape[-1], w1.shape[0] // 2
    m = x.elements // hidden
    cold, warm = _split_reads(op.inputs)
    workspace = 3 * m * intermediate * DTYPE_BITS[x.dtype] // 8
    return Work(
        kind.unit,
        FfnShape(m, hidden, intermediate, x.dtype),
        cube_flops=6 * m * hidden * intermediate,
        vector_ops=m * intermediate * kind.ops_per_element,
        cold_read_bytes=cold,
        warm_read_bytes=warm + workspace,
        write_bytes=op.out.bytes + workspace,
        program=kind.name,
    )


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
    heads, kv_heads, dim = (_whole(op, a) for a in ("heads", "kv_heads", "head_dim"))
    groups = in_sight(attention_groups(op), _whole(op, "window", 0), _whole(op, "chunk", 0))
    pairs = _seen(groups)[0]
    kv_tokens = sum(_kept(g, _whole(op, "window", 0), _whole(op, "chunk", 0)) for g in attention_groups(op))
    static = _whole(op, "static_tokens", 0)
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
        block_size=_whole(op, "block_size", 0),
        static_tokens=static,
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


#: Queries of one piece of a prompt under a window: a block of prefill attention.
_BLOCK = 128


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
    heads, row = _whole(op, "heads"), _whole(op, "head_dim")
    groups = attention_groups(op)
    if top_k := _whole(op, "top_k", 0):
        return _sparse_attention(op, kind, top_k)
    pairs, kv_tokens = _seen(groups)
    caches = [t for t in op.inputs if t.role == "kv_cache"]
    cold = kv_tokens * row * DTYPE_BITS[caches[0].dtype] // 8 + sum(t.bytes for t in op.inputs if t.role == "table")
    queries = sum(t.bytes for t in op.inputs if t.role == "activation")
    shape = AttentionShape(groups, heads, 1, row, caches[0].dtype, _whole(op, "block_size", 0))
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
    heads, row = _whole(op, "heads"), _whole(op, "head_dim")
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
    shape = AttentionShape(tuple(each), heads, 1, row, op.inputs[2].dtype, _whole(op, "block_size", 0))
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
    heads, dim = _whole(op, "heads"), _whole(op, "head_dim")
    groups = attention_groups(op)
    pairs, kv_tokens = _seen(groups)
    cache = next(t for t in op.inputs if t.role == "kv_cache")
    cold = kv_tokens * dim * DTYPE_BITS[cache.dtype] // 8 + sum(t.bytes for t in op.inputs if t.role == "table")
    warm = sum(t.bytes for t in op.inputs if t.role == "activation")
    shape = AttentionShape(groups, heads, 1, dim // 2, cache.dtype, _whole(op, "block_size", 0))
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


def _whole(op: Op, attr: str, default: int | None = None) -> int:
    value = op.attr(attr, default)
    assert isinstance(value, int)
    return value


def cache_write(op: Op, kind: OpKind) -> Work:
    """New keys or values (all activation inputs) into their slots; the pool itself is not copied.

    K and V together go token by token; one of them alone goes by rows of one head, as ScatterNdUpdate is called.
    """
    new = [t for t in op.inputs if t.role == "activation"]
    warm = sum(t.bytes for t in new)
    tables = sum(t.bytes for t in op.inputs if t.role == "table")
    elements = sum(t.elements for t in new)
    rows = new[0].shape[0] if len(new) > 1 else prod(new[0].shape[:-1])
    written = sum(t.elements * DTYPE_BITS[c.dtype] // 8 for t, c in zip(new, op.outputs, strict=False))
    return Work(
        kind.unit,
        RowsShape(rows, elements // rows),
        cold_read_bytes=tables,
        warm_read_bytes=warm,
        write_bytes=written,
        program=kind.name,
    )


def qkv_norm_rope_cache(op: Op, kind: OpKind) -> Work:
    """Packed [tokens, q+k+v] -> normalised and rotated q, and k and v straight into the cache."""
    cold, warm = _split_reads(tuple(t for t in op.inputs if t.role != "kv_cache"))
    qkv, q = op.inputs[0], op.out
    written = q.bytes + (qkv.elements - q.elements) * DTYPE_BITS[op.outputs[1].dtype] // 8
    head_dim = q.shape[-1]
    return Work(
        kind.unit,
        RowsShape(qkv.elements // head_dim, head_dim),
        vector_ops=qkv.elements * kind.ops_per_element,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=written,
        program=kind.name,
    )


#: Which ranks a collective joins: how many, the first die, the distance from one to the next.
_GROUP = (("ranks", None), ("first", 0), ("stride", 1))


def collective(op: Op, kind: OpKind) -> Work:
    """Ranks exchange a tensor; every byte of it passes this rank's memory once in and once out."""
    whole = max(t.bytes for t in (*op.inputs, *op.outputs))  # a send has no output, a receive no input
    ranks, first, stride = (_whole(op, key, default) for key, default in _GROUP)
    uneven = float(op.attr("imbalance", 1.0))  # type: ignore[arg-type]
    shape = CollectiveShape(
        cast(Collective, kind.name),
        whole,
        ranks=ranks,
        first=first,
        stride=stride,
        imbalance=uneven,
        mode=str(op.attr("mode", "auto")),
    )
    return Work(kind.unit, shape, warm_read_bytes=_bytes(op.inputs), write_bytes=_bytes(op.outputs), program=kind.name)


def prefetch(op: Op, kind: OpKind) -> Work:
    """Weights from HBM into L2, by a DMA engine."""
    weight = op.inputs[0]
    return Work(kind.unit, FlatShape(weight.elements), cold_read_bytes=weight.bytes, program=kind.name)


def fixed(op: Op, kind: OpKind) -> Work:
    """A tiny kernel whose time does not depend on its few bytes."""
    cold, warm = _split_reads(op.inputs)
    return Work(
        kind.unit,
        FixedShape(op.op_type or kind.op_type),
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=_bytes(op.outputs),
    )


def transpose(op: Op, kind: OpKind) -> Work:
    """Axes swapped: each run of the last dimension is moved by itself, read in one place and written in another."""
    cold, warm = _split_reads(op.inputs)
    elements = op.out.elements
    runs = 2 * elements // op.out.shape[-1]
    shape = flat_shape(elements, op.out.shape[-1], op.outputs)
    return Work(
        kind.unit,
        shape,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=_bytes(op.outputs),
        program=kind.name,
        pieces=runs,
    )


def token_rows(op: Op, kind: OpKind) -> Work:
    """One row per token, whatever its heads: the first input passes a core token by token, and goes into the caches.

    Caches are written only where the new rows go.
    """
    x = op.inputs[0]
    cold = sum(t.bytes for t in op.inputs if t.role in ("weight", "table"))
    warm = sum(t.bytes for t in op.inputs if t.role == "activation")
    cached = x.bytes if any(t.role == "kv_cache" for t in op.outputs) else 0
    written = cached + sum(t.bytes for t in op.outputs if t.role == "activation")
    shape = RowsShape(x.shape[0], x.elements // x.shape[0])
    return Work(
        kind.unit,
        shape,
        vector_ops=x.elements * kind.ops_per_element,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=written,
        program=kind.name,
    )


def cache_read(op: Op, kind: OpKind) -> Work:
    """Blocks of a paged cache copied to rows that follow each other; each block is a run of memory."""
    tables = sum(t.bytes for t in op.inputs if t.role == "table")
    written = _bytes(op.outputs)
    elements = sum(t.elements for t in op.outputs)
    block = _whole(op, "block_size", 0)  # 0: a contiguous cache
    runs = sum(max(1, t.shape[0] // block) if block else 1 for t in op.outputs)
    shape = flat_shape(elements, sum(t.elements // t.shape[0] for t in op.outputs), op.outputs)
    return Work(
        kind.unit, shape, cold_read_bytes=written + tables, write_bytes=written, program=kind.name, pieces=2 * runs
    )


def routing_of(op: Op) -> Routing:
    """The routing that a grouped product follows (attributes tokens, experts, held, top_k, skew, seed)."""
    tokens, experts, held, top_k, seed = (_whole(op, a) for a in ("tokens", "experts", "held", "top_k", "seed"))
    return Routing(tokens, experts, held, top_k, float(op.attr("skew", 0.0)), seed)  # type: ignore[arg-type]


def grouped_matmul(op: Op, kind: OpKind) -> Work:
    """[rows, k] x [held, n, k]: the rows of each expert meet its weight; weights of experts without a row stay.

    Loads are those of layer and rank as the op's attributes say (0 and 0: `placed` sets them).
    """
    x, w = op.inputs[0], op.inputs[1]
    n, k = w.shape[1], w.shape[2]
    loads = routing_of(op).loads(_whole(op, "layer", 0), _whole(op, "rank", 0))
    busy = tuple(sorted((load for load in loads if load), reverse=True))
    rows = sum(busy)
    cold = len(busy) * k * n * DTYPE_BITS[w.dtype] // 8
    cold += sum(t.bytes for t in op.inputs[2:] if t.role == "weight") * len(busy) // len(loads)
    warm = rows * k * DTYPE_BITS[x.dtype] // 8
    shape = GroupedShape(busy, k, n, x.dtype, w.dtype, w.format)
    written = rows * n * DTYPE_BITS[op.out.dtype] // 8
    return Work(
        kind.unit,
        shape,
        cube_flops=2 * rows * k * n,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=written,
        program=kind.name,
    )


def placed(op: Op, layer: int, rank: int) -> Op:
    """`op` in one layer of one rank: what a routed op does differs there."""
    return replace(op, attrs=(*op.attrs, ("layer", layer), ("rank", rank)))


def exchange(op: Op, kind: OpKind) -> Work:
    """Tokens to the ranks of their experts, or their results back: `top_k` rows for each token of this rank."""
    token = op.inputs[0] if kind.name == "moe_dispatch" else op.out
    top_k, ranks = _whole(op, "top_k"), _whole(op, "ranks")
    sent = op.out.dtype if kind.name == "moe_dispatch" else op.inputs[0].dtype
    shape = ExchangeShape(cast(Exchange, kind.name), token.shape[0], top_k, token.shape[1], sent, ranks)
    moved = token.shape[0] * top_k * token.shape[1] * DTYPE_BITS[sent] // 8
    return Work(kind.unit, shape, warm_read_bytes=moved, write_bytes=moved, program=kind.name)
