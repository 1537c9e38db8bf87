"""Every operation kind once: what the profiler calls it, which cores run it, and what work it asks for.

A `Work` counts flops and bytes only; times are the simulator's business. Adding a kind: one row in `CATALOGUE`, a
plain-torch reference in `device/operators`, and its fused call where a backend has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, cast

from scenarios.program import DTYPE_BITS, Group, Op, Tensor
from scenarios.work import (
    AttentionShape,
    Collective,
    CollectiveShape,
    FixedShape,
    FlatShape,
    MatmulCollectiveShape,
    MatmulShape,
    RowsShape,
    Unit,
    Work,
)

HostClass = Literal["aten", "matmul", "npu", "inner"]


@dataclass(frozen=True, slots=True)
class OpKind:
    """One kind of operation.

    op_type: the profiler's name where the op gives none. unit: the cores that run it. host: what class of call the host
    makes (a plain aten op, a matmul, a fused npu_ op, or none of its own: an inner kernel that another call launches).
    elementwise: a graph compiler may fuse it with its neighbours. ops_per_element: vector instructions per element of
    the largest operand. api: the torch or torch_npu call behind it.
    """

    name: str
    op_type: str
    unit: Unit
    work: Callable[[Op, OpKind], Work]
    host: HostClass = "aten"
    elementwise: bool = False
    ops_per_element: int = 1
    api: str = ""


def work_of(op: Op) -> Work:
    """The work of `op`; KeyError names the kinds that exist where its kind is unknown."""
    try:
        kind = CATALOGUE[op.kind]
    except KeyError:
        raise KeyError(f"unknown op kind {op.kind!r}; the catalogue has {', '.join(sorted(CATALOGUE))}") from None
    return kind.work(op, kind)


def op_type_of(op: Op) -> str:
    """The name the profiler prints for `op`."""
    return op.op_type or CATALOGUE[op.kind].op_type


def _split_reads(tensors: tuple[Tensor, ...]) -> tuple[int, int]:
    """(cold, warm) bytes of inputs read in full: weights, tables and caches are cold, activations warm."""
    cold = sum(t.bytes for t in tensors if t.role != "activation")
    return cold, sum(t.bytes for t in tensors if t.role == "activation")


def _written(tensors: tuple[Tensor, ...]) -> int:
    return sum(t.bytes for t in tensors)


def _flat(op: Op, kind: OpKind) -> Work:
    """Elementwise: every operand is read once, every output written once."""
    cold, warm = _split_reads(op.inputs)
    elements = max([t.elements for t in op.outputs] + [t.elements for t in op.inputs if t.role == "activation"])
    program = _stretching(op, elements) if kind.elementwise else ""
    ops = int(op.attr("fused_ops", kind.ops_per_element))  # type: ignore[arg-type]
    if kind.elementwise and DTYPE_BITS[(op.inputs or op.outputs)[0].dtype] == 16:
        ops += 2  # 16 bit is computed in float32: a cast in and a cast out
    return Work(
        kind.unit, FlatShape(elements), 0, elements * ops, cold, warm, _written(op.outputs), program or kind.name
    )


def _stretching(op: Op, elements: int) -> str:
    """The program that stretches a smaller operand over the largest: a column element by element, a row by
    addressing."""
    small = [t for t in op.inputs if 1 < t.elements < elements]
    if not small:
        return ""
    return "broadcast" if any(t.shape[-1] == 1 for t in small) else "broadcast_row"


def _copies(op: Op, kind: OpKind) -> Work:
    """Copies that cut or join the last dimension: each row of each part is a run of memory of its own, read and
    written."""
    cold, warm = _split_reads(op.inputs)
    parts = op.inputs if len(op.inputs) > len(op.outputs) else op.outputs
    runs = 2 * sum(prod(t.shape[:-1]) for t in parts)
    elements = sum(t.elements for t in op.outputs)
    return Work(kind.unit, FlatShape(elements), 0, 0, cold, warm, _written(op.outputs), kind.name, runs)


def _rows(op: Op, kind: OpKind) -> Work:
    """Row-wise: the last dimension of the first input is reduced as a whole."""
    cold, warm = _split_reads(op.inputs)
    x = op.inputs[0]
    shape = RowsShape(prod(x.shape[:-1]), x.shape[-1])
    return Work(kind.unit, shape, 0, x.elements * kind.ops_per_element, cold, warm, _written(op.outputs), kind.name)


def _swiglu(op: Op, kind: OpKind) -> Work:
    """[rows, 2 n] -> [rows, n]: silu of one half times the other."""
    _, warm = _split_reads(op.inputs)
    elements = op.inputs[0].elements
    return Work(
        kind.unit, FlatShape(elements), 0, op.out.elements * kind.ops_per_element, 0, warm, op.out.bytes, kind.name
    )


def _rope(op: Op, kind: OpKind) -> Work:
    """Query and key of one token are rotated together: a row is a token."""
    cold, warm = _split_reads(op.inputs)
    rows = op.inputs[0].shape[0]
    elements = sum(t.elements for t in op.outputs)
    shape = RowsShape(rows, elements // rows)
    return Work(kind.unit, shape, 0, elements * kind.ops_per_element, cold, warm, _written(op.outputs), kind.name)


def _gather(op: Op, kind: OpKind) -> Work:
    """Rows picked from a table: only the picked rows are read."""
    indices = sum(t.bytes for t in op.inputs if t.role == "activation" and t is not op.inputs[0])
    picked = op.out.bytes
    cold, warm = (picked, 0) if op.inputs[0].role != "activation" else (0, picked)
    cols = op.out.shape[-1]
    rows = max(1, op.out.elements // cols)
    return Work(kind.unit, RowsShape(rows, cols), 0, 0, cold, warm + indices, picked, kind.name)


def _matmul(op: Op, kind: OpKind) -> Work:
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
    shape = MatmulShape(batch, m, k, n, x.dtype, w.dtype, w.format)
    return Work(
        kind.unit, shape, 2 * batch * m * k * n, 0, cold, warm, _written(op.outputs), kind.name,
        prefetched_bytes=int(op.attr("prefetched_bytes", 0)),  # type: ignore[arg-type]
        prefetched_together_bytes=int(op.attr("prefetched_together_bytes", 0)),  # type: ignore[arg-type]
    )  # fmt: skip


def attention_groups(op: Op) -> tuple[Group, ...]:
    """The groups of requests that an attention op serves."""
    raw = op.attr("groups")
    assert isinstance(raw, tuple)
    return tuple(Group(*g) for g in raw)


def _attention(op: Op, kind: OpKind) -> Work:
    """Fused causal attention: q [tokens, heads, head_dim] against each request's cache.

    flops = 4 head_dim heads sum_requests sum_queries (keys that query sees); K and V of every visible token are read
    once per request.
    """
    query, key = op.inputs[0], op.inputs[1]
    heads, kv_heads, dim = (int(op.attr(a)) for a in ("heads", "kv_heads", "head_dim"))  # type: ignore[arg-type]
    groups = attention_groups(op)
    pairs = sum(g.count * (g.query * g.context + g.query * (g.query + 1) // 2) for g in groups)
    kv_tokens = sum(g.count * g.kv_len for g in groups)
    kv_bytes = 2 * kv_tokens * kv_heads * dim * DTYPE_BITS[key.dtype] // 8
    tables = sum(t.bytes for t in op.inputs[3:])  # block table and scales
    antiquant = 2 * kv_tokens * kv_heads * dim if key.dtype == "int8" else 0
    block_size = int(op.attr("block_size", 0))  # type: ignore[arg-type]
    shape = AttentionShape(groups, heads, kv_heads, dim, key.dtype, block_size)
    softmax = 6 * heads * pairs  # scale, max, subtract, exp, sum, rescale: six vector passes over each score
    return Work(
        kind.unit, shape, 4 * dim * heads * pairs, softmax + antiquant, kv_bytes + tables, query.bytes, op.out.bytes,
        kind.name,
    )  # fmt: skip


def _cache_write(op: Op, kind: OpKind) -> Work:
    """New keys or values (all activation inputs) into their slots; the pool itself is not copied.

    K and V together go token by token; one of them alone goes by rows of one head, as ScatterNdUpdate is called.
    """
    new = [t for t in op.inputs if t.role == "activation"]
    warm = sum(t.bytes for t in new)
    tables = sum(t.bytes for t in op.inputs if t.role == "table")
    elements = sum(t.elements for t in new)
    rows = new[0].shape[0] if len(new) > 1 else prod(new[0].shape[:-1])
    written = sum(t.elements * DTYPE_BITS[c.dtype] // 8 for t, c in zip(new, op.outputs, strict=False))
    return Work(kind.unit, RowsShape(rows, elements // rows), 0, 0, tables, warm, written, kind.name)


def _qkv_norm_rope_cache(op: Op, kind: OpKind) -> Work:
    """Packed [tokens, q+k+v] -> normalised and rotated q, and k and v straight into the cache."""
    cold, warm = _split_reads(tuple(t for t in op.inputs if t.role != "kv_cache"))
    qkv, q = op.inputs[0], op.out
    written = q.bytes + (qkv.elements - q.elements) * DTYPE_BITS[op.outputs[1].dtype] // 8
    head_dim = q.shape[-1]
    return Work(
        kind.unit, RowsShape(qkv.elements // head_dim, head_dim), 0, qkv.elements * kind.ops_per_element,
        cold, warm, written, kind.name,
    )  # fmt: skip


def _collective(op: Op, kind: OpKind) -> Work:
    """Ranks exchange a tensor; every byte of it passes this rank's memory once in and once out."""
    whole = max(op.inputs[0].bytes, op.out.bytes)
    shape = CollectiveShape(cast(Collective, kind.name), whole, int(op.attr("ranks")))  # type: ignore[arg-type]
    return Work(kind.unit, shape, 0, 0, 0, op.inputs[0].bytes, op.out.bytes, kind.name)


