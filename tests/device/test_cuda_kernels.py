"""What the CUDA backend computes, on a CPU: each composition against the plain operators. Not a word about a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from device.operators import cuda
from device.operators.reference import REFERENCE
from scenarios.build import build
from scenarios.models.model import Model
from scenarios.ops.catalogue import CATALOGUE
from scenarios.ops.program import Batch, Group
from tests.device import gpu
from tests.device.making import ALL_FUSED, DEEPSEEK, FAMILIES, GLM, LITE, QWEN3, QWEN3_MOE, plain

MODELS = {**FAMILIES, "qwen3_moe": QWEN3_MOE, "glm": GLM, "deepseek": DEEPSEEK, "lite": LITE}
ALIKE = ("qwen2", "llama", "lite")
PAGED = {"kv__layout": "paged", "kv__block_size": 16}
INT8 = {"kv__dtype": "int8", "fusion__attention": True}
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    "fused": ALL_FUSED,
    "paged": {**ALL_FUSED, **PAGED},
    "unfused attention": {**PAGED, "fusion__rms_norm": True},
    "int8 channel": {**ALL_FUSED, **INT8},
    "int8 token": {**ALL_FUSED, **PAGED, **INT8, "kv__scale": "token"},
    "int8 head": {**ALL_FUSED, **PAGED, **INT8, "kv__scale": "head"},
    "w8a16": {**ALL_FUSED, "weights": "w8a16"},
    "w4a16": {**ALL_FUSED, "weights": "w4a16"},
    "qkv_norm_rope_cache": {**ALL_FUSED, **PAGED, "fusion__qkv_norm_rope_cache": True},
}
#: What a scenario cannot have: latent attention in INT8, no norm of Q and K.
ONLY = {
    "qkv_norm_rope_cache": ("qwen3",),
    **dict.fromkeys(("int8 channel", "int8 token", "int8 head"), (*FAMILIES, "glm")),
}


def cases() -> list[tuple[str, str]]:
    return [(v, m) for v in VARIANTS for m in MODELS if m in ONLY.get(v, MODELS) and m != "glm"] + [("fused", "glm")]


def alternating(all_cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Cases as parameters: of the dense families that differ in little but norms and biases, and of the second latent
    one, all but the fused form are left to `-m study`."""
    studied = {False: (), True: (pytest.mark.study,)}
    return [pytest.param(*case, marks=studied[case[1] in ALIKE and case[0] != "fused"]) for case in all_cases]


def scenario(variant: str, model: Model) -> Any:
    result = dict(VARIANTS[variant])
    if model.experts:  # the plain variant runs them one by one
        result |= {"fusion__moe_routing": variant != "plain", "fusion__grouped_matmul": variant != "plain"}
    if model.latent:
        result = {k: v for k, v in result.items() if k not in ("fusion__qkv", "fusion__rope")}
    if model.dtype == "fp16":
        result.setdefault("weights", "fp16")
    return plain(model, **result)


