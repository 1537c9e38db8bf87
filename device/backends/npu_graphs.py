"""Captured steps on an NPU: all captured blocks as one graph, or the graph engine's pieces.

aclgraph: the whole of the captured blocks, attention too, is one graph. Its attention calls lie in task groups, each of
which the device enters only when its lengths of this step have been written (NPUGraph.update): a replay without its
update would hang. npugraph_ex: the same calls as one function for torch.compile, whose backend captures and updates.
ge_graph: the pieces of device/run/graphs.py, cut at attention and collectives, compiled by torchair's graph engine;
attention runs between them as in eager mode. No machine without an NPU can run that engine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from device.operators.kernel import Form
from device.operators.npu.attention import causal_mask, lengths
from device.operators.npu.versions import V2_IN_CAPTURE, has
from device.run.call import Call, Unit
from device.run.graphs import TAKEN, Body, Piece, body_of, read_first
from device.run.graphs import units as pieces
from device.run.runner import issue
from device.step.step import Layout, Step
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Issued, Op

#: Values of the step that are the same in all steps: copied into their buffers once.
CONSTANT = ("cos_table", "sin_table", "inv_freq")
#: What torch.compile is asked for, as vLLM-Ascend asks: no copies of inputs and outputs.
NPUGRAPH_EX = {"clone_input": False, "clone_output": False, "inplace_pass": False}


def units(backend: Any, graph: str, calls: Sequence[Call], captures: dict[object, Any]) -> tuple[Unit, ...]:
    """`calls` with the captured ones put together. captures: graphs and pieces of earlier Programs of the session."""
    if graph == "ge_graph":
        return pieces(calls, ge_compiled, captures)
    runs: list[list[Call]] = []
    for call in calls:
        if not (call.issued.block.captured and runs and runs[-1][-1].issued.block.captured):
            runs.append([])
        runs[-1].append(call)
    issued: list[Unit] = []
    for place, run in enumerate(runs):
        if not run[0].issued.block.captured:
            issued += run
            continue
        needed = TAKEN | {name for other in runs[place + 1 :] for name in read_first(other)}
        issued.append(
            _graph_of(backend, run, needed, captures)
            if graph == "aclgraph"
            else _compiled_of(backend, run, needed, captures)
        )
    return tuple(issued)


@dataclass(slots=True)
class Graph:
    """One captured run: fixed buffers for what it reads, and the values that it writes. rows: of the contiguous cache
    that its attention reads."""

    npu_graph: Any = None
    rows: tuple[int, ...] = ()
    inputs: list[torch.Tensor] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Calls that one graph replays. reads, writes: names of values of the step. attention: an op whose lengths follow
    the step (all layers have the same), None where there is none."""

    backend: Any
    calls: tuple[Call, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    attention: Op | None
    graph: Graph
    form: Form = "captured"

    @property
    def issued(self) -> Issued:
        """Its first op."""
        return self.calls[0].issued

    def inputs(self, step: Step) -> list[torch.Tensor]:
        """The values that it reads now."""
        return [step.values[name] for name in self.reads]

    def compute(self, inputs: list[torch.Tensor], step: Step) -> list[torch.Tensor]:
        """Capture at the first call; then fill the buffers, replay, hand the waiting attention calls their lengths."""
        graph = self.graph
        if graph.npu_graph is None:
            self._capture(inputs, step)
            graph.rows = step.layout.cache_rows
        self._refuse_other_rows(step)
        for name, buffer, value in zip(self.reads, graph.inputs, inputs, strict=True):
            if name not in CONSTANT:
                buffer.copy_(value)
        graph.npu_graph.replay()
        if self.attention is not None:
            v2 = has(V2_IN_CAPTURE, self.backend.version)
            graph.npu_graph.update([dict(lengths(self.attention, step.layout, v2))])
        return graph.outputs

    def put(self, outputs: Sequence[torch.Tensor], values: dict[str, torch.Tensor]) -> None:
        values.update(zip(self.writes, outputs, strict=True))

    def _refuse_other_rows(self, step: Step) -> None:
        """Raise ValueError where the requests lie in other rows of a contiguous cache than were captured: a replay
        reads where it was captured, and only a block table is handed over with each."""
        if self.attention is None or self.attention.attr("block_size", 0) or self.graph.rows == step.layout.cache_rows:
            return
        raise ValueError(
            f"captured on rows {self.graph.rows} of a contiguous cache, asked for {step.layout.cache_rows}"
        )

    def _capture(self, inputs: list[torch.Tensor], step: Step) -> None:
        """Run the calls once as they are, which fills the graph's memory and what is made at a first call; then once
        more under capture, in the same memory. Both write the same values to the same slots of the cache."""
        npu, graph = torch.npu, self.graph
        graph.inputs = [value.clone() for value in inputs]
        stream, pool = npu.Stream(), npu.MemPool()
        stream.wait_stream(npu.current_stream())
        with npu.stream(stream), npu.use_mem_pool(pool):
            self._issue(step)
        npu.synchronize()
        npu_graph = npu.NPUGraph()
        with npu.graph(npu_graph, pool=pool.id, stream=stream, auto_dispatch_capture=self.attention is not None):
            graph.outputs = self._issue(step)
        graph.npu_graph = npu_graph

    def _issue(self, step: Step) -> list[torch.Tensor]:
        values = {**step.values, **dict(zip(self.reads, self.graph.inputs, strict=True))}
        issue(self.backend, self.calls, replace(step, values=values))
        return [values[name] for name in self.writes]


def _graph_of(backend: Any, run: list[Call], needed: frozenset[str], captures: dict[object, Any]) -> Unit:
    flat = [part for call in run for part in (call.parts or (call,))]
    writes = tuple(dict.fromkeys(name for call in flat for name in call.results if name in needed and name is not None))
    attention = next((call.issued.op for call in run if kind_of(call.issued.op).family == "attention"), None)
    key = ("aclgraph", tuple(_shape_of(call.issued.op) for call in run), writes, _places(flat))
    graph = captures.setdefault(key, Graph())
    return Replayed(backend, tuple(run), tuple(read_first(flat)), writes, attention, graph)


def _shape_of(op: Op) -> tuple[object, ...]:
    """All of an op that a capture depends on: not the lengths of its requests."""
    attrs = tuple(attr for attr in op.attrs if attr[0] != "groups")
    inputs = tuple((t.name, t.dtype, None if t.role == "kv_cache" else t.shape) for t in op.inputs)
    return op.kind, op.name, attrs, inputs


def _places(calls: Sequence[Call]) -> tuple[int, ...]:
    """Where weights and caches lie: a replay reads and writes there, whatever has become of them since."""
    return tuple(x.data_ptr() for call in calls for x, _ in call.operands if not isinstance(x, str))


@dataclass(frozen=True, slots=True)
class Known(Layout):
    """A layout of one new token per request whose key lengths are given: a compiled graph can be given new numbers,
    but not new sums of them."""

    known_keys: tuple[int, ...] = ()

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.requests) + 1))

    @property
    def keys(self) -> tuple[int, ...]:
        return self.known_keys


