"""Work of what moves data and computes nothing: copies, look-ups, into caches and out of them, weights into L2."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from scenarios.ops.counting import flat_shape, split_reads, total_bytes, whole_number
from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import DTYPE_BITS, Op, Tensor
from scenarios.ops.work import FlatShape, RowsShape, Work


def copies(op: Op, kind: OpKind) -> Work:
    """Copies that cut or join the last dimension: each row of each part is a run of memory of its own, read and
    written."""
    parts = op.inputs if len(op.inputs) > len(op.outputs) else op.outputs
    whole = op.inputs[0] if len(op.outputs) > len(op.inputs) else op.out  # a split deals out rows of what it reads
    return _in_runs(op, kind, whole, runs=sum(prod(t.shape[:-1]) for t in parts))


def transpose(op: Op, kind: OpKind) -> Work:
    """Axes swapped: each run of the last dimension is moved by itself, read in one place and written in another."""
    return _in_runs(op, kind, op.out, runs=op.out.elements // op.out.shape[-1])


def _in_runs(op: Op, kind: OpKind, whole: Tensor, runs: int) -> Work:
    """All inputs read and all outputs written, in `runs` of memory each way; `whole` says how long a row is."""
    cold, warm = split_reads(op.inputs)
    return Work(
        kind.unit,
        flat_shape(sum(t.elements for t in op.outputs), whole.shape[-1], op.outputs),
        cold_read_bytes=cold,
        warm_read_bytes=warm,
        write_bytes=total_bytes(op.outputs),
        program=kind.name,
        pieces=2 * runs,
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


def scattered(_: Op, work: Work) -> Work:
    """A write into a static cache: a kernel with little code and no slots to read, Scatter."""
    return replace(work, program="scatter", cold_read_bytes=0)


def cache_read(op: Op, kind: OpKind) -> Work:
    """Blocks of a paged cache copied to rows that follow each other; each block is a run of memory."""
    tables = sum(t.bytes for t in op.inputs if t.role == "table")
    written = total_bytes(op.outputs)
    elements = sum(t.elements for t in op.outputs)
    block = whole_number(op, "block_size", 0)  # 0: a contiguous cache
    runs = sum(max(1, t.shape[0] // block) if block else 1 for t in op.outputs)
    shape = flat_shape(elements, sum(t.elements // t.shape[0] for t in op.outputs), op.outputs)
    return Work(
        kind.unit, shape, cold_read_bytes=written + tables, write_bytes=written, program=kind.name, pieces=2 * runs
    )


def prefetch(op: Op, kind: OpKind) -> Work:
    """Weights from HBM into L2, by a DMA engine: all of them, or the first `bytes`."""
    weight = op.inputs[0]
    size = whole_number(op, "bytes", weight.bytes)
    return Work(kind.unit, FlatShape(weight.elements * size // weight.bytes), cold_read_bytes=size, program=kind.name)
