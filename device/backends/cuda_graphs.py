"""Captured steps on a GPU: each piece of device/run/graphs.py is one CUDA graph.

aclgraph: the calls between attention, collectives and experts are captured as they are. ge_graph: torch.compile makes
kernels of them first. A graph keeps the addresses of what it has read, so each layer has its own, and what comes from
outside is copied into its buffers; results of other graphs lie still and are read where they are. All graphs share one
pool of memory: their results are held, so none writes over another's. A piece without weights serves several layers:
each gives its results the same names, so whoever reads them reads the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from device.operators.compiled import compiled
from device.operators.kernel import Form
from device.run.call import Call, Unit
from device.run.graphs import Body, Piece
from device.run.graphs import units as pieces
from device.step.step import Step

#: Graph modes with what the pieces are made of before they are captured.
MODES: dict[str, Callable[[Body], Body]] = {"aclgraph": lambda body: body, "ge_graph": compiled}
#: Where `captures` keeps the graphs, next to the pieces of device/run/graphs.py.
GRAPHS = "CUDA graphs"


@dataclass(slots=True)
class Graph:
    """One captured piece: what it reads lies in `inputs`, what it writes in `outputs`."""

    cuda_graph: Any
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]


@dataclass(slots=True)
class Graphs:
    """All graphs of a session. still: addresses of results, which every replay writes again in the same place."""

    pool: Any = None
    graphs: dict[object, Graph] = field(default_factory=dict)
    still: set[int] = field(default_factory=set)

    def replay(self, piece: Piece, inputs: Sequence[torch.Tensor], step: Step) -> list[torch.Tensor]:
        """What `piece` makes of `inputs`; it is captured where it has not been for these shapes and constants."""
        key = self._key(piece, inputs)
        graph = self.graphs.get(key)
        if graph is None:
            graph = self.graphs[key] = self._capture(piece, inputs, step)
            self.still |= {x.data_ptr() for x in graph.outputs}
        for buffer, value in zip(graph.inputs, inputs, strict=True):
            if buffer.data_ptr() != value.data_ptr():  # not the result of another graph, which lies where it lay
                buffer.copy_(value)
        graph.cuda_graph.replay()
        return graph.outputs

    def _key(self, piece: Piece, inputs: Sequence[torch.Tensor]) -> object:
        """What a capture depends on: the calls, where weights, caches and results of other graphs lie, and shapes."""
        places = tuple(x.data_ptr() for x in piece.constants)
        read = tuple((self._stays(x) and x.data_ptr(), x.shape, x.stride(), x.dtype) for x in inputs)
        return id(piece.body), places, read

    def _stays(self, x: torch.Tensor) -> bool:
        return x.data_ptr() in self.still

    def _capture(self, piece: Piece, inputs: Sequence[torch.Tensor], step: Step) -> Graph:
        """Run the piece once as it is, which makes what a first call makes (handles, workspaces, compiled kernels);
        then once under capture. Both write the same values to the same slots of the cache."""
        cuda: Any = torch.cuda
        held = [x if self._stays(x) else x.clone() for x in inputs]
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            piece.body(piece.constants, held, step)
        cuda.current_stream().wait_stream(stream)
        if self.pool is None:
            self.pool = cuda.graph_pool_handle()
        cuda_graph = cuda.CUDAGraph()
        # Other threads (the watchdog of NCCL) may go on calling CUDA meanwhile.
        with cuda.graph(cuda_graph, pool=self.pool, stream=stream, capture_error_mode="thread_local"):
            outputs = piece.body(piece.constants, held, step)
        return Graph(cuda_graph, held, outputs)


@dataclass(frozen=True, slots=True)
class Replayed(Piece):
    """A piece that is a CUDA graph from its first call on."""

    form: Form = "captured"
    graphs: Graphs = field(default_factory=Graphs)

    def compute(self, inputs: list[torch.Tensor], step: Step) -> list[torch.Tensor]:
        return self.graphs.replay(self, inputs, step)


def units(graph: str, calls: Sequence[Call], captures: dict[object, Any]) -> tuple[Unit, ...]:
    """`calls` with the captured ones put together. captures: pieces and graphs of earlier Programs of the session."""
    graphs: Graphs = captures.setdefault(GRAPHS, Graphs())
    issued: list[Unit] = []
    for unit in pieces(calls, MODES[graph], captures):
        if isinstance(unit, Piece):
            unit = Replayed(unit.calls, unit.body, unit.constants, unit.reads, unit.writes, graphs=graphs)
        issued.append(unit)
    return tuple(issued)
