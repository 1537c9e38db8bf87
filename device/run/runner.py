"""Program -> real execution: every op in order, once, as the Program lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from device.operators import one_by_one
from device.operators.experts import follows_router
from device.operators.kernel import Inputs, Kernel, Outputs, fitted
from device.run.backend import Backend
from device.run.call import Call, Unit
from device.run.kv_cache import KvTensors
from device.run.streams import Turns
from device.run.windows import windowed, windows
from device.step.dtypes import DTYPES
from device.step.step import Step
from device.weights.weights import Weights
from scenarios.lowering.stages import CARRIED
from scenarios.ops.program import Block, DType, Issued, Op, Program, Tensor

#: How an op is computed: the backend's own way, or the reference's.
Choice = Callable[[Op], Kernel]


class Bound:
    """A Program bound to weights, a cache and the kernels of a backend: what can be run again and again.

    calls: its ops in order. units: the same as they are issued, captured ones together. captures: pieces that other
    Programs of the same backend have captured, and that this one adds to. first_layer: of the model, where the Program
    is that of a later pipeline stage; the cache has its own layers alone. Raises ValueError where an op waits for an
    event that no earlier op records.
    """

    def __init__(
        self,
        program: Program,
        backend: Backend,
        weights: Weights,
        cache: KvTensors,
        act: DType,
        choice: Choice | None = None,
        captures: dict[object, Any] | None = None,
        first_layer: int = 0,
    ) -> None:
        self.program, self.backend, self.act = program, backend, act
        self.weights, self.cache = weights, cache
        self._choice, self._is_plain = choice or backend.kernel, choice is not None
        self._first_layer, self._before = first_layer, _layers_before(program)
        self._places = {id(block): one_by_one.Places(block.ops) for block in program.blocks}
        self._routed_before = _layers_before(program, lambda block: self._places[id(block)].count > 0)
        self._windows = {id(block): windows(block) for block in program.blocks}
        check_events(program)
        self.calls = tuple(self._call(issued) for issued in program)
        self.units: Sequence[Unit] = self.calls
        if program.graph != "eager" and choice is None:
            self.units = backend.units(program.graph, self.calls, {} if captures is None else captures)

    def next_ids(self, step: Step) -> list[int]:
        """The tokens that the step has chosen; none on a stage without the LM head."""
        ids = step.values.get("next_ids")
        return [] if ids is None else ids.tolist()

    def run(self, step: Step) -> None:
        """Issue every op once, in order, on its stream."""
        issue(self.backend, self.units, step)

    def run_marked(self, step: Step) -> list[tuple[object, object]]:
        """As `run`, with a mark before and after each unit; reading operands is the host's time, between the marks."""
        mark, marks = self.backend.mark, []
        turns = Turns(self.backend, self.units)
        for unit in self.units:
            with turns.of(unit):
                inputs = unit.inputs(step)
                start = mark()
                outputs = unit.compute(inputs, step)
                marks.append((start, mark()))
                turns.read(unit, step.values)
            unit.put(outputs, step.values)
            turns.wrote(unit)
        turns.end()
        return marks

    def _call(self, issued: Issued) -> Call:
        op = issued.op
        parts = tuple(self._call(Issued(issued.index, issued.layer, issued.block, part)) for part in op.parts)
        kernel = _one_after_the_other(parts) if parts else self._choice(op)
        layer = issued.layer + self._routed_before[id(issued.block)]
        if not parts and (place := self._places[id(issued.block)].of(op, layer)):
            kernel = one_by_one.kernel(op, place, kernel)
        window = self._windows[id(issued.block)].get(op.name)
        if window is not None:
            kernel = windowed(kernel, op, window)
        shares = frozenset() if window else self._shares(op)
        if shares:
            kernel = _on_share(kernel, shares)
        operands = []
        for tensor in op.inputs:
            plain = tensor.role in ("activation", "table") and not kernel.raw and not follows_router(tensor)
            whole = plain and tensor.name not in shares
            operands.append((self._operand(issued, tensor.name), tensor.shape if whole else None))
        results = tuple(None if t.role == "kv_cache" else t.name for t in op.outputs)
        # What writes some rows of a value finds it among the values of the step, which a captured piece has not.
        return Call(issued, kernel, tuple(operands), results, parts, bool(window and window.writes))

    def _shares(self, op: Op) -> frozenset[str]:
        """Operands of which `op` reads this rank's share of the tokens: where whole experts are spread, each rank
        routes its own."""
        if not self.weights.shard.sends_tokens:
            return frozenset()
        rows = rows_of(self.program)
        names = ("mlp_in", "input_ids")
        return frozenset(t.name for t in op.inputs if t.name.startswith(names) and t.shape[0] < rows)

    def _operand(self, issued: Issued, name: str) -> torch.Tensor | str:
        tensor = next(t for t in issued.op.inputs if t.name == name)
        # What is carried over from the stage before belongs to its last layer.
        layer = -1 if issued.block.name == CARRIED else issued.layer + self._before[id(issued.block)]
        if name in self.cache.tensors:
            return self.cache.get(name, layer)
        if tensor.role == "weight":
            whole = f"{name.removesuffix('.scale')}.weight"
            width: DType | None = next((t.dtype for t in issued.op.inputs if t.name == whole), "int8")

            def weight(other: Tensor) -> torch.Tensor:
                stacked = one_by_one.stacked(other, self.weights.shard.experts)
                own = width if other.name.endswith(".scale") else None
                return self.weights.get(stacked, self._first_layer + layer, self.act, own)

            value = weight(tensor)
            return value if self._is_plain else self.backend.held(issued.op, tensor, value, DTYPES[self.act], weight)
        return name


