"""Small models and scenarios for the NPU backend, and the backend on a device that is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from device.backends.npu import Npu
from device.measure.numerics import Run, generate, small_prompts
from device.operators.npu.weights import LaidOut
from device.operators.reference import reference
from device.run.session import Options, Session
from device.weights.weights import RandomCheckpoint
from scenarios.models.forms import AttentionForm
from scenarios.models.model import Experts, Latent, Model
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off
from scenarios.schema import Scenario

#: Small, but with head dimensions that the fused calls take: 128 goes to attention in TND, 64 to BSND.
QWEN3 = Model(
    name="small-qwen3", model_type="qwen3", hidden=64, intermediate=96, layers=2, heads=4, kv_heads=2, head_dim=128,
    vocab=320, max_position=512, norm_eps=1e-6, rope_theta=10_000.0, tied_embeddings=True, qk_norm=True,
    qkv_bias=False, dtype="bf16",
)  # fmt: skip
QWEN2 = replace(QWEN3, name="small-qwen2", model_type="qwen2", qk_norm=False, qkv_bias=True, head_dim=64)
LLAMA = replace(
    QWEN3, name="small-llama", model_type="llama", qk_norm=False, tied_embeddings=False, kv_heads=4, dtype="fp16"
)
MODELS = {model.name: model for model in (QWEN3, QWEN2, LLAMA)}
#: Eight experts, two of them a token's, behind one dense layer; latent rows of the sizes that the calls are made for.
QWEN3_MOE = replace(
    QWEN3,
    name="small-qwen3-moe",
    model_type="qwen3_moe",
    tied_embeddings=False,
    experts=Experts(8, 8, 2, 32, 0, 1, "softmax", scaled=False),
)
GLM = replace(
    QWEN3_MOE,
    name="small-glm",
    model_type="glm4_moe",
    qk_norm=False,
    qkv_bias=True,
    rotary_dim=64,
    experts=Experts(8, 8, 2, 32, 32, 1, "sigmoid", scaled=False),
)
DEEPSEEK = replace(
    QWEN3_MOE,
    name="small-deepseek",
    model_type="deepseek_v3",
    qk_norm=False,
    kv_heads=1,
    head_dim=64,
    latent=Latent(q_rank=24, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128),
    experts=Experts(12, 12, 2, 32, 48, 1, "sigmoid", scaled=True, factor=2.5, groups=4, kept_groups=2),
)
LITE = replace(
    DEEPSEEK,
    name="small-lite",
    model_type="deepseek_v2",
    latent=Latent(0, 512, 128, 64, 128),
    experts=Experts(8, 8, 2, 32, 48, 1, "softmax", scaled=False, normalised=False),
)
DEEPEST = replace(QWEN3_MOE, hidden=256, intermediate=256, heads=2, kv_heads=1)
#: npu_dequant_swiglu_quant takes groups of multiples of 64 columns.
WIDE_GATE = replace(QWEN3_MOE, name="small-moe-64", experts=Experts(8, 8, 2, 64, 0, 1, "softmax", scaled=False))
WITH_EXPERTS = {model.name: model for model in (QWEN3_MOE, GLM, DEEPSEEK, LITE)}
#: Query and key heads that INT8 blocks in FRACTAL_NZ are read for.
WIDE = replace(QWEN3, name="small-qwen3-10-1", heads=10, kv_heads=1)
#: Inputs of INT4 weights next to INT8 rows come in 256, as in DEEPEST.
DEEP = replace(QWEN3, name="small-qwen3-256", hidden=256, intermediate=256, heads=2, kv_heads=1)

FUSED = {
    f"fusion.{name}": True for name in ("rms_norm", "add_rms_norm", "rope", "swiglu", "attention", "qkv", "gate_up")
}
PAGED: dict[str, object] = {"kv.layout": "paged", "kv.block_size": 128}
INT8: dict[str, object] = {**FUSED, **PAGED, "kv.dtype": "int8"}
#: What the tests run, each alone on top of the plain Program or of all fusions.
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    **{switch: {switch: True} for switch in FUSED},
    "paged unfused": PAGED,
    "all fused": FUSED,
    "all fused, paged": {**FUSED, **PAGED},
    "int8 channel": INT8,
    "int8 token": {**INT8, "kv.scale": "token"},
    "int8 head": {**INT8, "kv.scale": "head"},
    "int8 contiguous": {**INT8, "kv.layout": "contiguous"},
    "int8 token contiguous": {**INT8, "kv.layout": "contiguous", "kv.scale": "token"},
    "int8 head contiguous": {**INT8, "kv.layout": "contiguous", "kv.scale": "head"},
    "w8a8": {**FUSED, **PAGED, "weights": "w8a8"},
    "w8a8, norm and quantise": {**FUSED, **PAGED, "weights": "w8a8", "fusion.add_rms_norm_quant": True},
    "w8a8, gate and quantise": {**FUSED, **PAGED, "weights": "w8a8", "fusion.swiglu_quant": True},
    "w8a16": {**FUSED, **PAGED, "weights": "w8a16"},
    "w4a16": {**FUSED, **PAGED, "weights": "w4a16"},
    "nz": {**FUSED, **PAGED, "weight_format": "nz"},
    "w8a8 nz": {**FUSED, **PAGED, "weights": "w8a8", "weight_format": "nz"},
    "prefetch": {**FUSED, **PAGED, "overlap.prefetch": True},
    "keys beside": {**FUSED, **PAGED, "overlap.streams": 2},
}
#: Of models with norms of queries and keys.
NORMED_VARIANTS: dict[str, dict[str, object]] = {
    "norms, rope and write": {**FUSED, **PAGED, "fusion.qkv_norm_rope_cache": True},
}
EXPERTS: dict[str, object] = {**FUSED, **PAGED, "fusion.grouped_matmul": True}
ROUTED: dict[str, object] = {**EXPERTS, "fusion.moe_routing": True}
#: What models with experts are run in.
EXPERT_VARIANTS: dict[str, dict[str, object]] = {
    "grouped": {"fusion.grouped_matmul": True, **PAGED, "fusion.attention": True},
    "experts, all fused": ROUTED,
    "experts w8a8": {**ROUTED, "weights": "w8a8"},
    "experts w8a16": {**ROUTED, "weights": "w8a16"},
    "experts w4a16": {**ROUTED, "weights": "w4a16"},
    "experts nz": {**ROUTED, "weight_format": "nz"},
    "experts one by one": {**FUSED, **PAGED},
    "experts one by one w8a8": {**FUSED, **PAGED, "weights": "w8a8"},
    "shared beside": {**ROUTED, "overlap.shared_expert_stream": True},
}
LATENT_VARIANTS: dict[str, dict[str, object]] = {
    "latent write": {**ROUTED, "fusion.qkv_norm_rope_cache": True},
    "latent blocks of 16": {**ROUTED, "kv.block_size": 16},
}
#: A window in each layer, of both versions of the call; learned sinks next to one; a scale of the scores of its own.
WINDOW = replace(QWEN3, name="small-window", model_type="mistral", qk_norm=False, attention=AttentionForm(window=12))
WINDOW_64 = replace(WINDOW, name="small-window-64", head_dim=64)
SINKS = replace(WINDOW_64, name="small-sinks", model_type="gpt_oss", attention=AttentionForm(window=12, sinks=True))
ALL_SINKS = replace(SINKS, head_dim=128, attention=AttentionForm(sinks=True, scale=0.2))
#: Cases of their own: (model, switches).
SPECIAL: dict[str, tuple[Model, dict[str, object]]] = {
    "experts w8a8, gate and quantise": (WIDE_GATE, {**ROUTED, "weights": "w8a8", "fusion.swiglu_quant": True}),
    "windows": (WINDOW, {**FUSED, **PAGED}),
    "windows contiguous": (WINDOW, FUSED),
    "windows of narrow heads": (WINDOW_64, {**FUSED, **PAGED}),
    "windows and sinks": (SINKS, {**FUSED, **PAGED}),
    "sinks and a scale": (ALL_SINKS, {**FUSED, **PAGED}),
    "ffn": (LLAMA, {**FUSED, **PAGED, "fusion.ffn": True}),
    "qkv, norms, rope and cache": (WIDE, {**INT8, "fusion.qkv_norm_rope_cache": True}),
    "w4a8": (DEEP, {**FUSED, **PAGED, "weights": "w4a8"}),
}


def variants_of(model: Model) -> dict[str, dict[str, object]]:
    """What a model is run in, by name."""
    if not model.experts:
        return {**VARIANTS, **NORMED_VARIANTS} if model.qk_norm else VARIANTS
    result = {name: v for name, v in EXPERT_VARIANTS.items() if model.experts.shared or name != "shared beside"}
    return {**result, **LATENT_VARIANTS} if model.latent else result


#: (model, switches) by name: every family in its variants, and the special cases.
CASES: dict[str, tuple[Model, dict[str, object]]] = {
    **{
        f"{model.name}, {name}": (model, switches)
        for model in (*MODELS.values(), *WITH_EXPERTS.values())
        for name, switches in variants_of(model).items()
    },
    **SPECIAL,
}
LENGTHS, STEPS = (40, 40, 33), 4


class On(Npu):
    """The NPU backend on the device `meta` or `cpu`, where the calls have other kernels, and of one stream."""

    streams = 1
    chip = "Ascend910_9391"

    def __init__(self, device: str, version: str = "2.13.0", atb: bool = False) -> None:
        self.device = torch.device(device)
        self._version, self._atb, self._laid_out = version, atb, LaidOut()

    @property
    def version(self) -> str:
        return self._version

    @property
    def atb(self) -> bool:
        return self._atb

    def describe(self) -> dict[str, str | int]:
        return {"backend": "npu adapters without an NPU"}

    def free_bytes(self) -> int:
        return 1 << 40

    def synchronize(self) -> None:
        """Nothing runs on."""

    def units(self, graph: str, calls: Any, captures: Any) -> Any:
        return calls


class Older(Npu):
    """The NPU backend on the device that is there, as if an older torch_npu without ATB drove it."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self._version = version

    @property
    def version(self) -> str:
        return self._version

    @property
    def atb(self) -> bool:
        return False


