"""Numbers on the dry runtime, where an `npu` tensor lies in host memory and no operator computes (tier 3).

Every call goes through torch_npu as it is (argument checks, allocation, streams, capture, task groups) and is then
computed on CPU views of the same memory: by torch's CPU kernels for aten, by references.py for `npu::`. Calls made
while a graph is captured are kept and computed at each replay; an update of a task group swaps the kept call for the
new one. So a step that is captured wrongly, or replayed without its update, gives other tokens. One capture at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
import torch_npu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

#: Calls that only ask or allocate, and collectives, whose numbers are another process's business (spread.py).
WITHOUT_NUMBERS = ("get_max_workspace", "infer_output", "empty", "record_stream", "c10d::")


class Kept:
    """What is being captured or updated: calls in order, the place of an open task group, and what an update writes."""

    def __init__(self) -> None:
        self.capture: list[Any] | None = None
        self.group: int | None = None
        self.update: tuple[list[Any], int] | None = None
        self.handles: dict[int, tuple[list[Any], int, Any]] = {}


KEPT = Kept()


def host_view(x: Any) -> Any:
    """A CPU tensor over the memory of an `npu` tensor; anything else as it is."""
    if not isinstance(x, torch.Tensor) or x.device.type != "npu":
        return x
    if not x.numel():
        return torch.empty(x.shape, dtype=x.dtype)
    raw = x.untyped_storage()
    memory = (ctypes.c_uint8 * raw.nbytes()).from_address(raw.data_ptr())
    flat = torch.frombuffer(memory, dtype=torch.uint8).view(x.dtype)
    return flat.as_strided(x.shape, x.stride(), x.storage_offset())


def compute(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """What `func` computes, into the memory of `out`."""
    named = {k: torch.device("cpu") if k == "device" else v for k, v in kwargs.items()}
    got = func(*tree_map(host_view, args), **tree_map(host_view, named))
    for to, value in zip(tree_flatten(out)[0], tree_flatten(got)[0], strict=True):
        if isinstance(to, torch.Tensor) and to.device.type == "npu" and to.numel():
            memory = host_view(to)
            if (
                value.numel() and memory.data_ptr() != value.data_ptr()
            ):  # neither a view of an input nor written in place
                memory.copy_(value)


def is_view(func: Any, args: Any, out: Any) -> bool:
    """Whether a call has only looked at memory in another way. In inference mode `contiguous` and `reshape` come here
    whole: they may be views, and may have copied."""
    if not func.is_view or not isinstance(out, torch.Tensor):
        return bool(func.is_view)
    memory = {x.untyped_storage().data_ptr() for x in tree_flatten(args)[0] if isinstance(x, torch.Tensor)}
    return out.untyped_storage().data_ptr() in memory


class Numbers(TorchDispatchMode):
    """Calls on `npu` tensors are computed too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        flat = tree_flatten((args, kwargs, out))[0]
        on_npu = any(isinstance(x, torch.Tensor) and x.device.type == "npu" for x in flat)
        if not on_npu or is_view(func, args, out) or any(word in func.name() for word in WITHOUT_NUMBERS):
            return out
        call = (func, args, kwargs, out)
        if KEPT.update is not None:
            calls, place = KEPT.update
            calls[place] = call
        elif KEPT.capture is not None:
            KEPT.capture.append(call)
        else:
            compute(*call)
        return out


def install() -> None:
    """Captures, replays and task groups keep the calls and compute them."""
    graphs = torch_npu.npu.graphs
    enter, leave, replay = graphs.graph.__enter__, graphs.graph.__exit__, graphs.NPUGraph.replay

    def graph_enter(self: Any) -> Any:
        result = enter(self)
        KEPT.capture = self.npu_graph._calls = []
        return result

    def graph_exit(self: Any, *error: Any) -> Any:
        KEPT.capture = None
        return leave(self, *error)

    def graph_replay(self: Any) -> None:
        replay(self)
        waiting = [place for calls, place, _ in KEPT.handles.values() if calls is self._calls]
        self._waiting = self._calls if waiting else None
        if not waiting:
            for call in self._calls:
                compute(*call)

    graphs.graph.__enter__, graphs.graph.__exit__ = graph_enter, graph_exit
    graphs.NPUGraph.replay = graph_replay
    graphs.NPUGraph.update = _updating(graphs.NPUGraph.update)
    for name, replacement in _task_groups(graphs).items():
        for module in (graphs, torch_npu.npu, torch.npu):
            setattr(module, name, replacement)


