"""Families whose layers differ: the CPU runs each in a small form, and it is the architecture that papers describe."""

from __future__ import annotations

import pytest

from device.run.session import Options
from device.weights.weights import RandomCheckpoint
from tests.device import architecture_forms, architecture_v4
from tests.device.making import ALL_FUSED, WIDE_REFERENCE, plain, prompts, run
from tests.device.small import CONFIGS, small

FUSED = {**ALL_FUSED, "kv__layout": "paged", "kv__block_size": 16}


def fused_of(name: str) -> dict[str, object]:
    """Every fusion that the model has a use for."""
    model = small(name)
    experts = {"fusion__moe_routing": True, "fusion__grouped_matmul": True} if model.experts else {}
    switches = {**FUSED, **experts}
    if any(one.attention.soft_cap or one.attention.alibi for one in (model, *model.kinds)):
        del switches["fusion__attention"]
    return switches


@pytest.mark.parametrize("name", CONFIGS)
def test_the_plain_program_computes_the_architecture(name: str) -> None:
    model = small(name)
    done = run(plain(model), model, WIDE_REFERENCE, steps=2)
    for number, prompt in list(enumerate(prompts()))[1:]:  # of two lengths
        result = [step[number] for step in done.tokens]
        forward = architecture_v4.forward if model.form.hyper else architecture_forms.forward
        logits = forward(model, RandomCheckpoint(model, 0), [*prompt, *result[:-1]])[len(prompt) - 1 :]
        assert logits.argmax(-1).tolist() == result
        assert ((logits - done.logits[:, number]).norm() / logits.norm()).item() < 2e-5


def test_the_cpu_backend_has_its_own_way_of_compressed_attention() -> None:
    model = small("deepseek_v4")
    true = run(plain(model), model, WIDE_REFERENCE, steps=2)
    done = run(plain(model, kv__layout="paged", kv__block_size=16), model, Options(wide=True), steps=2, forced=true)
    assert ((done.logits - true.logits).norm() / true.logits.norm()).item() < 2e-5


@pytest.mark.parametrize("name", CONFIGS)
def test_fused_forms_on_the_cpu_compute_the_same(name: str) -> None:
    model = small(name)
    true = run(plain(model), model, WIDE_REFERENCE, steps=1)
    options = Options(wide=True, choice=WIDE_REFERENCE.choice)
    done = run(plain(model, **fused_of(name)), model, options, steps=1, forced=true)
    assert ((done.logits - true.logits).norm() / true.logits.norm()).item() < 2e-5
