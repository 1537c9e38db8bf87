"""Ops that are cut by rows (a product and its collective in pieces): which rows each piece reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from scenarios.program import Block, Op, Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one piece. reads, writes: the first row of each input and output. whole: rows of each output over all
    pieces."""

    number: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    whole: tuple[int, ...]

    def of(self, x: torch.Tensor, operand: int, rows: int) -> torch.Tensor:
        """This piece of the value `x`, operand number `operand`."""
        return x.narrow(0, self.reads[operand], rows)

    def put(
        self, outputs: Sequence[torch.Tensor], names: Sequence[str | None], values: dict[str, torch.Tensor]
    ) -> None:
        """The outputs into the rows of their whole values, which the first piece makes."""
        for place, (name, piece) in enumerate(zip(names, outputs, strict=False)):
            if name is None:
                continue
            if not self.number:
                values[name] = self._whole_of(piece, place, values)
            rows = values[name].narrow(0, self.writes[place], piece.shape[0])
            if rows.data_ptr() != piece.data_ptr():  # a sum in place lies there already
                rows.copy_(piece)

    def _whole_of(self, piece: torch.Tensor, place: int, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Memory for all pieces: what a collective has summed up in place, or new."""
        shape = (self.whole[place], *piece.shape[1:])
        storage = piece.untyped_storage().data_ptr()
        held = (x for x in values.values() if x.shape == shape and x.untyped_storage().data_ptr() == storage)
        found = next(held, None) if storage else None
        return piece.new_empty(shape) if found is None else found


def rows_of_pieces(block: Block) -> dict[int, Rows]:
    """The rows of all ops of `block` that are pieces, by their place in it."""
    found: dict[int, Rows] = {}
    pieces = [(place, op) for place, op in enumerate(block.ops) if op.attr("piece", -1) != -1]
    families: dict[str, list[tuple[int, Op]]] = {}
    for place, op in pieces:
        families.setdefault(op.name.rpartition(".")[0], []).append((place, op))
    for family in families.values():
        whole = tuple(sum(_rows(op.outputs[i]) for _, op in family) for i in range(len(family[0][1].outputs)))
        reads, writes = [0] * len(family[0][1].inputs), [0] * len(whole)
        for number, (place, op) in enumerate(family):
            found[place] = Rows(number, tuple(reads), tuple(writes), whole)
            reads = [start + _rows(t) for start, t in zip(reads, op.inputs, strict=True)]
            writes = [start + _rows(t) for start, t in zip(writes, op.outputs, strict=True)]
    return found


def _rows(tensor: Tensor) -> int:
    return tensor.shape[0] if tensor.shape else 1
