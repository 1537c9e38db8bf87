"""Every adapter: the whole Program by the real calls, on tensors without memory and on CPU kernels.

On `meta` the wheel's own meta kernels answer, and each call is held against the rules of device/operators/npu. On `cpu`
the kernels of references.py compute what the documentation says of the arguments that the adapter passes: tokens and
logits are those of the plain reference operators.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from device.backends.npu import Npu
from device.measure.numerics import small_prompts
from device.operators.npu.call import enforced
from device.operators.npu.kernels import KERNELS
from device.operators.npu.rules import RULES
from device.run.host_inputs import Requests
from device.run.session import Phase, batch_of
from scenarios.build import build
from scenarios.errors import ScenarioError
from scenarios.lowering.parallel import shard
from scenarios.models.model import Model
from tests.npu_dry.expected import CALL_OF, V1, V2, calls_of
from tests.npu_dry.making import (
    CASES,
    DEEPEST,
    DEEPSEEK,
    FUSED,
    GLM,
    INT8,
    LITE,
    LLAMA,
    PAGED,
    QWEN3,
    ROUTED,
    On,
    run,
    scenario,
    session,
)


def no_meta(case: str) -> bool:
    """Calls that lay weights out again have no meta kernel, nor has the reading of latent rows, and who stands in the
    place of an expert is read from the device: what they are for runs on the CPU kernels alone."""
    return any(word in case for word in ("w4a16", "w4a8", "nz", "one by one"))


class Calls(TorchDispatchMode):
    """The torch_npu calls that are made inside, by name, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("npu", "atb"):
            self.names.append(func._opname)
        return func(*args, **(kwargs or {}))


#: Cached and new tokens of three requests.
LENGTHS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "prefill": ((0, 0, 0), (40, 40, 33)),
    "prefill chunk": ((20, 20, 13), (20, 17, 18)),
    "mixed": ((40, 37, 31), (1, 3, 1)),
    "mixed chunk": ((20, 20, 20), (1, 18, 1)),
    "decode": ((41, 40, 32), (1, 1, 1)),
}


def steps_of(model: Model) -> list[tuple[Phase, Requests]]:
    """A step of each phase; chunks behind cached rows are latent attention's own."""
    phases: list[tuple[Phase, Requests]] = []
    for name, (contexts, queries) in LENGTHS.items():
        if model.latent or "chunk" not in name:
            phases.append((name.split()[0], Requests((0, 1, 2), contexts, tuple((1,) * n for n in queries))))
    return phases


@pytest.mark.parametrize("case", [name for name in CASES if not no_meta(name)])
def test_every_call_is_taken_and_is_the_programs(case: str) -> None:
    model, switches = CASES[case]
    # Latent rows are read back by a call without a meta kernel: those steps run on the CPU kernels.
    result = {device: session(On(device), model, switches) for device in ("meta", "cpu")}
    for one in result.values():
        for number in range(3):
            one.cache.allocator.allocate(number, 44)
    for phase, requests in steps_of(model):
        program = result["meta"].bound(batch_of(phase, requests)).program
        device = "cpu" if any(issued.op.kind == "cache_read" for issued in program) else "meta"
        result[device].bound(batch_of(phase, requests))  # the rehearsal makes calls too
        with Calls() as calls, enforced():
            step = result[device].run(phase, requests)
        assert calls.names == calls_of(program), phase
        assert step.values["next_ids"].shape == (3,)


@pytest.mark.parametrize("case", CASES)
def test_adapters_compute_what_the_plain_operators_do(case: str) -> None:
    model, switches = CASES[case]
    truth = run(session(On("cpu"), model, switches, plain=True), steps=2)
    done = run(session(On("cpu"), model, switches), forced=truth, steps=2)
    rows = (done.logits - truth.logits).norm(dim=-1) / truth.logits.norm(dim=-1)
    # A near choice that falls on another expert changes a row for good: with experts the middle row is looked at.
    error = (rows.median() if model.experts else rows.max()).item()
    rough = any(word in case for word in ("int8", "w8a8", "w4a8", "qkv, norms"))
    assert error < (0.03 if rough else 0.015), f"relative error {error:.4f}"


