"""Row-parallel products and the collectives behind them, side by side: in one kernel, or in pieces on two streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scenarios.batches import reported_batch
from scenarios.ops.catalogue import CATALOGUE, kind_of
from scenarios.ops.pieces import row_pieces
from scenarios.ops.program import Attr, Op, Program, Tensor
from scenarios.passes.base import Context, Pass, in_layers, replace_runs

#: The stream of the collectives that run alongside their products (1 is that of the prefetches).
STREAM = 2
#: Rows of a piece are a multiple of this where there are enough of them: the cube works on blocks of 16 rows.
UNIT_ROWS = 16
#: Groups that npu_mm_all_reduce_base takes.
FUSED_RANKS = (2, 4, 8, 16, 32, 64)


def fuse_all_reduce(program: Program, _: Context) -> Program:
    """Each product that an all-reduce follows becomes one kernel with it."""

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        for kind in (kind for kind in CATALOGUE.values() if kind.dense):
            ops = replace_runs(ops, (kind.name, "all_reduce"), _fuse)
        return ops

    return in_layers(program, "fusion.matmul_all_reduce", rewrite)


def _fuse(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
    product, reduction = run
    if reduction.inputs[0].name != product.out.name:
        return None
    attrs = (*product.attrs, *reduction.attrs)
    return (replace(product, kind="matmul_all_reduce", outputs=reduction.outputs, attrs=attrs, op_type=""),)


def _cannot_fuse(context: Context) -> str | None:
    engine, weights = context.scenario.engine, context.scenario.optimizations.weights
    ranks = engine.tensor_parallel_size
    if ranks == 1:
        return "needs engine.tensor_parallel_size above 1"
    if ranks not in FUSED_RANKS:
        return f"npu_mm_all_reduce_base takes groups of {', '.join(map(str, FUSED_RANKS))} ranks, not {ranks}"
    if engine.sequence_parallel:
        return "needs engine.sequence_parallel false, which has a reduce-scatter where the kernel has an all-reduce"
    if weights == "w4a8":
        return "npu_mm_all_reduce_base multiplies no INT4 weights with INT8 activations"
    return None


def cut_collectives(program: Program, context: Context) -> Program:
    """Each product with its all-reduce or reduce-scatter in pieces by rows: a piece's collective runs on a second
    stream alongside the product of the next piece, and what reads the sum waits for the last of them.

    A reduce-scatter of each piece leaves a rank with a share of each piece, so the embedding's scatters and the gathers
    before the projections go piece by piece too, on the main stream. Steps of fewer tokens than pieces stay whole.
    """
    pieces = context.scenario.optimizations.overlap.comm_chunks
    ranks = context.model.tensor_parallel

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(_overlapped(ops, pieces, ranks))

    def scattered(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(part for op in ops for part in _own_share(op, pieces, ranks))

    program = in_layers(program, "overlap.comm_chunks", rewrite)
    if not any(kind_of(op).exchanges == "shares of sums" for op in program.block("embed").ops):
        return program
    blocks = tuple(replace(b, ops=scattered(b.ops)) if b.name != "sample" else b for b in program.blocks)
    return program.with_blocks(blocks)


def _overlapped(ops: tuple[Op, ...], pieces: int, ranks: int) -> Iterator[Op]:
    """The ops with each pair of product and reduction cut, and the op behind a pair waiting for it."""
    waits: tuple[str, ...] = ()
    skip = False
    for op, after in zip(ops, (*ops[1:], None), strict=True):
        if skip:
            skip = False
            continue
        sizes = _sizes(op, after, pieces, ranks)
        op = replace(op, waits=(*op.waits, *waits)) if waits else op
        waits = ()
        if after is None or len(sizes) < 2:
            yield op
            continue
        yield from cut_pair(op, after, sizes)
        waits, skip = (f"reduced {op.name}",), True


def _sizes(product: Op, reduction: Op | None, pieces: int, ranks: int) -> tuple[int, ...]:
    """Rows of each piece; none where the two are no product and its reduction."""
    if reduction is None or not (kind_of(product).dense and kind_of(reduction).reduces):
        return ()
    return rows_of_pieces(product.out.shape[0], pieces, ranks if kind_of(reduction).cuts_rows else 1)


def rows_of_pieces(rows: int, pieces: int, divisor: int) -> tuple[int, ...]:
    """Pieces whose rows divide by `divisor`; none where there are fewer rows than pieces."""
    for unit in (UNIT_ROWS * divisor, divisor):
        if rows >= pieces * unit:
            return row_pieces(rows, pieces, unit)
    return ()


def cut_pair(product: Op, reduction: Op, sizes: tuple[int, ...]) -> Iterator[Op]:
    """Product, collective, product, ...: the collectives on their stream, each after its product."""
    weight = product.inputs[1]
    last = len(sizes) - 1
    for i in range(len(sizes)):
        done = f"made {product.name} {i}"
        piece = _piece(product, i, sizes, done)
        if i:  # the weights are in L2 where they fit it next to the piece that went before
            together = weight.bytes + piece.inputs[0].bytes + piece.out.bytes
            piece = replace(piece, waits=(), attrs=(*_without_prefetch(piece), *_prefetched(weight.bytes, together)))
        yield piece
        moved = _piece(reduction, i, sizes, f"reduced {product.name}" if i == last else "")
        yield replace(moved, stream=STREAM, waits=(done,))


def _prefetched(size: int, together: int) -> tuple[tuple[str, int], ...]:
    return (("prefetched_bytes", size), ("prefetched_together_bytes", together))


def _without_prefetch(op: Op) -> tuple[tuple[str, Attr], ...]:
    return tuple((key, value) for key, value in op.attrs if not key.startswith("prefetched"))


def _piece(op: Op, number: int, sizes: tuple[int, ...], record: str = "") -> Op:
    """Piece `number` of an op whose activations are cut by rows; of a scattered tensor, the share of that piece."""
    rows, whole = sizes[number], sum(sizes)
    records = op.records if number == len(sizes) - 1 else ()

    def part(tensor: Tensor) -> Tensor:
        if tensor.role != "activation":
            return tensor
        return replace(tensor, shape=(tensor.shape[0] * rows // whole, *tensor.shape[1:]))

    return replace(
        op,
        name=f"{op.name}.{number}",
        stem=op.name,
        piece=number,
        inputs=tuple(map(part, op.inputs)),
        outputs=tuple(map(part, op.outputs)),
        records=(*records, record) if record else records,
    )


def _own_share(op: Op, pieces: int, ranks: int) -> tuple[Op, ...]:
    """A gather or scatter of tokens outside the pairs, piece by piece as the ranks hold them."""
    gathers = kind_of(op).exchanges == "shares" and op.name != "logits_all_gather"
    if not gathers and op.name != "embed_tokens.reduce_scatter":
        return (op,)
    sizes = rows_of_pieces(max(op.inputs[0].shape[0], op.out.shape[0]), pieces, ranks)
    return tuple(_piece(op, i, sizes) for i in range(len(sizes))) or (op,)


def _cannot_cut(context: Context) -> str | None:
    scenario = context.scenario
    pieces = scenario.optimizations.overlap.comm_chunks
    if scenario.engine.tensor_parallel_size == 1:
        return "needs engine.tensor_parallel_size above 1"
    if scenario.optimizations.fusion.matmul_all_reduce:
        return "finds nothing to cut: fusion.matmul_all_reduce has the collectives inside its kernels"
    tokens = reported_batch(scenario).tokens
    if tokens < pieces:
        return f"the reported step has {tokens} tokens, too few for {pieces} pieces"
    return None


MATMUL_ALL_REDUCE = Pass(
    switch="fusion.matmul_all_reduce",
    title="Matmul + all-reduce",
    rewrite=fuse_all_reduce,
    refuse=_cannot_fuse,
    rewrites="row-split matmul, all-reduce -> npu_mm_all_reduce_base, which reduces rows while multiplying more",
    saves="the time of the shorter of the two, as far as pieces overlap; vector cores",
    costs="all steps of the all-reduce for each piece, and a start on the AI CPU: a loss for few tokens",
    claim="overlap hides the shorter of two, and costs a start-up that small work does not pay back",
    name=("matmul + all-reduce", "矩阵乘 + 全归约"),
    label=("Matmul + all-reduce", "矩阵乘 + 全归约"),
    help=(
        "Row-split matmul and its all-reduce -> npu_mm_all_reduce_base.",
        "行切分矩阵乘及其全归约 → npu_mm_all_reduce_base。",
    ),
)
COMM_CHUNKS = Pass(
    switch="overlap.comm_chunks",
    title="Matmul and collective in pieces",
    off=(1,),
    on=4,
    rewrite=cut_collectives,
    refuse=_cannot_cut,
    rewrites="row-split matmul and its collective -> pieces by rows, the collectives on a second stream",
    saves="the time of the shorter of the two, as far as pieces overlap",
    costs="starts and host calls for each piece; vector cores and HBM shared with what runs beside",
    claim="overlap pays for large work and costs for small",
    name=("collectives in {value} pieces", "集合通信分 {value} 片"),
    label=("Pieces of a collective", "集合通信分片数"),
    help=("Pieces a matmul and its collective are cut into to overlap.", "矩阵乘与其集合通信切成几片以重叠。"),
)
