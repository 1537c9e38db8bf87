"""Measured kernels of the vector cores as `Work`: elementwise, copies, row by row, look-ups, sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from scenarios.ops.counting import computed_bytes
from scenarios.ops.work import FixedShape, FlatShape, RowsShape, Work
from sim.accuracy.rows.row import Row, Unpriced, rows_of

Maker = Callable[[Row], Work]

#: An index into more rows than a batch has is a look-up in a table of positions.
TABLE_ROWS = 4096
#: Columns of a head, and heads of a packed QKV on one of many ranks: queries, and a key and a value.
HEAD_DIM, MIN_PACKED_HEADS, MAX_PACKED_HEADS = 128, 4, 10
#: Rotary key of MLA of one token, and heads on one of eight ranks of DeepSeek-V3.
ROTARY_KEY, RANK_HEADS = (1, 64), 16


def _flat(elements: int, program: str, read: int, written: int, ops: int = 0, cold: int = 0, pieces: int = 0) -> Work:
    return Work(
        "vector",
        FlatShape(max(1, elements)),
        vector_ops=ops,
        cold_read_bytes=cold,
        warm_read_bytes=read,
        write_bytes=written,
        program=program,
        pieces=pieces,
    )


def _rows(rows: int, cols: int, program: str, read: int, written: int, ops: int = 0, cold: int = 0) -> Work:
    return Work(
        "vector",
        RowsShape(max(1, rows), max(1, cols)),
        vector_ops=ops,
        cold_read_bytes=cold,
        warm_read_bytes=read,
        write_bytes=written,
        program=program,
    )


def same(row: Row) -> int:
    """Output elements as large as input elements."""
    return row.size(0)


def byte(row: Row) -> int:
    """Output elements of one byte (booleans, INT8)."""
    return 1


def cast_size(row: Row) -> int:
    """Output element of a cast, bytes: 16 bit becomes 32 bit and the other way round; other types become 64 bit."""
    return {"bf16": 4, "fp16": 4, "fp32": 2}.get(row.dtype(0), 8)


def _broadcast(row: Row) -> str:
    """The program that stretches a smaller operand (not a scalar) over a larger one; "" where nothing is stretched.

    A row vector is stretched over rows by addressing; a column (or a middle dimension) is spread element by element.
    """
    full = max(prod(s) for s in row.shapes)
    small = [s for s in row.shapes if s and 1 < prod(s) < full]
    if not small:
        return ""
    return "broadcast" if any(s[-1] == 1 for s in small) else "broadcast_row"


def elementwise(program: str = "", out_size: Callable[[Row], int] = same, ops: int = 1) -> Maker:
    """Independent elements. ops: vector instructions on an FP32 register."""

    def make(row: Row) -> Work:
        elements = row.written(max(1, *(prod(s) for s in row.shapes)))
        reads = sum(row.bytes(i) for i in range(len(row.shapes)))
        stretched = _broadcast(row)
        name = program or stretched or "elementwise"
        if program == "compare" and stretched:
            name = "broadcast"
        elif row.dtype(0) == "int64" and row.op_type != "Cast" and (() in row.shapes or program == "compare"):
            name = "integer"  # a scalar operand is read on its own, and no lane compares 64 bit
        per_element = ops + 2 if row.size(0) == 2 else ops  # 16 bit is computed in FP32: a cast in and a cast out
        return _flat(elements, name, reads, elements * out_size(row), elements * per_element)

    return make


def masked_fill(row: Row) -> Work:
    """MaskedFill and Select: a mask of the full size, or one that is stretched."""
    return elementwise("masked_broadcast" if _broadcast(row) else "masked_fill", ops=4)(row)


def expand(row: Row) -> Work:
    """Tile and BroadcastTo. Where the output is not printed, a rotary key of MLA is handed to each head, and other
    outputs are taken as twice the input."""
    copies = RANK_HEADS if row.op_type == "BroadcastTo" and row.shape(0)[1:] == ROTARY_KEY else 2
    written = row.written(copies * row.elements(0))
    return _flat(written, "expand", row.bytes(0), written * row.size(0))


def range_(row: Row) -> Work:
    """Range: starts on all cores, whatever it counts."""
    return replace(fill(row), program="range")


def copy(row: Row) -> Work:
    """TensorMove: read and written once."""
    return _flat(row.elements(0), "copy", row.bytes(0), row.bytes(0))


def fill(row: Row) -> Work:
    """A constant into a tensor; a small one where its size is not printed."""
    written = row.written(1)
    return _flat(written, "fill", 8, 8 if written == 1 else written * row.size(0), written)


def slice_(row: Row) -> Work:
    """Each row is a run of memory of its own, read once and written once. Where the output is not printed: of a packed
    QKV keys and values of one head (two slices a layer; queries are viewed), half of the last dimension otherwise."""
    first = row.shape(0)
    runs, cols = rows_of(first)
    packed = len(first) == 2 and cols % HEAD_DIM == 0 and MIN_PACKED_HEADS <= cols // HEAD_DIM <= MAX_PACKED_HEADS
    kept = row.written(runs * HEAD_DIM if packed else row.elements(0) // 2)
    moved = kept * row.size(0)
    return _flat(kept, "slice", moved, moved, pieces=2 * runs)


def split(row: Row) -> Work:
    """Split and Unpack: all of the input is kept, in several outputs; each row of each is a run of memory."""
    parts = max(1, len([shape for shape in row.outputs if shape]))
    runs = parts * rows_of(row.shape(0))[0]
    return _flat(row.elements(0), "split", row.bytes(0), row.bytes(0), pieces=2 * runs)


def concat(row: Row) -> Work:
    """ConcatD: all inputs side by side; each row of each is a run of memory of its own."""
    parts = [i for i, shape in enumerate(row.shapes) if len(shape) > 1]
    moved = sum(row.bytes(i) for i in parts)
    runs = sum(rows_of(row.shape(i))[0] for i in parts)
    return _flat(sum(row.elements(i) for i in parts), "concat", moved, moved, pieces=2 * runs)


def as_strided(row: Row) -> Work:
    """A strided view made contiguous; the strides are not printed, so its runs are not counted."""
    return _flat(row.elements(0) // 2, "as_strided", row.bytes(0) // 2, row.bytes(0) // 2)


def transpose(row: Row) -> Work:
    """Leading dimensions exchanged: runs of the last dimension (of the last two in a fractal layout)."""
    shape = row.shape(0)
    runs = prod(shape[:-1] if len(shape) < 4 else shape[:-2])
    return _flat(row.elements(0), "transpose", row.bytes(0), row.bytes(0), pieces=2 * runs)


def trans_data(row: Row) -> Work:
    """From or to a fractal layout: nearly all cores, unlike a transpose. Channels are padded to whole blocks of 16, so
    the larger side counts (three channels become sixteen)."""
    item = transpose(row)
    written = row.written(row.elements(0))
    elements = max(row.elements(0), written)
    return replace(item, shape=FlatShape(elements), write_bytes=written * row.size(0), program="trans_data")


def swiglu(row: Row) -> Work:
    """[rows, 2 n] -> [rows, n]."""
    elements = row.elements(0)
    return _flat(elements, "swiglu", row.bytes(0), row.bytes(0) // 2, 5 * elements // 2)


def static_quant(row: Row) -> Work:
    """AscendQuant: one scale and offset for each column; INT8 out."""
    elements = row.elements(0)
    cold = sum(row.bytes(i) for i in range(1, len(row.shapes)))
    return _flat(elements, "static_quant", row.bytes(0), elements, 3 * elements, cold)


def norm(program: str, ops: int, out_size: Callable[[Row], int] = same, residual: bool = False) -> Maker:
    """Rows normalised or quantised. residual: a second input of the same size is added, and the sum is written too."""

    def make(row: Row) -> Work:
        rows, cols = rows_of(row.shape(0))
        first = 2 if residual else 1
        read = sum(row.bytes(i) for i in range(first))
        cold = sum(row.bytes(i) for i in range(first, len(row.shapes)))
        written = rows * cols * out_size(row) + (row.bytes(0) if residual else 0)
        return _rows(rows, cols, program=program, read=read, written=written, ops=ops * rows * cols, cold=cold)

    return make


def token_rows(program: str, ops: int, inputs: int = 1) -> Maker:
    """One row per token of the first `inputs` tensors that belong to the same tokens, rewritten at the same size."""

    def make(row: Row) -> Work:
        tokens = row.shape(0)[0]
        elements = sum(prod(s) for s in row.shapes[:inputs] if s[:1] == (tokens,))
        moved = elements * row.size(0)
        return _rows(tokens, elements // max(1, tokens), program, moved, moved, ops * elements)

    return make


def apply_rope(row: Row) -> Work:
    """ApplyRotaryPosEmb: query and key [b, s, n, d], or [b, n, s, d] with one token; then cos and sin."""
    elements = sum(prod(s) for s in row.shapes[:2])
    first = row.shape(0)
    tokens = prod(first[:2]) if len(first) == 4 and first[1] > 1 else first[0]
    moved = elements * row.size(0)
    return _rows(tokens, elements // max(1, tokens), "rope", moved, moved, 4 * elements)


def scatter(row: Row, program: str = "kv_cache_write") -> Work:
    """ScatterNdUpdate: variable, indices, updates; only the updates are moved."""
    updates = next((s for s in reversed(row.shapes) if s), (1, 1))
    rows, cols = rows_of(updates)
    moved = rows * cols * row.size(0)
    return _rows(rows, cols, program, moved, moved)


def cache_read(row: Row) -> Work:
    """PagedCacheLoad: blocks of a paged cache copied to [tokens, 1, dim] outputs, which stand among the inputs."""
    outs = [s for s in row.shapes[2:] if len(s) == 3]
    if not outs:
        raise Unpriced("no output shapes")
    tokens = outs[0][0]
    elements = sum(prod(s) for s in outs)
    moved = elements * row.size(0)
    return _flat(elements, "kv_cache_read", 0, moved, cold=moved, pieces=2 * len(outs) * max(1, tokens // 128))


def gather(row: Row) -> Work:
    """Rows of a table [rows, cols] at indices (the second input)."""
    return _picked(row, "gather", prod(row.shape(1) or (1,)), cold=True)


def index(row: Row) -> Work:
    """Index: rows of the first input at the last one's indices; activations unless the first is a table."""
    last = row.shapes[-1]
    return _picked(row, "index", last[0] if last else 1, cold=row.shape(0)[0] >= TABLE_ROWS)


