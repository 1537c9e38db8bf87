"""The CUDA backend without a GPU: on the CPU, on tensors without memory, and on a stand-in for torch.cuda that keeps
books of captures and plays them again. None of it says how a GPU behaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from device.backends.cuda import Cuda
from device.measure.numerics import Run, generate
from device.operators.reference import reference
from device.run.session import Options, Session
from device.weights.weights import RandomCheckpoint
from scenarios.models.model import Model
from scenarios.schema import Scenario
from tests.device.making import prompts


class On(Cuda):
    """The backend on another device, of one stream: the kernels and the graph pieces, not the streams."""

    streams = 1

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def free_bytes(self) -> int:
        return 1 << 40

    def synchronize(self) -> None:
        """Nothing runs on."""


def session(backend: Cuda, scenario: Scenario, model: Model, options: Options | None = None) -> Session:
    return Session(scenario, model, backend, RandomCheckpoint(model, 0), options=options)


def run(
    backend: Cuda,
    scenario: Scenario,
    model: Model,
    plain: bool = False,
    wide: bool = True,
    steps: int = 2,
    forced: Run | None = None,
) -> Run:
    """Prefill and decode steps. plain: by the reference operators; wide: 16-bit values held in float32."""
    options = Options(wide, reference if plain else None)
    return generate(session(backend, scenario, model, options), prompts(), steps, forced.tokens if forced else None)


class Recorder(TorchDispatchMode):
    """Every call of torch's core between its start and its end, with what it read and wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        written = [x for x in tree_flatten(out)[0] if isinstance(x, torch.Tensor)]
        self.calls.append((func, args, kwargs or {}, written))
        return out

    @property
    def names(self) -> list[str]:
        return [str(func) for func, *_ in self.calls]


class Graph:
    """What stands for a torch.cuda.CUDAGraph: the calls that were captured, played again on the same memory."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        for func, args, kwargs, written in self.recorder.calls:
            out = func(*args, **kwargs)
            for old, new in zip(written, (x for x in tree_flatten(out)[0] if isinstance(x, torch.Tensor)), strict=True):
                if old.data_ptr() != new.data_ptr():  # a view, or what was written in place, lies where it lay
                    old.copy_(new)


class Stream:
    """All work of a CPU is in one order."""

    def wait_stream(self, other: Stream) -> None:
        """It is."""


class FakeCuda:
    """The part of torch.cuda that captures."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.pools: set[object] = set()

    def Stream(self) -> Stream:
        return Stream()

    def current_stream(self) -> Stream:
        return Stream()

    @contextmanager
    def stream(self, _: Stream) -> Iterator[None]:
        yield

    def graph_pool_handle(self) -> object:
        return object()

    def CUDAGraph(self) -> Graph:
        self.graphs.append(Graph())
        return self.graphs[-1]

    @contextmanager
    def graph(self, graph: Graph, pool: object, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        self.pools.add(pool)
        with graph.recorder:
            yield


def stand_in(monkeypatch: Any) -> FakeCuda:
    """Let the graphs of the backend be captured by a FakeCuda, and torch.compile leave functions as they are."""
    fake_cuda = FakeCuda()
    for name in ("Stream", "current_stream", "stream", "graph_pool_handle", "CUDAGraph", "graph"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake_cuda, name))
    not_compiled(monkeypatch)
    return fake_cuda


def not_compiled(monkeypatch: Any) -> None:
    """torch.compile leaves functions as they are, and Triton is there."""

    def plain(function: Callable[..., Any], dynamic: bool = False) -> Callable[..., Any]:
        return function

    monkeypatch.setattr("device.operators.compiled.compiled", plain)
    monkeypatch.setitem(__import__("device.backends.cuda_graphs", fromlist=["MODES"]).MODES, "ge_graph", plain)
    monkeypatch.setattr("device.backends.cuda.triton", lambda: True)