def _matmul_all_reduce(op: Op, kind: OpKind) -> Work:
    """A product of any weight type and the all-reduce of its output: the work of both, one after the other."""
    x, weight = op.inputs[:2]
    inner = "quant_matmul" if x.dtype == "int8" else "matmul" if x.dtype == weight.dtype else "weight_quant_matmul"
    product = _matmul(op, CATALOGUE[inner])
    assert isinstance(product.shape, MatmulShape)
    whole = op.out.bytes
    reduced = CollectiveShape("all_reduce", whole, int(op.attr("ranks")))  # type: ignore[arg-type]
    return replace(
        product, shape=MatmulCollectiveShape(product.shape, reduced),
        warm_read_bytes=product.warm_read_bytes + whole, write_bytes=product.write_bytes + whole,
    )  # fmt: skip


def _prefetch(op: Op, kind: OpKind) -> Work:
    """Weights from HBM into L2, by a DMA engine."""
    weight = op.inputs[0]
    return Work(kind.unit, FlatShape(weight.elements), cold_read_bytes=weight.bytes, program=kind.name)


def _fixed(op: Op, kind: OpKind) -> Work:
    """A tiny kernel whose time does not depend on its few bytes."""
    cold, warm = _split_reads(op.inputs)
    return Work(kind.unit, FixedShape(op_type_of(op)), 0, 0, cold, warm, _written(op.outputs))


