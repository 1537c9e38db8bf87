"""Each optimisation against the plain reference: what it may change, and that it changes no more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
import torch

from device.run.session import Options
from device.weights.weights import RandomCheckpoint
from scenarios.models.model import Model
from tests.device.architecture import forward
from tests.device.making import (
    ALL_FUSED,
    FAMILIES,
    LLAMA,
    QWEN2,
    QWEN3,
    REFERENCE,
    WIDE_REFERENCE,
    WITH_EXPERTS,
    Run,
    plain,
    prompts,
    run,
)


@dataclass(frozen=True)
class Error:
    """How far logits are from the plain ones: largest difference, and norm of the difference over the norm."""

    greatest: float
    relative: float
    first_other_token: int  # step, -1 for none


@cache
def reference_run(model: Model) -> Run:
    """The plain program in float32 by the reference operators."""
    return run(plain(), model, WIDE_REFERENCE)


def error(model: Model, options: Options | None, **switches: object) -> Error:
    """Of a run with `switches` on the same tokens as the plain run."""
    base = reference_run(model)
    done = run(plain(**switches), model, options, forced=base)
    difference = done.logits - base.logits
    other = (i for i, (a, b) in enumerate(zip(done.tokens, base.tokens, strict=True)) if a != b)
    return Error(difference.abs().max().item(), (difference.norm() / base.logits.norm()).item(), next(other, -1))


EVERY_MODEL = {**FAMILIES, **WITH_EXPERTS}


@pytest.mark.parametrize("model", EVERY_MODEL.values(), ids=EVERY_MODEL)
def test_the_plain_program_computes_the_architecture(model: Model) -> None:
    done = run(plain(model), model, WIDE_REFERENCE)
    for number, prompt in enumerate(prompts()):
        result = [step[number] for step in done.tokens]
        logits = forward(model, RandomCheckpoint(model, 0), [*prompt, *result[:-1]])[len(prompt) - 1 :]
        assert logits.argmax(-1).tolist() == result
        assert (logits - done.logits[:, number]).abs().max().item() < 2e-5
        assert ((logits - done.logits[:, number]).norm() / logits.norm()).item() < 1e-5


#: Switches that only compute the same in another order or place, on a model that has what they need.
EXACT = {
    "fusion.rms_norm": (QWEN3, {"fusion__rms_norm": True}),
    "fusion.add_rms_norm": (QWEN3, {"fusion__add_rms_norm": True}),
    "fusion.rope": (QWEN2, {"fusion__rope": True}),
    "fusion.qkv": (QWEN2, {"fusion__qkv": True}),
    "fusion.gate_up": (LLAMA, {"fusion__gate_up": True}),
    "fusion.swiglu": (LLAMA, {"fusion__swiglu": True}),
    "fusion.swiglu packed": (LLAMA, {"fusion__swiglu": True, "fusion__gate_up": True}),
    "fusion.attention": (QWEN2, {"fusion__attention": True}),
    "fusion.qkv_norm_rope_cache": (
        QWEN3, {**ALL_FUSED, "kv__layout": "paged", "fusion__qkv_norm_rope_cache": True},
    ),
    "graph=ge_graph": (QWEN3, {"graph": "ge_graph"}),
    "graph=npugraph_ex": (QWEN3, {**ALL_FUSED, "graph": "npugraph_ex", "kv__layout": "paged"}),
    "graph=aclgraph": (LLAMA, {**ALL_FUSED, "graph": "aclgraph"}),
    "overlap.prefetch": (QWEN3, {**ALL_FUSED, "overlap__prefetch": True}),
    "weight_format=nz": (QWEN3, {"weight_format": "nz"}),
    "all fused": (QWEN3, ALL_FUSED),
}  # fmt: skip


@pytest.mark.parametrize(("model", "switches"), EXACT.values(), ids=EXACT)
def test_a_fusion_changes_nothing_but_rounding(model: Model, switches: dict[str, object]) -> None:
    result = error(model, WIDE_REFERENCE, **switches)
    assert result.greatest < 1e-4  # of logits around 1 to 10: sums in another order, float32
    assert result.relative < 1e-6
    assert result.first_other_token == -1


@pytest.mark.parametrize("attention", [False, True], ids=["unfused", "fused"])
@pytest.mark.parametrize("options", [None, WIDE_REFERENCE], ids=["cpu bf16", "reference fp32"])
@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
def test_paging_changes_nothing_at_all(model: Model, options: Options | None, attention: bool) -> None:
    apart = run(plain(fusion__attention=attention), model, options)
    paged = run(plain(fusion__attention=attention, kv__layout="paged", kv__block_size=16), model, options)
    assert torch.equal(apart.logits, paged.logits)
    assert apart.tokens == paged.tokens


#: What INT8 and INT4 may cost on these models: relative error of the logits, about twice what was seen.
QUANTISED = {
    "kv int8 channel": (QWEN3, {"kv__dtype": "int8"}, 0.01),
    "kv int8 token": (QWEN3, {"kv__dtype": "int8", "kv__scale": "token"}, 0.01),
    "kv int8 head": (LLAMA, {"kv__dtype": "int8", "kv__scale": "head", "kv__layout": "paged"}, 0.01),
    "kv int8 fused write": (
        QWEN3, {"kv__dtype": "int8", "kv__layout": "paged", "fusion__qkv_norm_rope_cache": True}, 0.01,
    ),
    "w8a16": (QWEN2, {"weights": "w8a16"}, 0.02),
    "w8a8": (QWEN3, {"weights": "w8a8"}, 0.04),
    "w8a8 fused quant": (QWEN3, {"weights": "w8a8", "fusion__add_rms_norm_quant": True}, 0.04),
    "w8a8 fused gate": (QWEN3, {"weights": "w8a8", "fusion__swiglu_quant": True}, 0.04),
    "w8a8 fused gate of experts": (
        WITH_EXPERTS["glm"], {"weights": "w8a8", "fusion__swiglu_quant": True, "fusion__grouped_matmul": True}, 0.2,
    ),
    "w4a16": (LLAMA, {"weights": "w4a16"}, 0.4),
    "w4a8": (QWEN2, {"weights": "w4a8"}, 0.4),
}  # fmt: skip


@pytest.mark.parametrize(("model", "switches", "most"), QUANTISED.values(), ids=QUANTISED)
def test_quantisation_costs_what_its_bits_say(model: Model, switches: dict[str, object], most: float) -> None:
    result = error(model, WIDE_REFERENCE, **{**ALL_FUSED, **switches})
    assert most / 20 < result.relative < most  # quantised, and not by accident exact


#: Relative error of 16-bit runs: half a unit in the last place is 2^-9 (bf16) and 2^-12 (fp16); the layers add up.
SIXTEEN_BIT = {"qwen3": 0.015, "qwen2": 0.015, "llama": 0.002}


@pytest.mark.parametrize("options", [None, REFERENCE], ids=["cpu", "reference"])
@pytest.mark.parametrize("family", FAMILIES)
def test_sixteen_bits_cost_their_rounding(family: str, options: Options | None) -> None:
    switches = {"fusion__rms_norm": True, "fusion__attention": True, "fusion__qkv": True}
    result = error(FAMILIES[family], options, **switches)
    assert 0 < result.relative < SIXTEEN_BIT[family]


def test_the_fused_forms_of_the_cpu_equal_the_reference_in_float32() -> None:
    result = error(
        QWEN3, Options(wide=True), fusion__rms_norm=True, fusion__attention=True, fusion__qkv=True, fusion__gate_up=True
    )
    assert result.relative < 1e-6
    assert result.first_other_token == -1
