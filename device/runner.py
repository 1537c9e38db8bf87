"""Program -> real execution: every op in order, once, as the Program lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from device.backends.base import DTYPES, Backend
from device.kv_cache import KvTensors
from device.operators.kernel import Form, Inputs, Kernel, Outputs, fitted
from device.row_pieces import Rows, rows_of_pieces
from device.step import Step
from device.weights import Weights
from scenarios.program import DType, Issued, Op, Program, Tensor

#: How an op is computed: the backend's own way, or the reference's.
Choice = Callable[[Op], Kernel]


@dataclass(frozen=True, slots=True)
class Call:
    """One op ready to run.

    operands: a tensor that stands for the whole run, or the name of a value of the step, with the shape to read it by
    (None: as it is). results: names that its outputs go to, None for caches. parts: the calls of an op that a graph
    compiler made of several. is_alone: never captured together with others. rows: of an op that is a piece of one.
    """

    issued: Issued
    kernel: Kernel
    operands: tuple[tuple[torch.Tensor | str, tuple[int, ...] | None], ...]
    results: tuple[str | None, ...]
    parts: tuple[Call, ...] = ()
    is_alone: bool = False
    rows: Rows | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        """Itself: what a captured piece has several of."""
        return (self,)

    @property
    def form(self) -> Form:
        return self.kernel.form

    def alone(self) -> Call:
        """This call, not to be captured."""
        return replace(self, is_alone=True)

    def inputs(self, step: Step) -> list[torch.Tensor]:
        """The operands as the op reads them now."""
        values, found = step.values, []
        for place, (operand, shape) in enumerate(self.operands):
            x = values[operand] if isinstance(operand, str) else operand
            if self.rows is not None and isinstance(operand, str) and shape is not None:
                x = self.rows.of(x, place, shape[0])
            found.append(x if shape is None else fitted(x, shape))
        return found

    def compute(self, inputs: list[torch.Tensor], step: Step) -> Outputs:
        return self.kernel.compute(self.issued.op, inputs, step)

    def put(self, outputs: Sequence[torch.Tensor], values: dict[str, torch.Tensor]) -> None:
        """Keep the outputs under their names."""
        if self.rows is not None:
            self.rows.put(outputs, self.results, values)
            return
        for name, value in zip(self.results, outputs, strict=False):  # a backend may leave out what no op reads
            if name is not None:
                values[name] = value


class Unit(Protocol):
    """What is issued as one: a call, or the calls of a captured piece."""

    @property
    def issued(self) -> Issued: ...

    @property
    def calls(self) -> tuple[Call, ...]: ...

    @property
    def form(self) -> Form: ...

    def inputs(self, step: Step) -> list[torch.Tensor]: ...

    def compute(self, inputs: list[torch.Tensor], step: Step) -> Sequence[torch.Tensor]: ...

    def put(self, outputs: Sequence[torch.Tensor], values: dict[str, torch.Tensor]) -> None: ...


class Bound:
    """A Program bound to weights, a cache and the kernels of a backend: what can be run again and again.

    calls: its ops in order. units: the same as they are issued, captured ones together. captures: pieces that other
    Programs of the same backend have captured, and that this one adds to. Raises ValueError where an op waits for an
    event that no earlier op records.
    """

    def __init__(
        self, program: Program, backend: Backend, weights: Weights, cache: KvTensors, act: DType,
        choice: Choice | None = None, captures: dict[object, Any] | None = None,
    ) -> None:  # fmt: skip
        self.program, self.backend, self.act = program, backend, act
        self.weights, self.cache = weights, cache
        self._choice, self._is_plain = choice or backend.kernel, choice is not None
        self._dense = next((block.repeat for block in program.blocks if block.name == "dense_layers"), 0)
        self._rows = {id(block): rows_of_pieces(block) for block in program.blocks}
        check_events(program)
        self.calls = tuple(self._call(issued) for issued in program)
        self.units: Sequence[Unit] = self.calls
        if program.graph != "eager" and choice is None:
            self.units = backend.units(program.graph, self.calls, {} if captures is None else captures)

    def run(self, step: Step) -> None:
        """Issue every op once, in order, on its stream."""
        issue(self.backend, self.units, step)

    def run_marked(self, step: Step) -> list[tuple[object, object]]:
        """As `run`, with a mark before and after each unit; reading operands is the host's time, between the marks."""
        mark, marks = self.backend.mark, []
        events: dict[str, object] = {}
        for unit in self.units:
            inputs = unit.inputs(step)
            with in_turn(self.backend, unit.issued.op, events):
                start = mark()
                outputs = unit.compute(inputs, step)
                marks.append((start, mark()))
                unit.put(outputs, step.values)
        return marks

    def _call(self, issued: Issued) -> Call:
        op = issued.op
        parts = tuple(self._call(Issued(issued.index, issued.layer, issued.block, part)) for part in op.parts)
        kernel = _one_after_the_other(parts) if parts else self._choice(op)
        operands = []
        for tensor in op.inputs:
            plain = tensor.role in ("activation", "table") and not kernel.raw
            operands.append((self._operand(issued, tensor.name), tensor.shape if plain else None))
        results = tuple(None if t.role == "kv_cache" else t.name for t in op.outputs)
        place = next((i for i, one in enumerate(issued.block.ops) if one is op), None)
        rows = None if place is None else self._rows[id(issued.block)].get(place)
        return Call(issued, kernel, tuple(operands), results, parts, rows=rows)

    def _operand(self, issued: Issued, name: str) -> torch.Tensor | str:
        tensor = next(t for t in issued.op.inputs if t.name == name)
        layer = issued.layer + (self._dense if issued.block.name == "layers" else 0)
        if name in self.cache.tensors:
            return self.cache.get(name, layer)
        if tensor.role == "weight":
            whole = f"{name.removesuffix('.scale')}.weight"
            width: DType | None = next((t.dtype for t in issued.op.inputs if t.name == whole), "int8")

            def weight(other: Tensor) -> torch.Tensor:
                return self.weights.get(other, layer, self.act, width if other.name.endswith(".scale") else None)

            value = weight(tensor)
            return value if self._is_plain else self.backend.held(issued.op, tensor, value, DTYPES[self.act], weight)
        return name


