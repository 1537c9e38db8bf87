"""The one intermediate form: what one rank issues for one step.

`sim` asks the catalogue what each `Op` costs and plays the list in time; `device` walks the same list and calls
the backend's function for each kind. So span *i* predicted and span *i* measured are the same operation.

A decoder repeats its layer, so a `Program` is a tuple of `Block`s and a block says how often it repeats. Tensor names
are variables: an op reads the latest value written under a name, so the last op of a layer hands `hidden` to the
first op of the next. Passes rewrite a block once and every repetition follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from itertools import groupby
from math import prod
from operator import attrgetter
from typing import Literal

from scenarios.records import dataclass

DType = Literal["fp32", "bf16", "fp16", "int8", "int4", "int32", "int64", "bool"]
Role = Literal["activation", "weight", "kv_cache", "table"]
Format = Literal["nd", "nz"]
#: `groups` of an attention op is a tuple of (requests, new tokens each, tokens already cached each).
Attr = int | float | str | bool | tuple[tuple[int, int, int], ...]

#: Bits of one element; int4 packs two elements in a byte.
DTYPE_BITS: dict[DType, int] = {
    "fp32": 32, "bf16": 16, "fp16": 16, "int8": 8, "int4": 4, "int32": 32, "int64": 64, "bool": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named value: `shape` in elements, `role` says where it lives and whether it outlives the step.

    `weight` and `kv_cache` tensors of a repeated block are one per repetition (layer). `table` is a small constant
    shared by all layers (cos and sin, block tables, slot mappings).
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    role: Role = "activation"
    format: Format = "nd"

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes, rounded up to a whole byte."""
        return (prod(self.shape) * DTYPE_BITS[self.dtype] + 7) // 8


@dataclass(frozen=True, slots=True)
class Op:
    """One operation as torch_npu issues it: one host call, one kernel.

    kind: a key of the catalogue. name: unique within its block (`q_proj`, `input_norm.pow`). op_type: the name the
    profiler prints, where it differs from the catalogue's. stream: 0 is the main stream. waits / records: names of
    events; a wait refers to the latest record of that name in program order. parts: the ops that a graph compiler
    merged into this one. expert: of the rank's experts, whose own op this is. micro_batch: the part of the batch that
    it works on. piece: which rows of an op that is cut by rows. All three count from 0, and are -1 where it is of none.
    stem: the name before its batch or its rows were cut; `name` is made of it and says which part this is.
    """

    kind: str
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()
    op_type: str = ""
    stream: int = 0
    waits: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    parts: tuple[Op, ...] = ()
    expert: int = -1
    micro_batch: int = -1
    piece: int = -1
    stem: str = ""

    @property
    def whole(self) -> str:
        """What the op is called before its batch or its rows are cut."""
        return self.stem or self.name

    def attr(self, key: str, default: Attr | None = None) -> Attr:
        """The attribute `key`; KeyError where it is absent and no default is given."""
        for name, value in self.attrs:
            if name == key:
                return value
        if default is None:
            raise KeyError(f"{self.kind} {self.name} has no attribute {key}")
        return default

    @property
    def out(self) -> Tensor:
        return self.outputs[0]

    @property
    def signature(self) -> tuple[object, ...]:
        """All that a kernel's time depends on: two ops with one signature are one kernel to the cost model."""
        return (
            self.kind,
            tuple((t.shape, t.dtype, t.format, t.role) for t in self.inputs),
            tuple((t.shape, t.dtype) for t in self.outputs),
            self.attrs,
        )


#: Blocks whose repetitions are the decoder's layers: those with a plain MLP, and the others. Where kinds of layers take
#: turns there are several of a name, numbered: `layers.2`.
LAYER_BLOCKS = ("dense_layers", "layers")


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive ops that run `repeat` times; `captured` blocks are issued by replaying a graph, those in `pieces` by
    replaying one for each run of ops between two that touch the KV cache, which are issued alone. first: layers of its
    name before it."""

    name: str
    ops: tuple[Op, ...]
    repeat: int = 1
    captured: bool = False
    pieces: bool = False
    first: int = 0

    @property
    def family(self) -> str:
        """Its name without its number."""
        return self.name.partition(".")[0]

    def alone(self, op: Op) -> bool:
        """Whether `op` is issued by a call of its own, not by replaying a graph."""
        touches = any(tensor.role == "kv_cache" for tensor in (*op.inputs, *op.outputs))
        return not self.captured and (touches or not self.pieces)

    @property
    def is_layer(self) -> bool:
        """Whether a repetition is a layer of the decoder."""
        return self.family in LAYER_BLOCKS


@dataclass(frozen=True, slots=True)
class Group:
    """`count` requests that are alike: `query` new tokens each, on top of `context` tokens already in the KV cache."""

    count: int
    query: int
    context: int

    @property
    def kv_len(self) -> int:
        """Keys that the last query token sees."""
        return self.context + self.query


@dataclass(frozen=True, slots=True)
class Batch:
    """What is in one forward step. One token count for all matrix products; only attention looks into the groups."""

    phase: Literal["prefill", "decode", "mixed"]
    groups: tuple[Group, ...]

    @property
    def tokens(self) -> int:
        return sum(g.count * g.query for g in self.groups)

    @property
    def requests(self) -> int:
        return sum(g.count for g in self.groups)


@dataclass(frozen=True, slots=True)
class Issued:
    """One expanded op: its place in the step (`index`) and the repetition of its block (`layer`)."""

    index: int
    layer: int
    block: Block
    op: Op


@dataclass(frozen=True, slots=True)
class Program:
    """All ops of one step of one rank, in issue order.

    graph: how the host issues the captured blocks. applied: the passes that made this program, in order.
    """

    blocks: tuple[Block, ...]
    batch: Batch
    graph: str = "eager"
    applied: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Issued]:
        index = 0
        for block in self.blocks:
            for layer in range(block.repeat):
                for op in block.ops:
                    yield Issued(index, layer, block, op)
                    index += 1

    def __len__(self) -> int:
        return sum(len(block.ops) * block.repeat for block in self.blocks)

    def runs(self) -> Iterator[tuple[bool, list[Block]]]:
        """The blocks in runs of one kind: (True, those that one graph replay issues together), (False, others)."""
        return ((captured, list(blocks)) for captured, blocks in groupby(self.blocks, attrgetter("captured")))

    def block(self, name: str) -> Block:
        """The block called `name`; KeyError where there is none."""
        for block in self.blocks:
            if block.name == name:
                return block
        raise KeyError(f"no block {name!r}; there are {[b.name for b in self.blocks]}")

    def rewritten(
        self, rewrite: Callable[[Block], tuple[Op, ...]], applied: str = "", only: Callable[[Block], bool] | None = None
    ) -> Program:
        """This program with other ops in its blocks (`only` in some): made once for all blocks that share them."""
        shared: dict[int, tuple[Op, ...]] = {}
        blocks: list[Block] = []
        for block in self.blocks:
            if only is not None and not only(block):
                blocks.append(block)
                continue
            if id(block.ops) not in shared:
                shared[id(block.ops)] = rewrite(block)
            ops = shared[id(block.ops)]
            blocks.append(block if ops is block.ops else replace(block, ops=ops))
        return self.with_blocks(tuple(blocks), applied)

    def with_blocks(self, blocks: tuple[Block, ...], applied: str = "") -> Program:
        """This program with other blocks; `applied` names the pass that made them."""
        return replace(self, blocks=blocks, applied=(*self.applied, applied) if applied else self.applied)