@pytest.mark.parametrize("case", ["small-deepseek, latent write", "small-lite, experts, all fused"])
def test_chunks_behind_cached_rows_and_mixed_steps_compute_the_same(case: str) -> None:
    """Latent rows that are read back and unpacked, next to requests that decode."""
    model, switches = CASES[case]
    result = []
    for plain in (True, False):
        outcome = session(On("cpu"), model, switches, plain=plain)
        for number in range(3):
            outcome.cache.allocator.allocate(number, 44)
        prompts = small_prompts(model.vocab, (20, 20, 20))
        outcome.run("prefill", Requests((0, 1, 2), (0, 0, 0), tuple(tuple(p) for p in prompts)))
        chunk = Requests(
            (0, 1, 2), (20, 20, 20), tuple(tuple(p[:n]) for p, n in zip(prompts, (20, 17, 18), strict=True))
        )
        mixed = Requests((0, 1, 2), (40, 20, 38), ((5,), tuple(prompts[1][:18]), (7,)))
        result.append([outcome.run(phase, r).values["logits32"] for phase, r in (("prefill", chunk), ("mixed", mixed))])
    for truth, mine in zip(*result, strict=True):
        rows = (mine - truth).norm(dim=-1) / truth.norm(dim=-1)
        assert rows.median() < 0.015


def test_all_adapters_have_been_called() -> None:
    """A kind of the table that no variant asks for would be untested."""
    kinds: set[str] = set()
    for model, switches in CASES.values():
        changed = scenario(model, switches)
        for phase, requests in steps_of(model):
            program = build(changed, shard(model, 1), batch_of(phase, requests))
            kinds |= {op.kind for block in program.blocks for op in block.ops}
    assert set(KERNELS) - kinds == {"matmul_all_reduce", "moe_dispatch", "moe_combine"}  # these need ranks: tiers 2, 3
    reached = {*CALL_OF.values(), "npu_scatter_pa_kv_cache", "npu_scatter_nd_update_", "npu_mm_all_reduce_base"}
    reached |= {"npu_moe_distribute_dispatch_v2", "npu_moe_distribute_combine_v2"}
    by_other_ways = {V1, V2, "npu_moe_gating_top_k", "npu_moe_gating_top_k_softmax", "_npu_reshape_and_cache"}
    assert set(RULES) - reached == by_other_ways


