"""What no other test would notice: faults that change no number of small random models, or no number at all here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from device.backends import npu, npu_graphs
from device.operators.npu.call import enforced
from device.operators.npu.experts import KERNELS as EXPERT_KERNELS
from device.operators.npu.experts import PLACES
from device.operators.npu.refusals import on_chip
from device.run.host_inputs import Requests
from device.run.session import batch_of
from device.step.dtypes import DTYPES
from device.step.step import COUNTS, Layout, Step
from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.loader import load_scenario
from scenarios.lowering.parallel import shard_of
from scenarios.models.hf_config import load_model
from scenarios.models.model import Experts, Model
from scenarios.ops.program import Op, Tensor
from tests.npu_dry.making import CASES, DEEPSEEK, QWEN3, QWEN3_MOE, VARIANTS, WIDE, On, run, session

#: No call's default, and large enough to move a logit.
EPSILON = 0.5
#: FRACTAL_NZ in CANN's list of formats (aclFormat).
ACL_FORMAT_FRACTAL_NZ = 29


class Arguments(TorchDispatchMode):
    """(name, positional arguments, keywords) of the torch_npu calls that are made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "npu":
            # A parameter that is given its default is left out by the dispatcher.
            named = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
            given = dict(zip([a.name for a in func._schema.arguments], args, strict=False))
            self.calls.append((func._opname, args, {**named, **given, **(kwargs or {})}))
        return func(*args, **(kwargs or {}))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [kwargs for called, _, kwargs in self.calls if called == name]


