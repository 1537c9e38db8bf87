"""A step in pipeline stages as it is measured: all micro-batches in turn through this rank's stage, round after round.

The stages are processes that meet in their sends and receives, so a round's length is that of a steady pipeline, with
its bubble. A micro-batch starts on the first stage when the last one has handed back the tokens that it chose the round
before; its own are given, so every round computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from device.run.backend import Backend
from device.run.call import Call, Unit
from device.run.host_inputs import Requests
from device.run.kv_cache import KvTensors
from device.run.runner import Bound
from device.run.session import Session
from device.step.step import Step
from device.weights.weights import Weights
from scenarios.batches import micro_batches, reported_batch
from scenarios.ops.program import Program


@dataclass(frozen=True, slots=True)
class Part:
    """One micro-batch on this stage."""

    bound: Bound
    step: Step


class Rounds:
    """The micro-batches of one step on this rank's stage: what `measure` runs again and again in place of one Bound.

    units: of all parts, numbered through, as a prediction numbers the ops of its first stage.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self.units: list[Unit] = []
        offset = 0
        for part in self.parts:
            self.units += [_numbered(unit, offset) for unit in part.bound.units]
            offset += len(part.bound.program)
        self._returned: list[torch.Tensor | None] = [None] * len(self.parts)

    @property
    def backend(self) -> Backend:
        return self.parts[0].bound.backend

    @property
    def program(self) -> Program:
        """Of the first micro-batch."""
        return self.parts[0].bound.program

    @property
    def weights(self) -> Weights:
        return self.parts[0].bound.weights

    @property
    def cache(self) -> KvTensors:
        return self.parts[0].bound.cache

    def next_ids(self, _: Step) -> list[int]:
        """The tokens of all micro-batches, where this stage has seen them."""
        return [token for ids in self._returned if ids is not None for token in ids.tolist()]

    def run(self, _: Step) -> None:
        """One round."""
        for number, part in enumerate(self.parts):
            self._begin(number)
            part.bound.run(part.step)
            self._hand_back(number)

    def run_marked(self, _: Step) -> list[tuple[object, object]]:
        """The same with a mark before and after each op."""
        marks: list[tuple[object, object]] = []
        for number, part in enumerate(self.parts):
            self._begin(number)
            marks += part.bound.run_marked(part.step)
            self._hand_back(number)
        return marks

    def _begin(self, number: int) -> None:
        """On the first stage: wait for the tokens of this micro-batch from the round before."""
        step, line = self.parts[number].step, self.parts[number].step.groups.line
        if line is None or step.groups.stage:
            return
        if self._returned[number] is not None:
            requests = len(step.layout.requests)
            ids = torch.empty(requests, dtype=torch.int64, device=step.values["lengths"].device)
            self._returned[number] = line.receive(ids, line.ranks - _width(step) + _place(step))
        else:
            self._returned[number] = torch.zeros(0, dtype=torch.int64)  # nothing is on its way yet

    def _hand_back(self, number: int) -> None:
        """On the last stage: the tokens go to the first one, which takes them when it comes to this micro-batch."""
        step, line = self.parts[number].step, self.parts[number].step.groups.line
        ids = step.values.get("next_ids")
        if line is None or ids is None:
            return
        ids = ids.clone()  # a captured graph writes the next micro-batch's over them, which may be before they are sent
        self._returned[number] = ids
        if step.groups.stage:
            line.post(ids, _place(step))


def _width(step: Step) -> int:
    """Ranks of one stage."""
    return step.group.ranks if step.group else 1


def _place(step: Step) -> int:
    return step.group.rank if step.group else 0


def _numbered(unit: Unit, by: int) -> Unit:
    """`unit` with its ops' numbers moved."""
    if isinstance(unit, Call):
        return _moved(unit, by)
    captured: Any = unit
    moved: Unit = replace(captured, calls=tuple(_moved(call, by) for call in unit.calls))
    return moved


def _moved(call: Call, by: int) -> Call:
    return replace(call, issued=replace(call.issued, index=call.issued.index + by))


def rounds(session: Session, requests: Requests) -> Rounds:
    """The reported step of a session in stages, whose cache holds what is before it."""
    places = list(range(len(requests.numbers)))
    parts = []
    for batch in micro_batches(reported_batch(session.scenario), session.scenario.engine.pipeline_parallel_size):
        mine: list[int] = []
        for group in batch.groups:
            alike = [i for i in places if (requests.queries[i], requests.contexts[i]) == (group.query, group.context)]
            mine += alike[: group.count]
            places = [i for i in places if i not in alike[: group.count]]
        own = Requests(
            tuple(requests.numbers[i] for i in mine),
            tuple(requests.contexts[i] for i in mine),
            tuple(requests.tokens[i] for i in mine),
        )
        parts.append(Part(*session.prepared(batch.phase, own)))
    return Rounds(parts)