def _picked(row: Row, program: str, count: int, cold: bool) -> Work:
    cols = prod(row.shape(0)[1:])
    moved = count * cols * row.size(0)
    return _rows(count, cols, program, 8 * count + (0 if cold else moved), moved, cold=moved if cold else 0)


def sampler(program: str, ops: int, out_size: int = 0) -> Maker:
    """Rows of logits. out_size: bytes of an output element for each input element; 0: eight bytes a row."""

    def make(row: Row) -> Work:
        rows, cols = rows_of(row.shape(0))
        written = rows * cols * out_size if out_size else 8 * rows
        return _rows(rows, cols, program, row.bytes(0), written, ops * rows * cols)

    return make


def fixed(row: Row) -> Work:
    """AI CPU kernels, and the parameter update at the start of a static graph: their shapes do not matter."""
    return Work(
        "vector" if row.op_type == "Data" else "ai_cpu", FixedShape(row.op_type), warm_read_bytes=8, write_bytes=8
    )


def exchange(row: Row) -> Work:
    """Tokens to experts on other ranks and back: mostly waiting, so no shape tells the time."""
    return Work("mix", FixedShape(row.op_type), warm_read_bytes=row.bytes(0), write_bytes=row.bytes(0))


#: Kernels of 16 bit that compute in FP32 whatever the type.
_IN_FP32 = ("AutomaticBufferFusionOp", "SwishMul", "Muls")