def _table(*kinds: OpKind) -> dict[str, OpKind]:
    return {kind.name: kind for kind in kinds}


CATALOGUE: dict[str, OpKind] = _table(
    # Matrix products. Only these have "matmul" in their name.
    OpKind("matmul", "MatMulV2", "cube", _matmul, "matmul", api="torch.nn.functional.linear"),
    OpKind("batch_matmul", "BatchMatMulV2", "cube", _matmul, "matmul", api="torch.matmul"),
    OpKind("quant_matmul", "QuantBatchMatmulV3", "mix", _matmul, "npu", api="torch_npu.npu_quant_matmul"),
    OpKind(
        "weight_quant_matmul",
        "WeightQuantBatchMatmulV2",
        "mix",
        _matmul,
        "npu",
        api="torch_npu.npu_weight_quant_batchmatmul",
    ),
    OpKind(
        "matmul_all_reduce", "MatmulAllReduce", "mix", _matmul_all_reduce, "npu", api="torch_npu.npu_mm_all_reduce_base"
    ),
    # Attention. Only this has "attention" in its name.
    OpKind(
        "attention",
        "FusedInferAttentionScore",
        "mix",
        _attention,
        "npu",
        api="torch_npu.npu_fused_infer_attention_score",
    ),
    # Normalisation, one row a token or a head.
    OpKind("rms_norm", "RmsNorm", "vector", _rows, "npu", ops_per_element=4, api="torch_npu.npu_rms_norm"),
    OpKind("add_rms_norm", "AddRmsNorm", "vector", _rows, "npu", ops_per_element=5, api="torch_npu.npu_add_rms_norm"),
    OpKind(
        "add_rms_norm_dynamic_quant",
        "AddRmsNormDynamicQuant",
        "vector",
        _rows,
        "npu",
        ops_per_element=9,
        api="torch_npu.npu_add_rms_norm_dynamic_quant",
    ),
    OpKind("reduce_mean", "ReduceMean", "vector", _rows, ops_per_element=1, api="torch.mean"),
    OpKind("softmax", "SoftmaxV2", "vector", _rows, ops_per_element=5, api="torch.softmax"),
    # Quantisation.
    OpKind(
        "dynamic_quant", "DynamicQuant", "vector", _rows, "npu", ops_per_element=4, api="torch_npu.npu_dynamic_quant"
    ),
    OpKind("static_quant", "AscendQuantV2", "vector", _flat, "npu", ops_per_element=3, api="torch_npu.npu_quantize"),
    # Rotary embedding, activation, cache.
    OpKind(
        "rope", "ApplyRotaryPosEmb", "vector", _rope, "npu", ops_per_element=4, api="torch_npu.npu_apply_rotary_pos_emb"
    ),
    OpKind("swiglu", "SwiGlu", "vector", _swiglu, "npu", ops_per_element=5, api="torch_npu.npu_swiglu"),
    OpKind(
        "kv_cache_write",
        "ScatterNdUpdate",
        "vector",
        _cache_write,
        "npu",
        api="torch_npu.npu_scatter_nd_update_ / npu_scatter_pa_kv_cache",
    ),
    OpKind(
        "qkv_norm_rope_cache",
        "QkvRmsNormRopeCache",
        "vector",
        _qkv_norm_rope_cache,
        "npu",
        ops_per_element=8,
        api="torch_npu.npu_qkv_rms_norm_rope_cache",
    ),
    # Elementwise primitives: a graph compiler fuses runs of these.
    OpKind("add", "Add", "vector", _flat, elementwise=True, api="torch.add"),
    OpKind("adds", "Adds", "vector", _flat, elementwise=True, api="torch.add (scalar)"),
    OpKind("mul", "Mul", "vector", _flat, elementwise=True, api="torch.mul"),
    OpKind("muls", "Muls", "vector", _flat, elementwise=True, api="torch.mul (scalar)"),
    OpKind("div", "RealDiv", "vector", _flat, elementwise=True, ops_per_element=2, api="torch.div"),
    OpKind("neg", "Neg", "vector", _flat, elementwise=True, api="torch.neg"),
    OpKind("pow", "Pows", "vector", _flat, elementwise=True, ops_per_element=2, api="torch.pow"),
    OpKind("rsqrt", "Rsqrt", "vector", _flat, elementwise=True, ops_per_element=3, api="torch.rsqrt"),
    OpKind("silu", "Swish", "vector", _flat, elementwise=True, ops_per_element=7, api="torch.nn.functional.silu"),
    OpKind("cos", "Cos", "vector", _flat, elementwise=True, ops_per_element=50, api="torch.cos"),
    OpKind("sin", "Sin", "vector", _flat, elementwise=True, ops_per_element=50, api="torch.sin"),
    OpKind("cast", "Cast", "vector", _flat, elementwise=True, api="Tensor.to"),
    OpKind(
        "fused_elementwise",
        "AutomaticBufferFusionOp",
        "vector",
        _flat,
        ops_per_element=2,
        api="made by the graph compiler",
    ),
    # Data movement.
    OpKind("concat", "ConcatD", "vector", _copies, api="torch.cat"),
    OpKind("slice", "Slice", "vector", _copies, "inner", api="a strided view, copied by the call that reads it"),
    OpKind("split", "SplitVD", "vector", _copies, api="torch.split"),
    OpKind("expand", "BroadcastTo", "vector", _flat, ops_per_element=0, api="Tensor.expand().contiguous()"),
    OpKind("embedding", "GatherV2", "vector", _gather, api="torch.nn.functional.embedding"),
    OpKind("index_select", "Index", "vector", _gather, api="Tensor.__getitem__"),
    OpKind("block_gather", "GatherV2", "vector", _gather, api="Tensor.__getitem__ by block table"),
    OpKind("prefetch", "CMO", "copy", _prefetch, "npu", api="torch_npu.npu_prefetch (aclrtCmoAsync)"),
    # Sampling.
    OpKind("argmax", "ArgMaxV2", "vector", _rows, ops_per_element=2, api="torch.argmax"),
    OpKind("sort", "Sort", "vector", _rows, ops_per_element=2, api="torch.sort"),
    OpKind(
        "top_k_top_p", "ApplyTopKTopPCustom", "vector", _rows, "npu", ops_per_element=4, api="torch_npu.npu_top_k_top_p"
    ),
    # Collectives: what tensor-parallel ranks exchange.
    OpKind("all_reduce", "hcom_allReduce_", "link", _collective, "npu", api="torch.distributed.all_reduce"),
    OpKind("all_gather", "hcom_allGather_", "link", _collective, "npu", api="torch.distributed.all_gather_into_tensor"),
    OpKind(
        "reduce_scatter",
        "hcom_reduceScatter_",
        "link",
        _collective,
        "npu",
        api="torch.distributed.reduce_scatter_tensor",
    ),
    # The host's input preparation, and the graph's parameter update.
    OpKind("prepare", "Prepare", "vector", _fixed, api="input preparation of the model runner"),
    OpKind("prepare_mask", "PrepareMask", "vector", _flat, api="attention mask of the model runner"),
    OpKind("prepare_cpu", "PrepareCpu", "ai_cpu", _fixed, api="input preparation on the AI CPU"),
    OpKind("graph_parameters", "Data", "vector", _fixed, api="parameter update at the start of a ge_graph replay"),
)
