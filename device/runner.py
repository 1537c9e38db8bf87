"""Program -> real execution: every op in order, once, as the Program lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from device.backends.base import Backend
from device.kv_cache import KvTensors
from device.operators.kernel import Inputs, Kernel, Outputs, fitted
from device.operators.reference import REFERENCE
from device.step import Step
from device.weights import Weights
from scenarios.program import DType, Issued, Op, Program

#: How an op is computed: the backend's own way, or the reference's.
Choice = Callable[[Op], Kernel]


def reference(op: Op) -> Kernel:
    """The plain-torch way."""
    return REFERENCE[op.kind]


@dataclass(frozen=True, slots=True)
class Call:
    """One op ready to run. operands: a tensor that stands for the whole run, or the name of a value of the step, with
    the shape to read it by (None: as it is). results: names that its outputs go to, None for caches."""

    issued: Issued
    kernel: Kernel
    operands: tuple[tuple[torch.Tensor | str, tuple[int, ...] | None], ...]
    results: tuple[str | None, ...]

    def run(self, step: Step) -> None:
        values = step.values
        inputs = [self._read(operand, shape, values) for operand, shape in self.operands]
        self.put(self.kernel.compute(self.issued.op, inputs, step), values)

    def inputs(self, step: Step) -> list[torch.Tensor]:
        """The operands as the op reads them now."""
        return [self._read(operand, shape, step.values) for operand, shape in self.operands]

    def put(self, outputs: Outputs, values: dict[str, torch.Tensor]) -> None:
        """Keep the outputs under their names."""
        for name, value in zip(self.results, outputs, strict=False):  # a backend may leave out what no op reads
            if name is not None:
                values[name] = value

    @staticmethod
    def _read(
        operand: torch.Tensor | str, shape: tuple[int, ...] | None, values: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        found = values[operand] if isinstance(operand, str) else operand
        return found if shape is None else fitted(found, shape)


class Bound:
    """A Program bound to weights, a cache and the kernels of a backend: what can be run again and again.

    Raises ValueError where an op waits for an event that no earlier op records.
    """

    def __init__(
        self, program: Program, backend: Backend, weights: Weights, cache: KvTensors, act: DType,
        choice: Choice | None = None,
    ) -> None:  # fmt: skip
        self.program, self.backend, self.act = program, backend, act
        self.weights, self.cache = weights, cache
        self._choice = choice or backend.kernel
        check_events(program)
        self.calls = tuple(self._call(issued) for issued in program)

    def run(self, step: Step) -> None:
        """Run every op once, in order, on its stream."""
        events: dict[str, object] = {}
        for call in self.calls:
            op = call.issued.op
            if self.backend.streams == 1:
                call.run(step)
                continue
            with self.backend.stream(op.stream):
                for name in op.waits:
                    self.backend.wait(events[name])
                call.run(step)
                for name in op.records:
                    events[name] = self.backend.record()

    def run_marked(self, step: Step) -> list[tuple[object, object]]:
        """As `run`, with a mark before and after each op; reading operands is the host's time, between the marks."""
        mark, marks = self.backend.mark, []
        for call in self.calls:
            inputs = call.inputs(step)
            start = mark()
            outputs = call.kernel.compute(call.issued.op, inputs, step)
            marks.append((start, mark()))
            call.put(outputs, step.values)
        return marks

    def _call(self, issued: Issued) -> Call:
        op = issued.op
        kernel = self._parts(issued) if op.parts else self._choice(op)
        operands = []
        for tensor in op.inputs:
            plain = tensor.role in ("activation", "table") and not kernel.raw
            operands.append((self._operand(issued, tensor.name), tensor.shape if plain else None))
        results = tuple(None if t.role == "kv_cache" else t.name for t in op.outputs)
        return Call(issued, kernel, tuple(operands), results)

    def _operand(self, issued: Issued, name: str) -> torch.Tensor | str:
        tensor = next(t for t in issued.op.inputs if t.name == name)
        if name in self.cache.tensors:
            return self.cache.get(name, issued.layer)
        if tensor.role == "weight":
            width = issued.op.inputs[1].dtype if name.endswith(".scale") else None
            return self.weights.get(tensor, issued.layer, self.act, width)
        return name

    def _parts(self, issued: Issued) -> Kernel:
        """An op that a graph compiler made of several: its parts, one after the other."""
        calls = [self._call(Issued(issued.index, issued.layer, issued.block, part)) for part in issued.op.parts]

        def compute(op: Op, _: Inputs, step: Step) -> Outputs:
            for call in calls:
                call.run(step)
            return tuple(step.values[t.name] for t in op.outputs)

        return Kernel(compute, "composed", raw=True)


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
