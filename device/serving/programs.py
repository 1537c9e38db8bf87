"""Which Program runs a step: where lengths do not matter to it, one for all steps of as many tokens.

Contexts grow by a token per step, so each step would be a Program of its own, and building and binding it is a tenth of
a small model's step. With fused attention nothing in a Program follows the contexts but what its attention op says of
them, and a backend of `FROM_STEP` reads them from the step instead.
"""

from __future__ import annotations

from dataclasses import replace

from device.run.host_inputs import Requests
from device.run.session import Phase, Session, batch_of
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Batch, Group, Op, Program

#: Backends whose kernels take all lengths from the step, and choose no kernel by those of the Program.
FROM_STEP = ("cpu",)


class Programs:
    """The batches that a session runs the steps of requests with."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._any_length: dict[Phase, bool] = {}

    def batch(self, phase: Phase, requests: Requests) -> Batch:
        """The batch of the Program for this step: its own, or one of the same tokens on other contexts."""
        own = batch_of(phase, requests)
        if self._session.backend.name not in FROM_STEP:
            return own
        shared = alike(own)
        if phase not in self._any_length:
            programs = (self._session.bound(batch).program for batch in (own, shared))
            self._any_length[phase] = differ_in_lengths_alone(*programs)
        return shared if self._any_length[phase] else own


def alike(batch: Batch) -> Batch:
    """`batch` as if all that decode had one token in the cache, and all prompts none."""
    groups: list[Group] = []
    for group in batch.groups:
        same = Group(group.count, group.query, 1 if group.query == 1 else 0)
        if groups and (groups[-1].query, groups[-1].context) == (same.query, same.context):
            same = Group(groups.pop().count + same.count, same.query, same.context)
        groups.append(same)
    return Batch(batch.phase, tuple(groups))


def differ_in_lengths_alone(a: Program, b: Program) -> bool:
    """Whether two Programs are the same but for the cache that their attention ops say they see."""
    return [_without_lengths(issued.op) for issued in a] == [_without_lengths(issued.op) for issued in b]


def _without_lengths(op: Op) -> Op:
    if kind_of(op).family != "attention" or op.attr("latent", False):
        return op
    inputs = tuple(replace(t, shape=()) if t.role == "kv_cache" else t for t in op.inputs)
    return replace(op, inputs=inputs, attrs=tuple(attr for attr in op.attrs if attr[0] != "groups"))