@pytest.mark.parametrize(("variant", "name"), alternating(cases()))
def test_each_composition_computes_what_the_plain_operators_compute(
    variant: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.not_compiled(monkeypatch)
    model = MODELS[name]
    changed = scenario(variant, model)
    reference_run = gpu.run(gpu.On("cpu"), changed, model, plain=True, steps=1)
    done = gpu.run(gpu.On("cpu"), changed, model, steps=1, forced=reference_run)
    # An INT8 value may fall on the other side of a half: one step of its scale.
    most = 1e-3 if changed.optimizations.kv.dtype == "int8" else 1e-5
    assert ((done.logits - reference_run.logits).norm() / reference_run.logits.norm()).item() < most
    assert done.tokens == reference_run.tokens


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "lite"])
def test_sixteen_bits_cost_their_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash takes 16 bits only and the grouped product bf16 only, so these are other calls than float32 makes."""
    gpu.not_compiled(monkeypatch)
    model = MODELS[name]
    changed = scenario("fused", model)
    reference_run = gpu.run(gpu.On("cpu"), changed, model, plain=True, steps=1)
    done = gpu.run(gpu.On("cpu"), changed, model, wide=False, steps=1, forced=reference_run)
    assert 0 < ((done.logits - reference_run.logits).norm() / reference_run.logits.norm()).item() < 0.02


def test_w8a8_multiplies_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.not_compiled(monkeypatch)
    changed = plain(QWEN3, **ALL_FUSED, weights="w8a8")
    batch = Batch("prefill", (Group(3, 40, 0),))
    assert gpu.On("cpu").lacks(build(changed, QWEN3, batch), QWEN3) == []
    reference_run = gpu.run(gpu.On("cpu"), changed, QWEN3, plain=True, steps=0)
    done = gpu.run(gpu.On("cpu"), changed, QWEN3, steps=0, forced=reference_run)
    assert ((done.logits - reference_run.logits).norm() / reference_run.logits.norm()).item() < 1e-3


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_heads_of_keys_are_copied_where_flash_does_not_serve_them(masked: bool, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 3, 16, generator=random).to(dtype)
    k, v = (torch.randn(2, 2, 5, 16, generator=random).to(dtype) for _ in range(2))
    mask = torch.ones(2, 1, 3, 5, dtype=torch.bool).tril(2) if masked else None
    with gpu.Recorder() as calls:
        y = cuda.attended(q, k, v, mask, False, None)
    wide_k, wide_v = (x.float().repeat_interleave(2, 1) for x in (k, v))
    scores = q.float() @ wide_k.transpose(-1, -2) / 4
    scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
    assert (y.float() - torch.softmax(scores, -1) @ wide_v).abs().max() < (0.03 if dtype == torch.bfloat16 else 1e-5)
    flash = dtype == torch.bfloat16 and not masked
    assert cuda.takes_flash(q, v, masked) == flash
    assert any("repeat_interleave" in n or "clone" in n for n in calls.names) != flash


def test_the_math_form_of_attention_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, bool] = {}
    for name in ("flash", "mem_efficient", "cudnn", "math"):
        monkeypatch.setattr(
            torch.backends.cuda, f"enable_{name}_sdp", lambda enabled, name=name: said.update({name: enabled})
        )
    cuda.only_fused_attention()
    assert said == {"flash": True, "mem_efficient": True, "cudnn": False, "math": False}


def test_forms_say_what_a_kernel_is() -> None:
    backend = gpu.On("cpu")

    def forms(result: Any, model: Model, batch: Batch) -> dict[str, str]:
        return {op.kind: backend.kernel(op).form for block in build(result, model, batch).blocks for op in block.ops}

    alike, ragged = Batch("decode", (Group(3, 1, 40),)), Batch("decode", (Group(2, 1, 40), Group(1, 1, 33)))
    fused = forms(plain(QWEN3, **ALL_FUSED), QWEN3, alike)
    assert (fused["attention"], fused["rms_norm"], fused["swiglu"], fused["matmul"]) == (
        "fused",
        "fused",
        "compiled",
        "torch",
    )
    assert forms(plain(QWEN3, **ALL_FUSED), QWEN3, ragged)["attention"] == "composed"  # heads are copied for the mask
    assert forms(plain(QWEN3, **ALL_FUSED, **PAGED), QWEN3, alike)["attention"] == "composed"  # blocks are gathered
    assert forms(plain(FAMILIES["llama"], **ALL_FUSED), FAMILIES["llama"], ragged)["attention"] == "fused"
    experts = scenario("fused", QWEN3_MOE)
    assert forms(experts, QWEN3_MOE, alike)["grouped_matmul"] == "fused"
    w8a16 = {"fusion__moe_routing": True, "fusion__grouped_matmul": True, "weights": "w8a16"}
    assert forms(plain(QWEN3_MOE, **w8a16), QWEN3_MOE, alike)["grouped_matmul"] == "composed"


def test_every_kind_has_a_kernel_or_is_refused_by_name() -> None:
    """What a Program may ask for and no scenario of these models does is found by name too."""
    assert set(CATALOGUE) - set(REFERENCE) == {"fused_elementwise", "split_qkv_norm_rope"}  # walked part by part
    assert not any(CATALOGUE[name].torch_kernel == "none" for name in cuda.KERNELS)


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "prefetch": ({**ALL_FUSED, "overlap__prefetch": True}, "overlap.prefetch: torch brings no weight"),
    "nz": ({"weight_format": "nz"}, "weight_format: FRACTAL_NZ is the layout of Ascend's cube"),
    "npugraph_ex": ({**ALL_FUSED, "graph": "npugraph_ex"}, "graph: npugraph_ex is a compiler of torch_npu; take aclgr"),
    "ffn": ({**ALL_FUSED, "weights": "fp16", "fusion__ffn": True}, "fusion.ffn: torch has no ffn kernel for a GPU"),
    "few rows": ({"weights": "w8a8"}, "weights: torch._int_mm multiplies more than 16 rows on a GPU, q_proj has 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_gpu_lacks_is_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    switches, line = REFUSED[name]
    monkeypatch.setattr("device.backends.cuda.triton", lambda: True)
    program = build(plain(QWEN3, **switches), QWEN3, Batch("decode", (Group(3, 1, 40),)))
    (result,) = gpu.On("cpu").lacks(program, QWEN3)
    assert result.startswith(f"optimizations.{line}")


def test_shapes_that_the_int8_product_does_not_take_are_refused() -> None:
    odd = replace(QWEN3, intermediate=100)
    program = build(plain(odd, weights="w8a8"), odd, Batch("prefill", (Group(3, 40, 0),)))
    (result,) = gpu.On("cpu").lacks(program, odd)
    assert "torch._int_mm wants multiples of 8 on a GPU, gate_proj is 64 x 100; take bf16 or w8a16" in result
    together = plain(QWEN3_MOE, weights="w8a8", fusion__moe_routing=True, fusion__grouped_matmul=True)
    moe = build(together, QWEN3_MOE, Batch("prefill", (Group(3, 40, 0),)))
    (result,) = gpu.On("cpu").lacks(moe, QWEN3_MOE)
    assert "only the router knows" in result
    apart = build(plain(QWEN3_MOE, weights="w8a8"), QWEN3_MOE, Batch("prefill", (Group(30, 40, 0),)))
    (result,) = gpu.On("cpu").lacks(apart, QWEN3_MOE)
    assert "only the router knows" in result


def test_without_triton_what_it_would_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device.backends.cuda.triton", lambda: False)
    program = build(plain(QWEN3, **ALL_FUSED, graph="ge_graph"), QWEN3, Batch("decode", (Group(3, 1, 40),)))
    lacks = gpu.On("cpu").lacks(program, QWEN3)
    assert sorted(line.split(":")[0].removeprefix("optimizations.") for line in lacks) == [
        "fusion.add_rms_norm",
        "fusion.rope",
        "fusion.swiglu",
        "graph",
    ]
    assert all("Triton" in line for line in lacks)


def test_a_head_that_no_fused_kernel_reads_is_refused() -> None:
    odd = replace(QWEN3, head_dim=12, rotary_dim=12)
    program = build(plain(odd, fusion__attention=True), odd, Batch("decode", (Group(3, 1, 40),)))
    (result,) = gpu.On("cpu").lacks(program, odd)
    assert "heads of multiples of 8, these are 12 wide" in result
