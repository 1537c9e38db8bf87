"""ge_graph up to the graph engine: what torchair's converters make of each compiled piece.

The engine itself is not there to load the graph, let alone to run it; the pieces are computed as they are instead.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from device.backends import npu_graphs
from device.measure.numerics import small_prompts
from tests.npu_dry.making import FUSED, PAGED, QWEN3, On, session

pytestmark = pytest.mark.filterwarnings("ignore")


class NoEngineError(Exception):
    """A graph has been converted and would be loaded now."""


class OnGraphs(On):
    """The backend with its real units."""

    def units(self, graph: str, calls: Any, captures: Any) -> Any:
        return npu_graphs.units(self, graph, calls, captures)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The graphs that were converted, in order."""
    outcome: list[Any] = []

    class Executor:
        def load(self, graph: Any, options: Any) -> None:
            outcome.append(graph)
            raise NoEngineError

    import torchair  # noqa: F401

    for module in [m for name, m in sys.modules.items() if name.startswith("torchair")]:
        if hasattr(module, "TorchNpuGraph"):
            monkeypatch.setattr(module, "TorchNpuGraph", lambda *_, **__: Executor())
        if hasattr(module, "initialize_graph_engine"):
            monkeypatch.setattr(module, "initialize_graph_engine", lambda *_, **__: None)
    # What the installed CANN has is asked of a library that is not there.
    monkeypatch.setattr(
        sys.modules["torchair._ge_concrete_graph.compat_ir"]._torchair, "check_cann_compat", lambda *_: ""
    )
    honest = npu_graphs.ge_compiled

    def converted(body: Any) -> Any:
        result = honest(body)

        def run(constants: Any, inputs: Any, step: Any) -> Any:
            with pytest.raises(NoEngineError):
                result(constants, inputs, step)
            return body(constants, inputs, step)

        return run

    monkeypatch.setattr(npu_graphs, "ge_compiled", converted)
    yield outcome
    torch._dynamo.reset()


def test_every_piece_becomes_a_graph_of_the_engines_operators(graphs: list[Any]) -> None:
    switches = {**FUSED, **PAGED, "graph": "ge_graph"}
    result = session(OnGraphs("cpu"), QWEN3, switches, batch=4)
    tokens, _ = result.prefill(small_prompts(QWEN3.vocab, [8] * 4))
    result.decode(tokens)
    kinds = Counter(op.type for graph in graphs for op in graph._proto.op)
    # Embedding; of each layer what is before attention and what is after it; head; sampling.
    assert len(graphs) == 1 + 2 * QWEN3.layers + 2
    for kind in ("RmsNorm", "AddRmsNorm", "SwiGlu", "ApplyRotaryPosEmb"):
        assert kinds[kind], f"{kind} not in {dict(kinds)}"
    assert not [kind for kind in kinds if "Attention" in kind]  # it runs between the pieces
    assert sum(count for kind, count in kinds.items() if kind.startswith("ScatterNdUpdate")) == 2 * QWEN3.layers