def _layers_before(program: Program, counts: Callable[[Block], bool] = lambda _: True) -> dict[int, int]:
    """Layers before each block, by its identity; of blocks that are no layers 0. counts: which blocks of layers do."""
    layers_before, before = {}, 0
    for block in program.blocks:
        layers_before[id(block)] = before if block.is_layer else 0
        before += block.repeat if block.is_layer and counts(block) else 0
    return layers_before


def _on_share(kernel: Kernel, shares: frozenset[str]) -> Kernel:
    """`kernel` on this rank's rows of the operands `shares`."""

    def compute(op: Op, inputs: Inputs, step: Step) -> Outputs:
        own = [
            own_rows(x, tensor.shape, step) if tensor.name in shares else x
            for x, tensor in zip(inputs, op.inputs, strict=True)
        ]
        return kernel.compute(op, own, step)

    return replace(kernel, compute=compute)


def own_rows(x: torch.Tensor, shape: tuple[int, ...], step: Step) -> torch.Tensor:
    """This rank's share of the rows of `x`, with zeros where they do not divide by the ranks; `x` where it is its share
    already."""
    if x.shape[0] == shape[0]:
        return fitted(x, shape)
    start = step.group.rank * shape[0] if step.group else 0
    mine = x[start : start + shape[0]]
    padding = shape[0] - mine.shape[0]
    return torch.cat((mine, mine.new_zeros((padding, *mine.shape[1:])))) if padding else mine


def _one_after_the_other(parts: tuple[Call, ...]) -> Kernel:
    """The kernel of an op that a graph compiler made of several."""

    def compute(op: Op, _: Inputs, step: Step) -> Outputs:
        for call in parts:
            call.put(call.compute(call.inputs(step), step), step.values)
        return tuple(step.values[t.name] for t in op.outputs)

    return Kernel(compute, "composed", raw=True)


def issue(backend: Backend, units: Sequence[Unit], step: Step) -> None:
    """Issue `units` once, in order, each on its stream after the events that it waits for."""
    turns = Turns(backend, units)
    for unit in units:
        with turns.of(unit):
            outputs = unit.compute(unit.inputs(step), step)
            turns.read(unit, step.values)
        unit.put(outputs, step.values)
        turns.wrote(unit)
    turns.end()


def check_events(program: Program) -> None:
    """Raise ValueError where an op waits for what no earlier op has recorded: on one stream it would never end."""
    recorded: set[str] = set()
    for issued in program:
        if missing := [name for name in issued.op.waits if name not in recorded]:
            raise ValueError(f"op {issued.index} {issued.op.name} waits for {missing[0]!r}, which nothing has recorded")
        recorded |= set(issued.op.records)


def rows_of(program: Program) -> int:
    """Rows of the matrix products: the tokens of the batch, padded where a captured graph or the ranks ask for it."""
    tensors = (t for op in program.block("embed").ops for whole in (op, *op.parts) for t in whole.inputs)
    return next(t.shape[0] for t in tensors if t.name in ("input_ids", "positions"))


def reads(program: Program, name: str) -> bool:
    """Whether an op of the program reads a value called `name`."""
    return read_tensor(program, name) is not None


def read_tensor(program: Program, name: str) -> Tensor | None:
    """The value called `name` as an op of the program reads it; None where none does."""
    ops = (op for block in program.blocks for whole in block.ops for op in (whole, *whole.parts))
    return next((tensor for op in ops for tensor in op.inputs if tensor.name == name), None)
