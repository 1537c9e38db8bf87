"""Ops that work on some of a value's rows: pieces of a product and its collective, and micro-batches.

A Program cuts both by rows (scenarios/passes/collectives.py, micro_batches.py): piece 1 of `o_proj` reads its rows of
`attended` and writes its rows of `attention_out`; part 1 of a batch has values of its own, but for a few that all parts
share, each its rows. Here each such op gets its window on the whole values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from device.operators.experts import follows_router
from device.operators.kernel import Inputs, Kernel, Outputs, fitted
from device.operators.one_by_one import place_of
from device.step.step import Step
from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Batch, Block, Op, Program, Tensor
from scenarios.passes.micro_batches import SHARED, split

#: Tables of which a part has its rows: a slot a token, a row of block tables a request.
_TABLES = ("slots", "block_table")

#: {value: (first row, rows of the whole)}
Rows = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Window:
    """What an op sees and makes of larger values. part: its micro-batch, -1 for the whole batch. maker: what all pieces
    of an op are called."""

    part: int
    maker: str
    reads: Rows
    writes: Rows


def windows(block: Block) -> dict[str, Window]:
    """The windows of the ops of `block` by name; an op without one is not in it."""
    sizes: dict[tuple[str, str], dict[int, int]] = {}  # (what is cut, value) -> rows by number of the piece or part
    cut = [(op, side, *rows) for op in block.ops for side in ("reads", "writes") for rows in _cuts(op, side)]
    for _, side, tensor, what, number in cut:
        sizes.setdefault((f"{side} {what}", tensor.name), {})[number] = tensor.shape[0]
    places_of: dict[str, dict[str, Rows]] = {}
    for op, side, tensor, what, number in cut:
        rows = sizes[f"{side} {what}", tensor.name]
        first = sum(size for other, size in rows.items() if other < number)
        places_of.setdefault(op.name, {"reads": {}, "writes": {}})[side][tensor.name] = (first, sum(rows.values()))
    windows = {}
    for op in block.ops:
        if op.name in places_of or op.micro_batch >= 0:
            maker = op.whole if op.piece >= 0 else ""
            windows[op.name] = Window(op.micro_batch, maker, **places_of.get(op.name, {"reads": {}, "writes": {}}))
    return windows


def _cuts(op: Op, side: str) -> Iterator[tuple[Tensor, str, int]]:
    """(a value of which `op` has some rows, what is cut there, the number of these rows) for each."""
    piece, part = op.piece, op.micro_batch
    for tensor in op.inputs if side == "reads" else op.outputs:
        if piece >= 0 and tensor.role == "activation":
            yield tensor, op.whole, piece
        elif part >= 0 and (tensor.name in SHARED if tensor.role == "activation" else tensor.name in _TABLES):
            yield tensor, "batch", part


def windowed(kernel: Kernel, op: Op, window: Window) -> Kernel:
    """`kernel` on the rows of `window`; what it makes goes to its rows of the whole value."""
    shapes = [
        t.shape if t.role in ("activation", "table") and not kernel.raw and not follows_router(t) else None
        for t in op.inputs
    ]

    def own(tensor: Tensor, x: torch.Tensor, step: Step) -> torch.Tensor:
        if tensor.name not in window.reads:
            return x
        first, total = window.reads[tensor.name]
        if window.writes.get(tensor.name, (0, total))[1] != total:  # a scatter or gather: its result takes the name
            name = f"{window.maker} reads {tensor.name}"
            x = step.values[name] = step.values[name] if first else x
        if tensor.name == "block_table" and len(step.layout.requests) == 1:  # a prompt cut in two is one request
            first = 0
        return x.narrow(0, first, tensor.shape[0])

    def compute(op: Op, inputs: Inputs, step: Step) -> Outputs:
        given = [own(tensor, x, step) for tensor, x in zip(op.inputs, inputs, strict=True)]
        given = [x if shape is None else fitted(x, shape) for x, shape in zip(given, shapes, strict=True)]
        at = step.parts[window.part] if window.part >= 0 else step
        if kernel.into is not None and op.out.name in window.writes and len(op.outputs) == 1:
            whole = _whole(op.out, given[0], window, step)
            kernel.into(op, given, at, _rows(op.out, whole, window))
            return (whole,)
        outputs = kernel.compute(op, given, at)
        return tuple(_put(tensor, y, window, step) for tensor, y in zip(op.outputs, outputs, strict=False))

    return replace(kernel, compute=compute, raw=True)


def _put(tensor: Tensor, y: torch.Tensor, window: Window, step: Step) -> torch.Tensor:
    """The whole value with `y` in its rows."""
    if tensor.name not in window.writes:
        return y
    known, total = step.values.get(tensor.name), window.writes[tensor.name][1]
    whole_is_there = known is not None and known.shape[0] == total
    if whole_is_there and _rows(tensor, known, window).data_ptr() == y.data_ptr():
        return known  # a sum over the ranks, made in place
    whole = _whole(tensor, y, window, step)
    rows = _rows(tensor, whole, window)
    rows.copy_(fitted(y, tuple(rows.shape)))
    return whole


def _rows(tensor: Tensor, whole: torch.Tensor, window: Window) -> torch.Tensor:
    return whole.narrow(0, window.writes[tensor.name][0], tensor.shape[0])


def _whole(tensor: Tensor, like: torch.Tensor, window: Window, step: Step) -> torch.Tensor:
    """The memory of the whole value: that of the batch, or of all pieces of the op, which the first one takes."""
    first, total = window.writes[tensor.name]
    if not window.maker:
        return step.values[tensor.name]
    name = f"{window.maker} makes {tensor.name}"
    if not first:
        step.values[name] = like.new_empty((total, *tensor.shape[1:]), dtype=step.dtypes[tensor.dtype])
    return step.values[name]


def batches(program: Program) -> list[Batch]:
    """The micro-batches of `program` in order; none where it is not cut."""
    parts = max((op.micro_batch for block in program.blocks for op in block.ops), default=-1) + 1
    return split(program.batch, parts) if parts else []


def problems(program: Program, model: Model) -> list[str]:
    """What of pieces and of a cut batch no device runs here, one line each. model: what this rank holds of it."""
    ops = [op for block in program.blocks for op in block.ops]
    problems = []
    if model.expert_parallel and any(kind_of(op).cuts_rows and op.piece >= 0 for op in ops):
        what = "scattered tokens of spread experts (engine.sequence_parallel) are predicted in pieces"
        problems.append(f"optimizations.overlap.comm_chunks: {what}, but not yet measured; set it to 1")
    if not batches(program):
        return problems
    problems += [
        f"optimizations.overlap.micro_batches: {line} predicted in parts, but not yet measured; set it to 1"
        for line in _not_in_parts(
            program, model, [op for block in program.blocks if block.is_layer for op in block.ops]
        )
    ]
    return problems


def _not_in_parts(program: Program, model: Model, ops: Sequence[Op]) -> Iterator[str]:
    """ops: of the layers."""
    attention = [op for op in ops if kind_of(op).family == "attention"]
    if any(one.state for one in (model, *model.kinds)):
        yield "layers with a state are"
    if model.expert_parallel:
        yield "experts spread over ranks (engine.enable_expert_parallel) are"
    elif any(kind_of(op).cuts_rows for op in ops):
        yield "scattered tokens (engine.sequence_parallel) are"
    if any(place_of(op) for op in ops):
        yield "experts one by one (fusion.grouped_matmul: false) are"
    if not attention or not all(op.attr("groups", ()) for op in attention):
        yield "attention in pieces, and latent attention, are"
    by_part = {op.micro_batch: op.out.shape[0] for op in attention}
    if sum(by_part.values()) != program.batch.tokens:
        yield "a batch padded to a captured size is"