def _one_after_the_other(parts: tuple[Call, ...]) -> Kernel:
    """The kernel of an op that a graph compiler made of several."""

    def compute(op: Op, _: Inputs, step: Step) -> Outputs:
        for call in parts:
            call.put(call.compute(call.inputs(step), step), step.values)
        return tuple(step.values[t.name] for t in op.outputs)

    return Kernel(compute, "composed", raw=True)


def issue(backend: Backend, units: Sequence[Unit], step: Step) -> None:
    """Issue `units` once, in order, each on its stream after the events that it waits for."""
    events: dict[str, object] = {}
    for unit in units:
        with in_turn(backend, unit.issued.op, events):
            unit.put(unit.compute(unit.inputs(step), step), step.values)


def in_turn(backend: Backend, op: Op, events: dict[str, object]) -> AbstractContextManager[None]:
    """What is issued inside goes to the op's stream, behind the events that it waits for. One stream is in turn by
    itself."""
    return nullcontext() if backend.streams == 1 else _ordered(backend, op, events)


@contextmanager
def _ordered(backend: Backend, op: Op, events: dict[str, object]) -> Iterator[None]:
    with backend.stream(op.stream):
        for name in op.waits:
            backend.wait(events[name])
        yield
        for name in op.records:
            events[name] = backend.record()


def check_events(program: Program) -> None:
    """Raise ValueError where an op waits for what no earlier op has recorded: on one stream it would never end."""
    recorded: set[str] = set()
    for issued in program:
        if missing := [name for name in issued.op.waits if name not in recorded]:
            raise ValueError(f"op {issued.index} {issued.op.name} waits for {missing[0]!r}, which nothing has recorded")
        recorded |= set(issued.op.records)


def rows_of(program: Program) -> int:
    """Rows of the matrix products: the tokens of the batch, padded where a captured graph or the ranks ask for it."""
    ids = next(op.inputs[1] for op in program.block("embed").ops if op.kind == "embedding")
    return ids.shape[0]


def reads(program: Program, name: str) -> bool:
    """Whether an op of the program reads a value called `name`."""
    ops = (op for block in program.blocks for whole in block.ops for op in (whole, *whole.parts))
    return any(tensor.name == name for op in ops for tensor in op.inputs)
