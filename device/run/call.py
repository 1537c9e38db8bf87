"""One call of a Program on a device, and the unit that is timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from device.operators.kernel import Form, Kernel, Outputs, fitted
from device.step.step import Step
from scenarios.ops.program import Issued


@dataclass(frozen=True, slots=True)
class Call:
    """One op ready to run.

    operands: a tensor that stands for the whole run, or the name of a value of the step, with the shape to read it by
    (None: as it is). results: names that its outputs go to, None for caches. parts: the calls of an op that a graph
    compiler made of several. is_alone: never captured together with others.
    """

    issued: Issued
    kernel: Kernel
    operands: tuple[tuple[torch.Tensor | str, tuple[int, ...] | None], ...]
    results: tuple[str | None, ...]
    parts: tuple[Call, ...] = ()
    is_alone: bool = False

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
        values, inputs = step.values, []
        for operand, shape in self.operands:
            x = values[operand] if isinstance(operand, str) else operand
            inputs.append(x if shape is None else fitted(x, shape))
        return inputs

    def compute(self, inputs: list[torch.Tensor], step: Step) -> Outputs:
        return self.kernel.compute(self.issued.op, inputs, step)

    def put(self, outputs: Sequence[torch.Tensor], values: dict[str, torch.Tensor]) -> None:
        """Keep the outputs under their names."""
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