REFUSED = {
    "blocks of 16": ({**FUSED, **PAGED, "kv.block_size": 16}, QWEN3, "prefill", r"kv|attention: .*blocks of 16 tokens"),
    "w4a8 of narrow rows": (
        {**FUSED, **PAGED, "weights": "w4a8"}, QWEN3, "decode", "weights: npu_quant_matmul: rows of 64 beside INT4"),
    "heads over blocks in NZ": (
        {**INT8, "fusion.qkv_norm_rope_cache": True}, QWEN3, "decode",
        "fusion.attention: .*4 query and 2 key heads over NZ blocks; taken are 10 and 1"),
    "w4a8 experts": ({**ROUTED, "weights": "w4a8"}, DEEPEST, "decode", "weights: npu_grouped_matmul .* INT4"),
    "contiguous latent rows": (
        {**ROUTED, "kv.layout": "contiguous"}, DEEPSEEK, "decode", "fusion.attention: latent rows .* block table"),
    "latent rows in blocks of 64": (
        {**ROUTED, "kv.block_size": 64}, DEEPSEEK, "decode", "fusion.attention: .*blocks of 64 tokens; .* 16 and 128"),
    "groups of a softmax": (
        ROUTED, replace(LITE, experts=replace(LITE.experts, count=12, held=12, groups=4, kept_groups=2)), "decode",
        "fusion.moe_routing: npu_moe_gating_top_k_softmax knows no groups"),
    "experts one by one in a captured step": (
        {**FUSED, **PAGED, "graph": "aclgraph"}, GLM, "decode",
        "fusion.grouped_matmul: experts one by one .* set it to true, or graph to eager"),
    "experts one by one of packed weights": (
        {**FUSED, **PAGED, "weights": "w4a16"}, GLM, "decode", "fusion.grouped_matmul: .*INT4.*w8a8"),
    "a sigmoid that is not divided": (
        ROUTED, replace(DEEPSEEK, experts=replace(DEEPSEEK.experts, normalised=False)), "decode",
        "fusion.moe_routing: npu_moe_gating_top_k divides"),
    "groups of two experts": (
        ROUTED, replace(DEEPSEEK, experts=replace(DEEPSEEK.experts, count=8, held=8)), "decode",
        "fusion.moe_routing: .*groups of 2 experts; more than 2"),
    "a narrow latent row": (
        {**ROUTED, "fusion.qkv_norm_rope_cache": True}, replace(DEEPSEEK, latent=replace(DEEPSEEK.latent, kv_rank=256)),
        "decode", "fusion.qkv_norm_rope_cache: .*a latent row of 320 elements; it takes 576"),
    "streams in a compiled graph": (
        {**FUSED, **PAGED, "graph": "npugraph_ex", "overlap.streams": 2}, QWEN3, "decode",
        "overlap.streams: npugraph_ex issues"),
    "the shared expert beside in a compiled graph": (
        {**ROUTED, "graph": "ge_graph", "overlap.shared_expert_stream": True}, GLM, "decode",
        "overlap.shared_expert_stream: ge_graph issues"),
    "captured unfused attention": (
        {"graph": "aclgraph"}, QWEN3, "decode", "graph: a captured step cannot hold unfused attention"),
    "contiguous cache in a compiled graph": (
        {**FUSED, "graph": "npugraph_ex"},
        QWEN3,
        "decode",
        "kv.layout: npugraph_ex would copy a contiguous cache",
    ),
    "prefetch in a compiled graph": (
        {**FUSED, **PAGED, "graph": "npugraph_ex", "overlap.prefetch": True}, QWEN3, "decode",
        "overlap.prefetch: npugraph_ex issues"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_call_does_not_take_is_refused_by_its_switch_in_one_line(case: str) -> None:
    switches, model, phase, wanted = REFUSED[case]
    tokens = (1,) if phase == "decode" else (1,) * 3
    with pytest.raises(ScenarioError, match=f"--backend npu: optimizations.{wanted}") as caught:
        session(On("meta"), model, switches).bound(batch_of(phase, Requests((0,), (0,), (tokens,))))
    assert all("\n" not in line for line in caught.value.messages)


def test_a_head_dimension_that_rope_does_not_take_is_refused() -> None:
    small = replace(LLAMA, head_dim=32)
    with pytest.raises(ScenarioError, match=r"fusion.rope: npu_apply_rotary_pos_emb: .*head dimension 32"):
        session(On("meta"), small, {"fusion.rope": True}).bound(batch_of("decode", Requests((0,), (0,), ((1,),))))


def test_an_old_wheel_is_told_which_one_has_the_call() -> None:
    switches = {**INT8, "fusion.qkv_norm_rope_cache": True}
    backend = On("meta", version="2.8.0.post2")
    with pytest.raises(ScenarioError, match=r"torch_npu 2.8.0.post2 has no npu_qkv_rms_norm_rope_cache, 2.8.0.post4"):
        session(backend, QWEN3, switches).bound(batch_of("decode", Requests((0,), (0,), ((1,),))))


#: What a wheel refuses for a call that stands for nothing else: (version, model, switches, the line).
OLD = {
    "latent attention captured by 2.8.0": (
        "2.8.0",
        DEEPSEEK,
        {**ROUTED, "graph": "aclgraph"},
        "graph: .*captured .*, 2.8.0.post2 .*set it to eager",
    ),
    "npugraph_ex on 2.8.0": (
        "2.8.0",
        QWEN3,
        {**FUSED, **PAGED, "graph": "npugraph_ex"},
        "graph: torch_npu 2.8.0 has no npugraph_ex, 2.8.0.post2 .*set it to aclgraph",
    ),
}


@pytest.mark.parametrize("case", OLD)
def test_what_nothing_stands_for_is_refused_with_the_wheel_that_has_it(case: str) -> None:
    version, model, switches, wanted = OLD[case]
    with pytest.raises(ScenarioError, match=f"--backend npu: optimizations.{wanted}"):
        session(On("meta", version), model, switches).bound(batch_of("decode", Requests((0,), (0,), ((1,),))))


#: Wheels of each kind, and ATB next to them or not.
STACKS = (("2.8.0", False), ("2.8.0", True), ("2.9.0", False), ("2.9.0", True))


@pytest.mark.parametrize(("version", "atb"), STACKS)
@pytest.mark.parametrize(
    "case", ["small-qwen3, all fused, paged", "small-llama, int8 channel", "small-deepseek, experts, all fused"]
)
def test_what_stands_for_a_lacking_call_computes_the_same(case: str, version: str, atb: bool) -> None:
    model, switches = CASES[case]
    truth = run(session(On("cpu"), model, switches), steps=2)
    old = session(On("cpu", version, atb), model, switches)
    with Calls() as calls, enforced():
        done = run(old, forced=truth, steps=2)
    assert ("_npu_reshape_and_cache" in calls.names) == atb
    assert not {"npu_scatter_pa_kv_cache", "npu_gather_pa_kv_cache"} & set(calls.names)
    if not model.latent:  # 2.8.0 hands no new lengths to a captured v2; latent attention has no other call
        assert (V2 in calls.names) == (version == "2.9.0")
    rows = (done.logits - truth.logits).norm(dim=-1) / truth.logits.norm(dim=-1)
    assert (rows.median() if model.experts else rows.max()).item() < 0.015


def test_without_a_device_the_backend_says_so_in_one_line() -> None:
    with pytest.raises(ScenarioError, match="no NPU is there; see npu-smi info") as caught:
        Npu()
    assert len(caught.value.messages) == 1
    assert not torch.npu.is_available()


def test_a_rank_without_a_device_of_its_own_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.npu, "is_available", lambda: True)
    monkeypatch.setattr(torch.npu, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ScenarioError, match="rank 1 has no device of its own, there are 1; take fewer ranks"):
        Npu()
