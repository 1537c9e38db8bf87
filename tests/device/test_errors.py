"""Errors of a backend against the reference operators: right numbers are within their limit, wrong ones are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device.backends import choose
from device.doctor import errors as module
from device.doctor.errors import Errors, errors, limit_of, main, shallow
from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import Step
from scenarios.loader import load_scenario
from scenarios.models.hf_config import load_model
from scenarios.ops.program import Op

pytestmark = pytest.mark.xdist_group("torch")


@pytest.mark.parametrize("sets", [(), ("optimizations.weights=w8a8",), ("optimizations.kv.layout=paged",)])
def test_a_cpu_is_within_its_limits(sets: tuple[str, ...]) -> None:
    scenario = load_scenario("tiny_llama_cpu", sets).scenario
    result = errors(choose("cpu"), scenario, load_model(scenario.model))
    assert 0 < result.relative < result.limit
    assert result.passed


def test_a_norm_that_is_a_tenth_too_large_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario("tiny_llama_cpu", []).scenario
    backend = choose("cpu")
    honest = type(backend).kernel

    def wrong(self: object, op: Op) -> Kernel:
        kernel = honest(self, op)
        if op.kind != "rms_norm":
            return kernel

        def scaled(op: Op, inputs: Inputs, step: Step) -> Outputs:
            y, *rest = kernel.compute(op, inputs, step)
            return y * 1.1, *rest

        return replace(kernel, compute=scaled)

    monkeypatch.setattr(type(backend), "kernel", wrong)
    result = errors(backend, scenario, load_model(scenario.model))
    assert not result.passed
    assert str(result).startswith("relative error ")
    assert "NOT within 0.015" in str(result)


def test_numbers_that_are_none_do_not_pass() -> None:
    assert not Errors(float("nan"), 0.015).passed


def test_the_limit_follows_what_is_quantised_on_the_way() -> None:
    limits = {}
    for sets in ("weights=w8a16", "weights=w8a8", "weights=w4a8", "kv.dtype=int8", "kv.layout=paged"):
        limits[sets] = limit_of(load_scenario("qwen3_8b_decode", [f"optimizations.{sets}"]).scenario)
    assert limits == {
        "weights=w8a16": 0.015,
        "weights=w8a8": 0.03,
        "weights=w4a8": 0.03,
        "kv.dtype=int8": 0.03,
        "kv.layout=paged": 0.015,
    }


def test_a_model_is_cut_to_its_first_layers() -> None:
    assert shallow(load_model("Qwen3-8B")).layers == 2
    cut = shallow(load_model("DeepSeek-V3"))
    assert cut.experts is not None
    assert (cut.layers, cut.experts.dense_layers) == (3, 1)


def test_the_command_says_what_it_has_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["cpu", "tiny_llama_cpu"]) == 0
    assert "within 0.015" in capsys.readouterr().out
    monkeypatch.setattr(module, "errors", lambda *_: Errors(0.5, 0.015))
    assert main(["cpu", "tiny_llama_cpu"]) == 1
    assert main(["cpu", "tiny_llama_cpu", "--set", "optimizations.weights=w9"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
