"""The CUDA graphs of the backend on a stand-in for torch.cuda: what is captured once is played again on the same
memory, and gives the tokens and logits of the eager step to the last bit."""

from __future__ import annotations

import pytest
import torch

from device.backends.cuda_graphs import GRAPHS, Replayed
from device.measure.numerics import generate
from device.run.session import Options
from scenarios.models.model import Model
from scenarios.ops.program import Batch, Group
from tests.device import gpu
from tests.device.making import ALL_FUSED, DEEPSEEK, LITE, QWEN3, QWEN3_MOE, plain, prompts
from tests.scenarios.making import switched

PAGED = {"kv__layout": "paged", "kv__block_size": 16}
TOGETHER = {"fusion__moe_routing": True, "fusion__grouped_matmul": True}


@pytest.mark.parametrize("graph", ["aclgraph", "ge_graph"])
@pytest.mark.parametrize("model", [QWEN3, QWEN3_MOE, LITE], ids=lambda m: m.name)
def test_replays_are_eager_steps_to_the_last_bit(model: Model, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = gpu.stand_in(monkeypatch)
    switches = {k: v for k, v in ALL_FUSED.items() if not model.latent or k not in ("fusion__qkv", "fusion__rope")}
    eager = plain(model, **switches, **PAGED)
    reference_run = gpu.run(gpu.On("cpu"), eager, model, wide=False, steps=4)
    session = gpu.session(gpu.On("cpu"), switched(eager, graph=graph), model, Options())
    result = generate(session, prompts(), 4)
    assert result.tokens == reference_run.tokens
    assert torch.equal(result.logits, reference_run.logits)
    graphs = session.captures[GRAPHS].graphs
    assert len(graphs) == len(cuda.graphs) > model.layers  # each layer has its own, and the four steps no more
    # Once in each of the four steps; a piece without weights (scale, sum) may serve several layers.
    assert {graph.replays % 4 for graph in cuda.graphs} == {0}
    assert len(cuda.pools) == 1


def test_each_layer_reads_its_own_weights_and_no_input_of_an_earlier_step(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.stand_in(monkeypatch)
    session = gpu.session(gpu.On("cpu"), plain(QWEN3, **ALL_FUSED, graph="aclgraph"), QWEN3, Options())
    tokens, _ = session.prefill(prompts())
    session.decode(tokens)
    bound = session.bound(Batch("decode", (Group(2, 1, 40), Group(1, 1, 33))))
    pieces = [unit for unit in bound.units if isinstance(unit, Replayed)]
    assert all(piece.form == "captured" for piece in pieces)
    graphs = list(session.captures[GRAPHS].graphs.values())
    results = {x.data_ptr() for graph in graphs for x in graph.outputs}
    held = [x for graph in graphs for x in graph.inputs]
    copied = [x for x in held if x.data_ptr() not in results]
    assert len(copied) < len(held)  # what another graph has written is read where it lies
    caches = {x.data_ptr() for tensors in session.cache.tensors.values() for x in tensors}
    assert not caches & {x.data_ptr() for x in held}  # a cache is no input: it is written where it lies


def test_what_must_stay_outside_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.stand_in(monkeypatch)
    session = gpu.session(gpu.On("cpu"), plain(DEEPSEEK, graph="ge_graph", **TOGETHER), DEEPSEEK, Options())
    tokens, _ = session.prefill(prompts())
    session.decode(tokens)
    bound = next(bound for batch, bound in session._bound.items() if batch.phase == "decode")
    alone = {unit.issued.op.kind for unit in bound.units if not isinstance(unit, Replayed)}
    assert {"batch_matmul", "attention", "moe_init_routing", "grouped_matmul", "moe_finalize_routing"} <= alone
    assert [call.issued.index for unit in bound.units for call in unit.calls] == list(range(len(bound.program)))


def test_other_shapes_are_captured_anew_and_earlier_graphs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = gpu.stand_in(monkeypatch)
    session = gpu.session(gpu.On("cpu"), plain(QWEN3, **ALL_FUSED, graph="aclgraph"), QWEN3, Options())
    tokens, _ = session.prefill(prompts())
    tokens, first = session.decode(tokens)
    before = first.clone()
    session.decode(tokens)
    assert torch.equal(first, before)  # logits that were given out are not written over by the next replay
    once = len(cuda.graphs)
    session.captures[GRAPHS].graphs.clear()
    session.decode(tokens)
    assert len(cuda.graphs) == 2 * once
