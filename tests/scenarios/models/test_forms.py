"""Odd but real forms of a config.json: they are read as the usual one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.models.test_model import GOOD, read, refusal

#: A config of Qwen3 in the usual form.
QWEN3 = {**GOOD, "model_type": "qwen3", "head_dim": 16}


def params(folder: Path, config: dict[str, Any]) -> int:
    model = read(folder, config)
    return model.linear_weights + model.other_weights


@pytest.mark.parametrize(
    "form",
    [
        {"model_type": None, "architectures": ["Qwen3ForCausalLM"]},
        {"model_type": "my_own", "architectures": ["Qwen3ForCausalLM"]},
        {"model_type": None, "architectures": ["Qwen3Model"]},
        {key: float(value) for key, value in QWEN3.items() if isinstance(value, int)},
        {"rope_theta": None, "rms_norm_eps": None, "tie_word_embeddings": None, "attention_bias": None},
        {"hidden_act": None, "torch_dtype": None, "use_sliding_window": None, "rope_scaling": None, "dtype": None},
        {"layer_types": None, "sliding_window": None, "quantization_config": None, "max_position_embeddings": None},
        {"torch_dtype": "torch.bfloat16"},
        {"dtype": "bfloat16", "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"}},
    ],
)
def test_a_form_is_read_as_the_usual_one(tmp_path: Path, form: dict[str, Any]) -> None:
    usual = read(tmp_path, QWEN3)
    model = read(tmp_path, {**QWEN3, **form})
    assert (model.linear_weights, model.other_weights) == (usual.linear_weights, usual.other_weights)
    assert model.runs[0][0].qk_norm
    assert (model.dtype, model.kv_bytes_per_token(16)) == ("bf16", usual.kv_bytes_per_token(16))


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [
        ("DeepseekV3ForCausalLM", "deepseek_v3"), ("GptOssForCausalLM", "gpt_oss"), ("InternLM2ForCausalLM",
        "internlm2"), ("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe"), ("Ernie4_5_MoeForCausalLM", "ernie4_5_moe"),
        ("Gemma3ForCausalLM", "gemma3_text"), ("NemotronHForCausalLM", "nemotron_h"), ("LlamaModel", "llama"),
    ],
)  # fmt: skip
def test_an_architecture_names_its_type(architecture: str, model_type: str) -> None:
    from scenarios.models.text_part import text_part

    assert text_part({"architectures": [architecture]})[0]["model_type"] == model_type


def test_the_type_of_a_config_comes_before_its_architecture(tmp_path: Path) -> None:
    assert read(tmp_path, {**GOOD, "architectures": ["DeepseekV3ForCausalLM"]}).model_type == "llama"


def test_a_part_that_leaves_out_sizes_has_those_of_its_class(tmp_path: Path) -> None:
    """LLaVA 1.5 7B and Qwen2-Audio 7B, whose text parts say little: Llama 2 7B with 64 words more, and Qwen 7B."""
    llava = {"model_type": "llava", "vision_config": {}, "text_config": {"model_type": "llama", "vocab_size": 32_064}}
    assert params(tmp_path, llava) == 6_738_415_616 + 2 * 64 * 4096
    text = {"model_type": "qwen2", "vocab_size": 156_032, "intermediate_size": 11_008}
    assert params(tmp_path, {"model_type": "qwen2_audio", "audio_config": {}, "text_config": text}) == 7_754_878_976


@pytest.mark.parametrize(("version", "bias", "normed"), [(2.6, True, False), ("4.5", False, True), (4, False, False)])
def test_the_version_of_minicpm_v_says_what_its_decoder_is(
    tmp_path: Path, version: object, bias: bool, normed: bool
) -> None:
    config = {**QWEN3, "model_type": "minicpmv", "version": version, "vision_config": {"hidden_size": 8}}
    model = read(tmp_path, config)
    assert (model.qkv_bias, model.qk_norm, model.left_out) == (bias, normed, "vision tower")


def test_a_version_that_is_not_known_is_refused_by_its_key(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path, {**GOOD, "model_type": "minicpmv", "version": 9})
    assert "it has a decoder by its version (version), known: 2.0, 2.5, 2.6, 4, 4.0, 4.5" in line


def test_an_empty_pattern_of_windows_is_a_line_and_no_division(tmp_path: Path) -> None:
    params = {"dim": 64, "n_layers": 2, "n_heads": 8, "hidden_dim": 96, "vocab_size": 100, "sliding_window": []}
    (line,) = refusal(tmp_path, params)
    assert line.startswith("sliding_window: must be a whole number")


@pytest.mark.parametrize("theta", [[1.0, 2.0], "x", {}])
def test_a_base_that_is_no_number_is_told_where_yarn_needs_it(tmp_path: Path, theta: object) -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": theta}
    assert any(
        "rope_theta: must be a positive number" in line for line in refusal(tmp_path, {**GOOD, "rope_parameters": yarn})
    )
