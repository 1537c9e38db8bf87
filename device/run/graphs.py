"""Captured blocks: consecutive ops that a backend issues as one call.

A captured block is cut where a graph of fixed shapes cannot follow: at attention, whose lengths grow with every step,
at collectives, and at experts, whose rows follow the router. So one capture serves all steps of a batch size, and all
layers, which hand their own weights in (the PIECEWISE form of vLLM). What is between the cuts is one `Piece`. What runs
on a side stream is issued by itself, and a piece lies between two events: it waits before its first op, records behind
its last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from device.operators.experts import follows_router
from device.operators.kernel import Form, fitted
from device.run.call import Call, Unit
from device.step.step import Step
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Issued

#: Values that the host takes from a step.
TAKEN = frozenset({"next_ids", "logits", "logits32", "parameters"})

#: (tensors that stand for the run, values of the step, the step) -> values that others need.
Body = Callable[[list[torch.Tensor], list[torch.Tensor], Step], list[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Calls that are issued as one. constants: weights and caches. reads, writes: names of values of the step."""

    calls: tuple[Call, ...]
    body: Body
    constants: list[torch.Tensor]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    form: Form = "compiled"

    @property
    def issued(self) -> Issued:
        """Its first op."""
        return self.calls[0].issued

    def inputs(self, step: Step) -> list[torch.Tensor]:
        """The values that it reads now."""
        return [step.values[name] for name in self.reads]

    def compute(self, inputs: list[torch.Tensor], step: Step) -> list[torch.Tensor]:
        return self.body(self.constants, inputs, step)

    def put(self, outputs: Sequence[torch.Tensor], values: dict[str, torch.Tensor]) -> None:
        values.update(zip(self.writes, outputs, strict=True))


#: Captured pieces by what they compute.
Captures = dict[object, Body]


def units(calls: Sequence[Call], capture: Callable[[Body], Body], captures: Captures) -> tuple[Unit, ...]:
    """`calls` with the captured ones put together.

    Pieces that differ only in their constants share one capture; `captures` keeps them from one Program to the next.
    """
    runs = list(_runs(calls))
    needed = TAKEN | {name for run in runs for name in read_first(run)}
    issued: list[Unit] = []
    for run in runs:
        if not _captured(run[0]):
            issued += run
            continue
        flat = [part for call in run for part in (call.parts or (call,))]
        writes = tuple(dict.fromkeys(n for call in flat for n in call.results if n is not None and n in needed))
        reads = tuple(read_first(flat))
        key = (tuple(call.issued.op for call in flat), reads, writes)
        if key not in captures:
            captures[key] = capture(body_of(flat, reads, writes))
        constants = [x for call in flat for x, _ in call.operands if not isinstance(x, str)]
        issued.append(Piece(tuple(run), captures[key], constants, reads, writes))
    return tuple(issued)


def _runs(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Longest runs of one layer that are captured together, and what is not captured one by one."""
    run: list[Call] = []
    for call in _cut(calls):
        op = call.issued.op
        if run and (op.waits or not (_captured(call) and _same_layer(run[-1], call))):
            yield run
            run = []
        run.append(call)
        if op.records or not _captured(call):
            yield run
            run = []
    if run:
        yield run


def _cut(calls: Sequence[Call]) -> Sequence[Call]:
    """`calls`, marked where the shapes of a layer follow the lengths."""
    outside: set[int] = set()
    layers: dict[tuple[int, int], list[int]] = {}
    for place, call in enumerate(calls):
        layers.setdefault((id(call.issued.block), call.issued.layer), []).append(place)
    for places in layers.values():
        # From the first to the last op over the cache a layer's shapes change with every step.
        over = [place for place in places if kind_of(calls[place].issued.op).over_cache]
        if over:
            outside |= set(range(over[0], over[-1] + 1))
    return [call.alone() if place in outside else call for place, call in enumerate(calls)]


def _captured(call: Call) -> bool:
    op, kind = call.issued.op, kind_of(call.issued.op)
    routed = kind.reads_choice or op.attr("held", 0) or any(map(follows_router, (*op.inputs, *op.outputs)))
    alone = call.is_alone or op.stream or routed or kind.is_collective
    return call.issued.block.captured and not alone


def _same_layer(a: Call, b: Call) -> bool:
    return a.issued.block is b.issued.block and a.issued.layer == b.issued.layer


def read_first(calls: Sequence[Call]) -> dict[str, None]:
    """Names that `calls` read before they write them, in order."""
    written: set[str] = set()
    first: dict[str, None] = {}
    for call in calls:
        for part in call.parts or (call,):
            first |= {x: None for x, _ in part.operands if isinstance(x, str) and x not in written}
            written |= {name for name in part.results if name is not None}
    return first


def body_of(calls: Sequence[Call], reads: tuple[str, ...], writes: tuple[str, ...]) -> Body:
    """The calls as one function of tensors, without a trace of whose weights they are."""
    plans = []
    for call in calls:
        operands = tuple((x if isinstance(x, str) else None, shape) for x, shape in call.operands)
        plans.append((call.kernel.compute, call.issued.op, operands, call.results))

    def body(constants: list[torch.Tensor], inputs: list[torch.Tensor], step: Step) -> list[torch.Tensor]:
        values = dict(zip(reads, inputs, strict=True))
        at = 0
        for compute, op, operands, results in plans:
            inputs = []
            for name, shape in operands:
                if name is None:
                    x, at = constants[at], at + 1
                else:
                    x = values[name]
                inputs.append(x if shape is None else fitted(x, shape))
            for name, value in zip(results, compute(op, inputs, step), strict=False):
                if name is not None:
                    values[name] = value
        return [values[name] for name in writes]

    return body