def _updating(update: Callable[..., None]) -> Callable[..., None]:
    """A replay whose attention waits for its lengths goes on when they have come."""

    def updated(self: Any, lengths: Any) -> None:
        update(self, lengths)
        for call in self._waiting or ():
            compute(*call)
        self._waiting = None

    return updated


def _task_groups(graphs: Any) -> dict[str, Callable[..., Any]]:
    start, end = graphs.graph_task_group_begin, graphs.graph_task_group_end
    update_begin, update_end = graphs.graph_task_update_begin, graphs.graph_task_update_end

    def group_begin(stream: Any) -> None:
        start(stream)
        assert KEPT.capture is not None
        KEPT.group = len(KEPT.capture)

    def group_end(stream: Any) -> Any:
        handle = end(stream)
        assert KEPT.capture is not None
        assert KEPT.group is not None
        KEPT.handles[id(handle)] = (KEPT.capture, KEPT.group, handle)
        return handle

    def group_update_begin(stream: Any, handle: Any) -> None:
        update_begin(stream, handle)
        calls, place, _ = KEPT.handles[id(handle)]
        KEPT.update = calls, place

    def group_update_end(stream: Any) -> None:
        KEPT.update = None
        update_end(stream)

    return {
        "graph_task_group_begin": group_begin,
        "graph_task_group_end": group_end,
        "graph_task_update_begin": group_update_begin,
        "graph_task_update_end": group_update_end,
    }


#: What is run: TND, BSND, contiguous, INT8 and quantised weights, on models with and without norms, biases and ties;
#: experts and latent rows; streams. Names of the cases of making.py.
CASES = (
    *(f"small-llama, {name}" for name in ("all fused", "all fused, paged", "int8 channel", "int8 token", "w8a8",
                                          "prefetch", "keys beside")),
    "small-qwen2, all fused", "small-qwen2, all fused, paged", "small-qwen3, all fused, paged", "ffn", "w4a8",
    "qkv, norms, rope and cache", "experts w8a8, gate and quantise", "small-glm, shared beside",
    "small-deepseek, latent write", "small-lite, shared beside", "small-llama, all fused, paged on 2.8.0",
    "small-deepseek, latent write on 2.9.0",
)  # fmt: skip


def difference(a: Any, b: Any) -> float:
    """The largest between the logits of two runs."""
    return (host_view(a.logits) - host_view(b.logits)).abs().max().item()


def tokens_by_way() -> dict[str, Any]:
    """Of each case the greedy tokens [steps][requests] by each way of running it, and the largest difference between
    the logits of eager and captured steps; `forgotten` is a captured step that does not hand over its lengths.

    The plain run is that of the plain operators; of models with experts, where a near choice may fall otherwise, it is
    that of the adapters without torch_npu's dispatch.
    """
    from device.backends import npu_graphs
    from tests.npu_dry import making, references

    references.register()
    install()

    def through(case: str, graph: str) -> Any:
        backend, model, switches = making.of_case(case)
        with Numbers():
            return making.run(making.session(backend, model, {**switches, "graph": graph}))

    tokens: dict[str, Any] = {}
    for case in CASES:
        model, switches = making.CASES[case.partition(" on ")[0]]
        plain = making.run(making.session(making.On("cpu"), model, switches, plain=not model.experts))
        eager, captured = (through(case, graph) for graph in ("eager", "aclgraph"))
        tokens[case] = {
            "tokens": {"plain": plain.tokens, "eager": eager.tokens, "captured": captured.tokens},
            "difference": difference(eager, captured),
        }
    honest, npu_graphs.lengths = npu_graphs.lengths, lambda *_: {}
    right, wrong = (through("small-llama, all fused, paged", graph) for graph in ("eager", "aclgraph"))
    npu_graphs.lengths = honest
    tokens["forgotten"] = {"difference": difference(right, wrong)}
    return tokens