def laid_out(work: Work, row: Row) -> Work:
    """`work` with what a tiling asks for besides elements: the length of its rows and the widest type computed with."""
    shape = work.shape
    if not isinstance(shape, FlatShape):
        return work
    most = max((prod(s) for s in row.shapes if s), default=0)
    full = [i for i, s in enumerate(row.shapes) if s and prod(s) == most] or [0]
    widest = max(computed_bytes(row.dtype(i)) for i in full)
    if row.op_type == "Cast":
        widest = max(widest, cast_size(row))
    if row.op_type in _IN_FP32:
        widest = max(widest, 4)
    return replace(work, shape=replace(shape, cols=_columns(work, row, shape.elements), widest_bytes=widest))


def _columns(work: Work, row: Row, elements: int) -> int:
    """Length of the rows: those of the output where it is printed, of the largest input otherwise."""
    first = row.shape(0)
    if work.program in ("slice", "concat"):
        return max(1, elements // rows_of(first)[0]) if first else 0
    if work.program == "kv_cache_read":
        tokens = next(s for s in row.shapes[2:] if len(s) == 3)[0]
        return max(1, elements // max(1, tokens))
    if work.program == "trans_data":
        return _converted_unit(row, elements)
    largest = max((*row.shapes, *row.outputs[:1]), key=prod, default=())
    return largest[-1] if largest else 0


def _converted_unit(row: Row, elements: int) -> int:
    """Elements of what TransData deals out whole between NCHW and NC1HWC0: an image, or a block of 16 channels of a
    single one; 0 for other formats, whose elements are cut anywhere."""
    blocked = next((shape for shape in (row.shape(0), *row.outputs) if len(shape) == 5), ())
    if not blocked or not row.outputs:
        return 0
    images, blocks = blocked[:2]
    return max(1, elements // (images if images > 1 else blocks))
