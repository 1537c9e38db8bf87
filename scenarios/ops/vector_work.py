"""Work of what the vector cores compute: element by element, row by row, token by token."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from scenarios.ops.counting import flat_shape, split_reads, total_bytes
from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import DTYPE_BITS, Op
from scenarios.ops.work import FixedShape, RowsShape, Work


def flat(op: Op, kind: OpKind) -> Work:
    """Elementwise: every operand is read once, every output written once."""
    cold, warm = split_reads(op.inputs)
    elements = max([t.elements for t in op.outputs] + [t.elements for t in op.inputs if t.role == "activation"])
    program = _stretching(op, elements) if kind.elementwise or op.parts else ""  # a compiler's kernel stretches too
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
        write_bytes=total_bytes(op.outputs),
        program=program or kind.name,
    )


def _stretching(op: Op, elements: int) -> str:
    """The program that stretches a smaller operand over the largest: a column element by element, a row by
    addressing."""
    small = [t for t in op.inputs if 1 < t.elements < elements]
    if not small:
        return ""
    return "broadcast" if any(t.shape[-1] == 1 for t in small) else "broadcast_row"


def rows(op: Op, kind: OpKind) -> Work:
    """Row-wise: the last dimension of the first input (of what is reduced, in a compiler's kernel) is one whole."""
    cold, warm = split_reads(op.inputs)
    x = op.parts[-1].inputs[0] if op.parts else op.inputs[0]
    shape = RowsShape(prod(x.shape[:-1]), x.shape[-1])
    return Work(
        kind.unit,
        shape,
        vector_ops=x.elements * int(op.attr("fused_ops", kind.ops_per_element)),  # type: ignore[arg-type]
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=total_bytes(op.outputs),
        program=kind.name,
    )


def norm_through_add(op: Op, work: Work) -> Work:
    """A norm run as AddRmsNorm: zeros of the input's size are read as the residual, and their sum is written too."""
    size = op.inputs[0].bytes
    return replace(
        work, program="add_rms_norm", warm_read_bytes=work.warm_read_bytes + size, write_bytes=work.write_bytes + size
    )


def swiglu(op: Op, kind: OpKind) -> Work:
    """[rows, 2 n] -> [rows, n]: silu of one half times the other."""
    _, warm = split_reads(op.inputs)
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
    cold, warm = split_reads(op.inputs)
    work = swiglu(op, kind)
    return replace(
        work, cold_read_bytes=cold, warm_read_bytes=warm, write_bytes=total_bytes(op.outputs), program="swiglu"
    )


def rope(op: Op, kind: OpKind) -> Work:
    """Query and key of one token are rotated together: a row is a token."""
    cold, warm = split_reads(op.inputs)
    rows = op.inputs[0].shape[0]
    elements = sum(t.elements for t in op.outputs)
    shape = RowsShape(rows, elements // rows)
    return Work(
        kind.unit,
        shape,
        vector_ops=elements * kind.ops_per_element,
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=total_bytes(op.outputs),
        program=kind.name,
    )


def qkv_norm_rope_cache(op: Op, kind: OpKind) -> Work:
    """Packed [tokens, q+k+v] -> normalised and rotated q, and k and v straight into the cache."""
    cold, warm = split_reads(tuple(t for t in op.inputs if t.role != "kv_cache"))
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


def fixed(op: Op, kind: OpKind) -> Work:
    """A tiny kernel whose time does not depend on its few bytes."""
    cold, warm = split_reads(op.inputs)
    return Work(
        kind.unit,
        FixedShape(op.op_type or kind.op_type),
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=total_bytes(op.outputs),
    )