class Compiled(Piece):
    """Calls that torch.compile has made one function of, which is given symbols in the place of the lengths."""

    __slots__ = ()

    def compute(self, inputs: list[torch.Tensor], step: Step) -> list[torch.Tensor]:
        layout = step.layout
        known = Known(layout.requests, layout.cache_rows, layout.queries, layout.contexts, layout.rows, layout.keys)
        return self.body(self.constants, inputs, replace(step, layout=known))


def _compiled_of(backend: Any, run: list[Call], needed: frozenset[str], captures: dict[object, Any]) -> Unit:
    """The first step is compiled as it is; the second has other lengths, of which torch makes symbols: it serves all
    further ones."""
    flat = [part for call in run for part in (call.parts or (call,))]
    writes = tuple(dict.fromkeys(name for call in flat for name in call.results if name in needed and name is not None))
    reads = tuple(read_first(flat))
    key = ("npugraph_ex", tuple(_shape_of(call.issued.op) for call in run), writes, _places(flat))
    if key not in captures:
        causal_mask(backend.device)
        _allow_results_in_place()
        held = [x for call in flat for x, _ in call.operands if not isinstance(x, str)]
        # One flat view of each cache: two that share memory would be copied back and forth for each write.
        views = {id(x): flat_cache(x) for x in held}
        constants = [views[id(x)] for x in held]
        captures[key] = (
            torch.compile(body_of(flat, reads, writes), backend="npugraph_ex", options=NPUGRAPH_EX, fullgraph=True),
            constants,
        )
    body, constants = captures[key]
    return Compiled(tuple(run), body, constants, reads, writes)


def _allow_results_in_place() -> None:
    """Let npu_apply_rotary_pos_emb return the tensors that it was given, which its schema does not say. torch warns of
    that in compiled code, or raises where the environment has CI. Nothing here reads such a tensor afterwards."""
    config: Any = importlib.import_module("torch._functorch.config")
    if hasattr(config, "error_on_custom_op_aliasing"):  # not in all versions
        config.error_on_custom_op_aliasing = False


def flat_cache(x: torch.Tensor) -> torch.Tensor:
    """A cache as [tokens, values], anything else as it is: a view of a cache inside a compiled graph would be captured
    as a copy of all of it."""
    return x.flatten(0, 1).flatten(1) if x.ndim == 4 else x


def ge_compiled(body: Body) -> Body:
    """`body` compiled by the graph engine (torchair, max-autotune). It reads caches where they lie at each call."""
    torchair = importlib.import_module("torchair")
    backend: Any = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
    compiled: Callable[..., Any] = torch.compile(body, backend=backend, fullgraph=True, dynamic=False)

    def run(constants: list[torch.Tensor], inputs: list[torch.Tensor], step: Step) -> list[torch.Tensor]:
        tensors: list[torch.Tensor] = compiled([flat_cache(x) for x in constants], inputs, step)
        return tensors

    return run