NORMS: dict[str, tuple[Model, str]] = {
    "npu_rms_norm": (QWEN3, "small-qwen3, all fused, paged"),
    "npu_add_rms_norm": (QWEN3, "small-qwen3, all fused, paged"),
    "npu_add_rms_norm_dynamic_quant": (QWEN3, "small-qwen3, w8a8, norm and quantise"),
    "npu_qkv_rms_norm_rope_cache": (WIDE, "qkv, norms, rope and cache"),
    "npu_kv_rmsnorm_rope_cache_v2": (DEEPSEEK, "small-deepseek, latent write"),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_given_the_epsilon_of_its_model(name: str) -> None:
    """All small models have 1e-6, which is most calls' default."""
    model, case = NORMS[name]
    ready = session(On("cpu"), replace(model, norm_eps=EPSILON), CASES[case][1])
    for number in range(3):
        ready.cache.allocator.allocate(number, 44)
    with Arguments() as arguments, enforced():
        ready.run("prefill", Requests((0, 1, 2), (0, 0, 0), ((1,) * 20,) * 3))
        ready.run("decode", Requests((0, 1, 2), (20, 20, 20), ((1,),) * 3))
    assert {kwargs["epsilon"] for kwargs in arguments.of(name)} == {EPSILON}


def test_another_epsilon_gives_other_logits() -> None:
    """And those of the plain operators: the references compute with the epsilon that they are given."""
    result = {}
    for eps in (1e-6, EPSILON):
        model, switches = replace(QWEN3, norm_eps=eps), VARIANTS["all fused, paged"]
        truth = run(session(On("cpu"), model, switches, plain=True), steps=1)
        mine = run(session(On("cpu"), model, switches), forced=truth, steps=1)
        assert ((mine.logits - truth.logits).norm() / truth.logits.norm()).item() < 0.015
        result[eps] = truth.logits
    assert ((result[EPSILON] - result[1e-6]).norm() / result[1e-6].norm()).item() > 0.1


NZ = {
    "16-bit products": (QWEN3, "small-qwen3, nz", False),
    "INT8 products": (QWEN3, "small-qwen3, w8a8 nz", True),
    "experts": (QWEN3_MOE, "small-qwen3-moe, experts nz", None),
}


@pytest.mark.parametrize("what", NZ)
def test_weights_are_cast_to_fractal_nz_as_they_are_read(what: str) -> None:
    """The format's number, and rows one after the other: a cast of a view would keep the layout of its base. The CPU
    kernel of the cast changes nothing, so no number shows either."""
    _, case, transposed = NZ[what]
    with Arguments() as arguments:
        session(On("cpu"), *CASES[case]).bound(batch_of("decode", Requests((0, 1, 2), (4, 4, 4), ((1,),) * 3)))
    casts = [args for name, args, _ in arguments.calls if name == "npu_format_cast"]
    assert casts
    assert {args[1] for args in casts} == {ACL_FORMAT_FRACTAL_NZ}
    assert all(args[0].is_contiguous() for args in casts)
    shapes = {tuple(args[0].shape) for args in casts if args[0].ndim == 2}
    if transposed is not None:  # o_proj: 512 inputs, 64 outputs; an INT8 weight is read as [inputs, outputs]
        assert ((512, 64) in shapes) == transposed
        assert ((64, 512) in shapes) != transposed


def test_the_device_is_opened_with_internal_formats_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it torch_npu drops a cast to FRACTAL_NZ and says nothing."""
    config = SimpleNamespace(allow_internal_format=False)
    calls = SimpleNamespace(config=config, set_device=lambda _: None)
    monkeypatch.setattr(npu, "opened", lambda: (SimpleNamespace(npu=calls), 0))
    npu.Npu()
    assert config.allow_internal_format is True


class WithGraphs(On):
    """The backend with its real units; a capture would need a device, and none is run here."""

    def units(self, graph: str, calls: Any, captures: Any) -> Any:
        return npu_graphs.units(self, graph, calls, captures)


def graph_of(ready: Any, context: int = 4) -> Any:
    """The one graph of a decode step behind so many tokens."""
    bound = ready.bound(batch_of("decode", Requests((0, 1, 2), (context,) * 3, ((1,),) * 3)))
    (graph,) = [unit.graph for unit in bound.units if unit.form == "captured"]
    return graph


def test_a_graph_serves_all_steps_of_its_weights_and_of_no_others() -> None:
    switches = {**VARIANTS["all fused, paged"], "graph": "aclgraph"}
    one, other = (session(WithGraphs("cpu"), QWEN3, switches) for _ in range(2))
    other.captures = one.captures
    assert graph_of(one, 4) is graph_of(one, 9)
    assert graph_of(one) is not graph_of(other)  # alike in all but where weights and caches lie


def test_a_graph_is_not_replayed_over_a_weight_that_has_been_put_elsewhere() -> None:
    ready = session(WithGraphs("cpu"), QWEN3, {**VARIANTS["all fused, paged"], "graph": "aclgraph"})
    before = graph_of(ready, 4)
    norm = next(x for x in ready.weights._kept.values() if x.shape == (QWEN3.hidden,))
    norm.set_(norm.clone())
    assert graph_of(ready, 9) is not before


def test_a_rank_whose_experts_nobody_chose_adds_nothing() -> None:
    """Its rows were never written: they may be anything, and its sum is zeros."""
    experts = Experts(4, 2, 2, 32, 0, 1, "softmax", scaled=False)
    model = replace(QWEN3_MOE, experts=experts, expert_parallel=True)
    rows, weights = torch.full((6, 8), float("nan"), dtype=torch.bfloat16), torch.full((3, 2), 0.5)
    places = torch.full((6,), -1, dtype=torch.int32)
    values = {COUNTS: torch.zeros(2, dtype=torch.int64), PLACES: places}
    step = Step(Layout((0, 1, 2), (0, 1, 2), (1, 1, 1), (5, 5, 5), 3), DTYPES, values, model)
    op = Op(
        "moe_finalize_routing",
        "experts.unpermute",
        (Tensor("expert_results", (6, 8), "bf16"), Tensor("expert_weights", (3, 2), "fp32")),
        (Tensor("moe_out", (3, 8), "bf16"),),
    )
    (y,) = EXPERT_KERNELS["moe_finalize_routing"].compute(op, [rows, weights], step)
    assert y.tolist() == [[0.0] * 8] * 3


def test_atlas_a2_is_told_what_sends_tokens_there() -> None:
    scenario = load_scenario("glm_4_5_air_ep8_decode", []).scenario
    engine = scenario.engine
    part = shard_of(engine, load_model(scenario.model), engine.tensor_parallel_size, engine.data_parallel_size)
    program = build(scenario, part, reported_batch(scenario))
    (line,) = on_chip(program, "Ascend910B3")
    assert line.startswith("optimizations.fusion.moe_dispatch: npu_moe_distribute_dispatch_v2 takes 16 ranks and more")
    assert "engine.all2all_backend to allgather_reducescatter" in line
    assert on_chip(program, "Ascend910_9391") == []
