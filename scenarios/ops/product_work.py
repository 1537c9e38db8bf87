"""Work of matrix products: dense, of experts, with what lies between two of them, and with the all-reduce behind."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Literal, cast

from scenarios.ops.counting import split_reads, total_bytes, whole_number
from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import DTYPE_BITS, Op
from scenarios.ops.routing import Routing
from scenarios.ops.work import CollectiveShape, FfnShape, GroupedShape, MatmulCollectiveShape, MatmulShape, Work


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
    cold, warm = split_reads(op.inputs)
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
        write_bytes=total_bytes(op.outputs),
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
    reduced = CollectiveShape("all_reduce", whole, whole_number(op, "ranks"))
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
    cold, warm = split_reads(op.inputs)
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


def grouped_matmul(op: Op, kind: OpKind) -> Work:
    """[rows, k] x [held, n, k]: the rows of each expert meet its weight; weights of experts without a row stay.

    Loads are those of layer and rank as the op's attributes say (0 and 0: `placed` sets them).
    """
    x, w = op.inputs[0], op.inputs[1]
    n, k = w.shape[1], w.shape[2]
    routing = routing_of(op)
    busy = routing.busy(whole_number(op, "layer", 0), whole_number(op, "rank", 0))
    rows = sum(busy)
    cold = len(busy) * k * n * DTYPE_BITS[w.dtype] // 8
    cold += sum(t.bytes for t in op.inputs[2:] if t.role == "weight") * len(busy) // routing.held
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
        prefetched_bytes=min(cold, whole_number(op, "prefetched_bytes", 0)),
        prefetched_together_bytes=whole_number(op, "prefetched_together_bytes", 0),
    )


def routing_of(op: Op) -> Routing:
    """The routing that a grouped product follows (attributes tokens, experts, held, top_k, skew, seed, groups)."""
    tokens, experts, held, top_k, seed = (whole_number(op, a) for a in ("tokens", "experts", "held", "top_k", "seed"))
    skew = float(op.attr("skew", 0.0))  # type: ignore[arg-type]
    return Routing(tokens, experts, held, top_k, skew, seed=seed, groups=whole_number(op, "groups", 1))


def placed(op: Op, layer: int, rank: int) -> Op:
    """`op` in one layer of one rank: what a routed op does differs there."""
    return replace(op, attrs=(*op.attrs, ("layer", layer), ("rank", rank)))