def of_case(case: str) -> tuple[Npu, Model, dict[str, object]]:
    """(backend, model, switches) of a name of CASES, or of one with a version: `small-qwen3, all fused on 2.8.0`."""
    name, _, version = case.partition(" on ")
    return Older(version) if version else Npu(), *CASES[name]


def scenario(model: Model, switches: dict[str, object], batch: int = len(LENGTHS), ranks: int = 1) -> Scenario:
    """Every optimisation off but `switches`."""
    sizes = {"batch": batch, "input_tokens": max(LENGTHS), "output_tokens": STEPS + 1}
    result = Scenario.model_validate({"workload": sizes, "engine": {"tensor_parallel_size": ranks}})
    result = set_switch(all_off(result, model), "weights", model.dtype)
    for switch, value in switches.items():
        result = set_switch(result, switch, value)
    return result


def session(
    backend: Npu, model: Model, switches: dict[str, object], plain: bool = False, batch: int = len(LENGTHS)
) -> Session:
    """plain: by the reference operators instead of the backend's calls."""
    options = Options(choice=reference) if plain else None
    return Session(scenario(model, switches, batch), model, backend, RandomCheckpoint(model, 0), options=options)


def run(session: Session, forced: Run | None = None, steps: int = STEPS) -> Run:
    """Prefill and `steps` greedy decode steps."""
    return generate(session, small_prompts(session.model.vocab, LENGTHS), steps, forced.tokens if forced else None)
