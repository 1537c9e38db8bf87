"""Rotary angles of long contexts: numbers by hand for the shipped models, and steps against the architecture."""

from __future__ import annotations

from dataclasses import replace
from math import log, pi

import pytest
import torch

from device.backends.cpu import compiler
from device.run.session import Options
from device.step.rotary import angle_scale, frequencies, latent_scale
from device.weights.weights import RandomCheckpoint
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import load_model, model_names
from scenarios.models.model import Model, RopeScaling
from tests.device.architecture import forward, length, turning
from tests.device.making import DEEPSEEK, LLAMA, QWEN3, WIDE_REFERENCE, plain, prompts, run, session
from tests.scenarios.making import switched


def test_deepseek_v3_by_hand() -> None:
    """64 rotated dimensions, theta 10^4, 4,096 positions stretched 40 times: pair i turns 4096 / (2 pi 10^(i / 8))
    times. 32 times does pair 10.5, once pair 22.5: to pair 10 nothing changes, from pair 23 all is divided."""
    model = load_model("DeepSeek-V3")
    plain, result = 10_000.0 ** (-torch.arange(32) / 32), frequencies(model)
    torch.testing.assert_close(result[:11], plain[:11])
    torch.testing.assert_close(result[23:], plain[23:] / 40)
    assert result[16].item() == pytest.approx(plain[16].item() * (7 / 13 + 6 / 13 / 40))
    assert angle_scale(model) == 1.0
    growth = 0.1 * log(40) + 1  # 1.3689
    assert latent_scale(model) == pytest.approx(growth**2 / 192**0.5)
    assert latent_scale(model) == pytest.approx(0.13523, abs=1e-5)


def test_equal_betas_of_yarn_are_a_step_between_two_dimensions() -> None:
    """Kimi-K2: theta 5 x 10^4, and both betas 1: pair 19.2 turns once over 4,096 positions, so pair 19 is the last that
    stays and pair 20 the first that is divided by 32."""
    model = load_model("Kimi-K2")
    plain, result = 50_000.0 ** (-torch.arange(32) / 32), frequencies(model)
    torch.testing.assert_close(result[:20], plain[:20])
    torch.testing.assert_close(result[20:], plain[20:] / 32)


def test_llama_3_1_by_hand() -> None:
    """128 dimensions, theta 5 x 10^5, 8,192 positions stretched 8 times: wavelengths below 2,048 stay, above 8,192 they
    are divided, between the two they go over."""
    model = load_model("Llama-3.1-8B")
    waves = 2 * pi * 500_000.0 ** (torch.arange(64) / 64)
    result, plain = 2 * pi / frequencies(model), waves
    torch.testing.assert_close(result[plain < 2048], plain[plain < 2048])
    torch.testing.assert_close(result[plain > 8192], 8 * plain[plain > 8192])
    between = (plain > 2048) & (plain < 8192)
    assert 2 < between.sum() < 10
    assert ((result > plain) & (result < 8 * plain))[between].all()
    assert angle_scale(model) == 1.0


def test_the_shipped_models_say_which_angles_they_have() -> None:
    kinds = {name: rope_scaling.kind for name in model_names() if (rope_scaling := load_model(name).rope_scaling)}
    yarn = ("DeepSeek-R1", "DeepSeek-V3", "DeepSeek-V3.2", "DeepSeek-V4-Flash", "Kimi-K2", "gpt-oss-20b")
    llama3 = ("Llama-3.1-8B", "Llama-3.1-70B")
    assert kinds == {**dict.fromkeys(yarn, "yarn"), **dict.fromkeys(llama3, "llama3")}


SCALED = {
    "llama3": LLAMA,
    "yarn in latent attention": DEEPSEEK,
    "yarn with longer vectors": replace(QWEN3, rope_scaling=RopeScaling("yarn", 4.0, 64)),
    "yarn that goes over between dimensions": replace(
        QWEN3, rope_scaling=RopeScaling("yarn", 4.0, 64, truncated=False, attention_factor=1.5)
    ),
}


@pytest.mark.parametrize("name", list(SCALED)[:3])
def test_a_scaled_step_computes_the_architecture(name: str) -> None:
    model = SCALED[name]
    done = run(plain(model), model, WIDE_REFERENCE, steps=3)
    unscaled = run(plain(model), replace(model, rope_scaling=None), WIDE_REFERENCE, steps=3, forced=done)
    assert (done.logits - unscaled.logits).norm() / done.logits.norm() > 1e-2  # the test can fail
    for number, prompt in enumerate(prompts()):
        result = [step[number] for step in done.tokens]
        logits = forward(model, RandomCheckpoint(model, 0), [*prompt, *result[:-1]])[len(prompt) - 1 :]
        assert ((done.logits[:, number] - logits).norm() / logits.norm()).item() < 1e-5


@pytest.mark.parametrize("name", SCALED)
def test_angles_that_are_looked_up_are_those_computed(name: str) -> None:
    model = SCALED[name]
    true = run(plain(model), model, WIDE_REFERENCE, steps=1)
    done = run(plain(model, fusion__rope=True, kv__layout="paged"), model, WIDE_REFERENCE, steps=1, forced=true)
    assert ((done.logits - true.logits).norm() / true.logits.norm()).item() < 1e-5


@pytest.mark.study
@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses what torch deprecates
def test_a_captured_step_turns_as_far() -> None:
    model = SCALED["yarn with longer vectors"]
    true = run(plain(model), model, WIDE_REFERENCE, steps=1)
    done = run(plain(model, graph="ge_graph"), model, Options(wide=True), steps=1, forced=true)
    assert ((done.logits - true.logits).norm() / true.logits.norm()).item() < 1e-5


@pytest.mark.parametrize("name", list(SCALED)[:3])
def test_frequencies_are_those_of_the_reference(name: str) -> None:
    model = SCALED[name]
    half = model.rotated // 2
    expected = torch.tensor([turning(model, i, half) for i in range(half)])
    torch.testing.assert_close(frequencies(model), expected)
    assert angle_scale(model) == pytest.approx(length(model))


def test_the_factor_of_a_config_goes_before_the_rule() -> None:
    assert angle_scale(SCALED["yarn that goes over between dimensions"]) == 1.5
    assert angle_scale(SCALED["yarn with longer vectors"]) == pytest.approx(0.1 * log(4) + 1)


@pytest.mark.parametrize(
    ("kind", "wanted"), [("linear", lambda plain: plain / 4), ("dynamic", None), ("longrope", None)]
)
def test_linear_divides_and_others_are_refused_by_name(kind: str, wanted: object) -> None:
    model: Model = replace(QWEN3, rope_scaling=RopeScaling(kind, 4.0, 64))
    if callable(wanted):
        torch.testing.assert_close(frequencies(model), wanted(frequencies(QWEN3)))
        return
    with pytest.raises(ScenarioError) as caught:
        session(switched(plain(model)), model)
    (line,) = caught.value.messages
    computed = "linear, llama3, yarn, proportional"
    assert line == f"tiny-qwen3: rope_scaling of type {kind} is not computed here, only {computed}"
