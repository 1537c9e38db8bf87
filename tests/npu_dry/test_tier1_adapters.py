"""Every adapter: the whole Program by the real calls, on tensors without memory and on CPU kernels.

On `meta` the wheel's own meta kernels answer, and each call is held against the rules of device/operators/npu. On `cpu`
the kernels of references.py compute what the documentation says of the arguments that the adapter passes: tokens and
logits are those of the plain reference operators.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from device.backends.npu import Npu
from device.host_inputs import Requests
from device.operators.npu.call import enforced
from device.operators.npu.kernels import KERNELS
from device.operators.npu.rules import RULES
from device.session import batch_of
from scenarios.errors import ScenarioError
from scenarios.model import Model
from scenarios.program import Program
from tests.npu_dry.making import FUSED, LLAMA, MODELS, PAGED, QWEN3, VARIANTS, On, run, session

#: Calls that lay weights out anew have no meta kernel: what they are for runs on the CPU kernels alone.
NO_META = ("w4a16", "nz", "w8a8 nz")


class Calls(TorchDispatchMode):
    """The torch_npu calls that are made inside, by name, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "npu":
            self.names.append(func._opname)
        return func(*args, **(kwargs or {}))


#: The call of each kind; a kind with two of them is told by the rest of the op.
CALL_OF = {
    "rms_norm": "npu_rms_norm", "add_rms_norm": "npu_add_rms_norm", "rope": "npu_apply_rotary_pos_emb",
    "swiglu": "npu_swiglu", "add_rms_norm_dynamic_quant": "npu_add_rms_norm_dynamic_quant",
    "dynamic_quant": "npu_dynamic_quant", "static_quant": "npu_quantize", "quant_matmul": "npu_quant_matmul",
    "weight_quant_matmul": "npu_weight_quant_batchmatmul", "prefetch": "npu_prefetch",
}  # fmt: skip


def calls_of(program: Program) -> list[str]:
    """The torch_npu calls that a Program asks for, in order."""
    found = []
    for issued in program:
        op = issued.op
        if op.kind == "kv_cache_write":
            both = sum(t.role == "activation" for t in op.inputs) == 2
            found.append("npu_scatter_pa_kv_cache" if both else "npu_scatter_nd_update_")
        elif op.kind == "attention":
            tnd = op.attr("block_size") and op.attr("head_dim") == 128 and op.inputs[1].dtype != "int8"
            found.append(f"npu_fused_infer_attention_score{'_v2' if tnd else ''}")
        elif op.kind in CALL_OF:
            found.append(CALL_OF[op.kind])
    return found


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v not in NO_META])
def test_every_call_is_taken_and_is_the_programs(variant: str, model: Model) -> None:
    made = session(On("meta"), model, VARIANTS[variant])
    steps = {
        "prefill": Requests((0, 1, 2), (0, 0, 0), ((1,) * 40, (1,) * 40, (1,) * 33)),
        "mixed": Requests((0, 1, 2), (40, 40, 33), ((1,), (1,) * 3, (1,))),
        "decode": Requests((0, 1, 2), (41, 43, 34), ((1,), (1,), (1,))),
    }
    for number in range(3):
        made.cache.allocator.allocate(number, 44)
    for phase, requests in steps.items():
        program = made.bound(batch_of(phase, requests)).program
        with Calls() as calls, enforced():
            step = made.run(phase, requests)
        assert calls.names == calls_of(program)
        assert step.values["next_ids"].shape == (3,)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_adapters_compute_what_the_plain_operators_do(variant: str, model: Model) -> None:
    switches = VARIANTS[variant]
    truth = run(session(On("cpu"), model, switches, plain=True), steps=2)
    found = run(session(On("cpu"), model, switches), forced=truth, steps=2)
    error = ((found.logits - truth.logits).norm() / truth.logits.norm()).item()
    assert error < (0.03 if "int8" in variant or "w8a8" in variant else 0.015), f"relative error {error:.4f}"


def test_all_adapters_have_been_called() -> None:
    """A kind of the table that no variant asks for would be untested."""
    kinds: set[str] = set()
    for variant in VARIANTS.values():
        made = session(On("cpu"), QWEN3, variant)
        requests = Requests((0, 1, 2), (0, 0, 0), ((1,), (1,), (1,)))
        kinds |= {issued.op.kind for issued in made.bound(batch_of("decode", requests)).program}
    assert set(KERNELS) - kinds == {"matmul_all_reduce"}  # needs ranks: tier 2
    reached = {*CALL_OF.values(), "npu_scatter_pa_kv_cache", "npu_scatter_nd_update_", "npu_mm_all_reduce_base"}
    assert set(RULES) - reached == {"npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2"}


REFUSED = {
    "blocks of 16": ({**FUSED, **PAGED, "kv.block_size": 16}, QWEN3, "prefill", r"kv|attention: .*blocks of 16 tokens"),
    "w4a8": ({**FUSED, **PAGED, "weights": "w4a8"}, QWEN3, "decode", "weights: npu_quant_matmul .* INT4"),
    "qkv_norm_rope_cache": (
        {**FUSED, **PAGED, "fusion.qkv_norm_rope_cache": True}, QWEN3, "decode", "fusion.qkv_norm_rope_cache: .*NZ"),
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
    from dataclasses import replace

    small = replace(LLAMA, head_dim=32)
    with pytest.raises(ScenarioError, match=r"fusion.rope: npu_apply_rotary_pos_emb: .*head dimension 32"):
        session(On("meta"), small, {"fusion.rope": True}).bound(
            batch_of("decode", Requests((0,), (0,), ((1,),)))
        )  # fmt: skip


def test_an_old_wheel_is_told_which_one_has_the_call() -> None:
    switches = {**FUSED, **PAGED, "fusion.qkv_norm_rope_cache": True}
    backend = On("meta", version="2.8.0.post2")
    with pytest.raises(ScenarioError, match=r"torch_npu 2.8.0.post2 has no npu_qkv_rms_norm_rope_cache, 2.8.0.post4"):
        session(backend, QWEN3, switches).bound(batch_of("decode", Requests((0,), (0,), ((1,),))))


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
