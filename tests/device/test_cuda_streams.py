"""Streams without a GPU: every read and write of memory in a step, with the vector clock of its stream. Two that meet
on the same bytes, one of them a write, have an event between them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from device.backends.cuda_graphs import Replayed
from device.run.session import Options, Session
from device.run.workload import reported_step
from device.weights.weights import RandomCheckpoint
from scenarios.models.model import Model
from tests.device import gpu
from tests.device.making import ALL_FUSED, GLM, QWEN3, Alike, plain

PAGED = {"kv__layout": "paged", "kv__block_size": 16}


class Ledger(gpu.On):
    """A CPU with the streams of a GPU, whose events carry what is over when they are."""

    streams = 5

    def __init__(self) -> None:
        super().__init__("cpu")
        self.clocks: dict[int, Counter[int]] = defaultdict(Counter)
        self.current = 0
        self.kept: set[int] = set()

    @contextmanager
    def stream(self, number: int) -> Iterator[None]:
        before, self.current = self.current, number or self.current
        yield
        self.current = before

    def record(self) -> Counter[int]:
        self.clocks[self.current][self.current] += 1
        return Counter(self.clocks[self.current])

    def wait(self, event: Counter[int]) -> None:
        self.clocks[self.current] |= event

    def keep(self, x: torch.Tensor) -> None:
        self.kept.add(x.data_ptr())


@dataclass(frozen=True)
class Access:
    """tick: the number of the first event of its stream that it is over with."""

    stream: int
    tick: int
    first: int
    last: int
    writes: bool
    what: str


class Watch(TorchDispatchMode):
    """Holds each access against all others of other streams; memory stays taken, so that no address is used twice."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger, self.races, self._held = ledger, [], []  # type: ignore[var-annotated]
        self._seen: dict[int, list[Access]] = defaultdict(list)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        written = {
            id(x)
            for given, said in zip(args, func._schema.arguments, strict=False)
            for x in tree_flatten(given)[0]
            if said.alias_info is not None and said.alias_info.is_write
        }
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        self._held.append((args, kwargs, out))
        if is_view:  # no memory is touched
            return out
        given = [x for x in tree_flatten((args, kwargs or {}))[0] if isinstance(x, torch.Tensor)]
        for x in given:
            self._note(x, id(x) in written, str(func))
        for x in tree_flatten(out)[0]:
            if isinstance(x, torch.Tensor):
                self._note(x, True, str(func))
        return out

    def _note(self, x: torch.Tensor, writes: bool, what: str) -> None:
        if not x.numel():
            return
        stream, clock = self.ledger.current, self.ledger.clocks[self.ledger.current]
        length = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
        last = x.data_ptr() + length * x.element_size()
        mine = Access(stream, clock[stream] + 1, x.data_ptr(), last, writes, what)
        seen = self._seen[x.untyped_storage().data_ptr()]
        self.races += [
            f"{other.what} on {other.stream}, {what} on {stream}"
            for other in seen
            if other.stream != stream
            and (other.writes or writes)
            and other.first < last
            and x.data_ptr() < other.last
            and clock[other.stream] < other.tick
        ]
        seen.append(mine)


#: (model, switches, ranks, streams that are used)
CASES: dict[str, tuple[Model, dict[str, object], int, set[int]]] = {
    "keys": (QWEN3, {**PAGED, "overlap__streams": 2}, 1, {4}),
    "keys, unfused": (QWEN3, {"overlap__streams": 2, "fusion__rope": False, "fusion__attention": False}, 1, {4}),
    "keys, graphs": (QWEN3, {**PAGED, "overlap__streams": 2, "graph": "aclgraph", "fusion__rope": False}, 1, {4}),
    "shared expert": (GLM, {"overlap__shared_expert_stream": True}, 1, {3}),
    "shared expert, graphs": (GLM, {"overlap__shared_expert_stream": True, "graph": "ge_graph"}, 1, {3}),
    "pieces": (QWEN3, {**PAGED, "overlap__comm_chunks": 2}, 2, {2}),
    "pieces, graphs": (QWEN3, {**PAGED, "overlap__comm_chunks": 2, "graph": "ge_graph"}, 2, {2}),
    "micro-batches": (QWEN3, {**PAGED, "overlap__micro_batches": 2}, 2, {2}),
    "micro-batches, graphs": (QWEN3, {**PAGED, "overlap__micro_batches": 2, "graph": "ge_graph"}, 2, {2}),
    "micro-batches of experts": (GLM, {"overlap__micro_batches": 2}, 2, {2}),
}


def watched(name: str, monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> tuple[Watch, list[Any]]:
    """The reported decode step of a case, run under watch; graphs run as the calls that they capture."""
    model, switches, ranks, _ = CASES[name]
    gpu.not_compiled(monkeypatch)
    monkeypatch.setattr(Replayed, "compute", lambda self, inputs, step: self.body(self.constants, inputs, step))
    if model.experts:
        switches = {**switches, "fusion__moe_routing": True, "fusion__grouped_matmul": True}
    scenario = plain(model, **{**ALL_FUSED, **switches})
    engine = scenario.engine.model_copy(update={"tensor_parallel_size": ranks})
    workload = scenario.workload.model_copy(update={"batch": 4})
    scenario = scenario.model_copy(update={"engine": engine, "workload": workload})
    group = Alike() if ranks > 1 else None
    at_work = Session(scenario, model, ledger, RandomCheckpoint(model, 0), group, Options())
    bound, step = at_work.prepared(*reported_step(at_work))
    watch = Watch(ledger)
    with torch.inference_mode(), watch:
        bound.run(step)
    return watch, list(bound.units)


@pytest.mark.parametrize("name", CASES)
def test_no_two_streams_meet_on_the_same_bytes_without_an_event(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    watch, units = watched(name, monkeypatch, ledger)
    assert watch.races == []
    sides = CASES[name][3]
    assert {unit.issued.op.stream for unit in units} == {0, *sides}
    # The main stream ends behind all others: its end is the end of the step.
    assert all(ledger.clocks[0][side] == ledger.clocks[side][side] for side in sides)
    captured = [unit for unit in units if isinstance(unit, Replayed)]
    assert bool(captured) == ("graphs" in name)
    assert all(call.issued.op.stream == 0 for unit in captured for call in unit.calls)


@pytest.mark.parametrize("name", ["keys", "shared expert", "pieces", "micro-batches"])
def test_a_wait_that_is_left_out_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "wait", lambda self, event: None)
    watch, _ = watched(name, monkeypatch, Ledger())
    assert watch.races


def test_memory_that_another_stream_reads_is_kept_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of the main stream that a side stream reads may be freed by the host before it has been read."""
    ledger = Ledger()
    watched("keys", monkeypatch, ledger)
    assert ledger.kept
    alone = Ledger()
    monkeypatch.setitem(CASES, "one stream", (QWEN3, {}, 1, set()))
    watched("one stream", monkeypatch, alone)
    assert not alone.kept
    assert not any(alone.clocks.values())  # no event is recorded where there is nothing to order
