"""Models from Hugging Face configs: their published sizes, and what a bad config is reported."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.errors import ScenarioError
from scenarios.models.families import FAMILIES
from scenarios.models.hf_config import SHIPPED, load_model, model_names
from scenarios.models.model import Experts, Latent, RopeScaling

#: Parameters as published with the weights; tied embeddings count once.
PUBLISHED = {
    "DeepSeek-R1": 671_026_419_200,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V3": 671_026_419_200,
    "DeepSeek-V3.2": 671_877_944_064,
    "DeepSeek-V4-Flash": 284_332_240_471,  # 284 B on its card
    "GLM-4.5-Air": 106_852_251_264,
    "Kimi-K2": 1_026_408_232_448,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-8B": 8_030_261_248,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen3-0.6B": 596_049_920,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3.5-35B-A3B": 34_660_610_688,  # its decoder of text, without the prediction layer
    "gpt-oss-20b": 20_914_757_184,
    "openPangu-Pro-MoE": 71_988_781_056,  # 71.99 billion (arXiv:2505.21411, whose sizes its config has)
    # Nobody's but ours: 4 layers of 3 * 256 x 256 and 3 * 256 x 704, two tables of 4,096 x 256, nine norms of 256.
    "Tiny-Llama": 5_048_576,
}

GOOD: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


#: What a refusal of such a config ends with.
NEAREST = "The nearest shipped model that runs is Tiny-Llama; `whatif list models` shows the families"


def test_the_shipped_models_have_their_published_parameters() -> None:
    models = [load_model(name) for name in model_names()]
    assert {m.name: m.linear_weights + m.other_weights for m in models} == PUBLISHED


def test_a_weight_count_by_hand(tmp_path: Path) -> None:
    # A layer: q and o 64 x 64, k and v 64 x 16, three MLP matrices 64 x 160, two norms of 64.
    model = read(tmp_path, GOOD)
    assert model.linear_weights == 2 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 160)
    assert model.other_weights == 2 * 100 * 64 + 2 * 2 * 64 + 64
    biased = read(tmp_path, {**GOOD, "model_type": "qwen2"})
    assert biased.other_weights - model.other_weights == 2 * (64 + 16 + 16)
    normed = read(tmp_path, {**GOOD, "model_type": "qwen3", "head_dim": 8})
    assert normed.other_weights - model.other_weights == 2 * 2 * 8  # one gamma of head_dim for q and one for k
    tied = read(tmp_path, {**GOOD, "tie_word_embeddings": True})
    assert model.other_weights - tied.other_weights == 100 * 64


def test_kv_bytes_of_a_token() -> None:
    # Qwen3-8B: K and V, 36 layers, 8 heads of 128, 2 bytes.
    assert load_model("Qwen3-8B").kv_bytes_per_token(16) == 2 * 36 * 8 * 128 * 2 == 147_456
    assert load_model("Qwen3-8B").kv_bytes_per_token(8) == 73_728
    assert load_model("Llama-3.1-70B").kv_bytes_per_token(16) == 2 * 80 * 8 * 128 * 2


def test_what_the_families_differ_in() -> None:
    families = {name: (m.qk_norm, m.qkv_bias) for name in model_names() for m in [load_model(name)]}
    assert families == {
        **dict.fromkeys([n for n in model_names() if n.startswith(("DeepSeek-", "Kimi-"))], (False, False)),
        "GLM-4.5-Air": (False, True),
        "Qwen3.5-35B-A3B": (True, False),
        "gpt-oss-20b": (False, True),
        "openPangu-Pro-MoE": (False, True),
        "Llama-3.1-70B": (False, False),
        "Llama-3.1-8B": (False, False),
        "Qwen2.5-0.5B": (False, True),
        "Tiny-Llama": (False, False),
        "Qwen2.5-7B": (False, True),
        **dict.fromkeys([n for n in model_names() if n.startswith("Qwen3-")], (True, False)),
    }


def test_a_head_may_be_wider_than_its_share_of_the_hidden_size() -> None:
    model = load_model("Qwen3-0.6B")
    assert (model.hidden, model.heads, model.head_dim, model.q_size, model.kv_size) == (1024, 16, 128, 2048, 1024)


def test_a_shipped_name_is_found_in_any_case() -> None:
    assert load_model("qwen3-8b") == load_model("Qwen3-8B")


def test_a_folder_and_a_file_work_too(tmp_path: Path) -> None:
    config = (SHIPPED / "Qwen3-8B" / "config.json").read_text()
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(config)
    (tmp_path / "other.json").write_text(config)
    shipped = load_model("Qwen3-8B")
    for name, given in (("mine", str(folder)), ("mine", str(folder / "config.json")), ("other", "other.json")):
        model = load_model(given, tmp_path)
        assert model.name == name
        assert (model.layers, model.hidden, model.vocab) == (shipped.layers, shipped.hidden, shipped.vocab)


def test_the_shipped_configs_are_those_of_the_reference(shared: Path) -> None:
    compared = 0
    for name in model_names():
        reference = shared / "models" / name / "config.json"
        if reference.is_file():
            ours = json.loads((SHIPPED / name / "config.json").read_text())
            assert ours == json.loads(reference.read_text()), name
            compared += 1
    assert compared >= 3


def read(folder: Path, config: Any) -> Any:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return load_model(str(path))


def refusal(folder: Path, config: Any) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        read(folder, config)
    prefix = f"{folder / 'config.json'}:"
    assert all(line.startswith(prefix) and "\n" not in line and len(line) < 400 for line in caught.value.messages)
    return tuple(line.removeprefix(prefix).strip() for line in caught.value.messages)


def test_defaults_are_those_of_hugging_face(tmp_path: Path) -> None:
    bare = {k: v for k, v in GOOD.items() if k not in ("num_key_value_heads", "max_position_embeddings")}
    model = read(tmp_path, bare)
    assert (model.kv_heads, model.head_dim, model.rope_theta, model.dtype) == (8, 8, 10_000.0, "bf16")
    assert read(tmp_path, {**GOOD, "head_dim": None}).head_dim == 8
    assert read(tmp_path, {**GOOD, "torch_dtype": "float16"}).dtype == "fp16"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hidden_size": None}, "hidden_size: must be a whole number from 1 to 16777216, got nothing"),
        ({"hidden_size": "4096"}, "hidden_size: must be a whole number from 1 to 16777216, got '4096'"),
        ({"hidden_size": 64.5}, "hidden_size: must be a whole number from 1 to 16777216, got 64.5"),
        ({"hidden_size": True}, "hidden_size: must be a whole number from 1 to 16777216, got true"),
        ({"hidden_size": 1 << 40}, "hidden_size: must be a whole number from 1 to 16777216, got 1099511627776"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: must be a whole number from 1 to 1024, got 0"),
        ({"num_hidden_layers": 5000}, "num_hidden_layers: must be a whole number from 1 to 1024, got 5000"),
        ({"vocab_size": -1}, "vocab_size: must be a whole number from 1 to 16777216, got -1"),
        ({"intermediate_size": [1]}, "intermediate_size: must be a whole number from 1 to 16777216, got a list"),
        ({"num_key_value_heads": 3}, "num_attention_heads 8 is not a multiple of num_key_value_heads 3"),
        ({"hidden_size": 60}, "hidden_size 60 is not a multiple of num_attention_heads 8"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps: must be a positive number, got '1e-5'"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps: must be a positive number, got nan"),
        ({"rope_theta": float("inf")}, "rope_theta: must be a positive number, got inf"),
        ({"rope_scaling": [8]}, "rope_scaling: must be a mapping, got a list"),
        ({"rope_scaling": {"rope_type": 3}}, "rope_scaling.rope_type: must be a name, got 3"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling.factor: is due for yarn"),
        (
            {"rope_scaling": {"type": "yarn", "factor": "40"}},
            "rope_scaling.factor: must be a positive number, got '40'",
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}},
            "rope_parameters.low_freq_factor 4 must not be above high_freq_factor 1",
        ),
        (
            {"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 4}},
            "rope_scaling.yarn needs a rope_theta above 1, got 1",
        ),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings: must be true or false, got 'no'"),
        ({"attention_bias": 1}, "attention_bias: must be true or false, got 1"),
        ({"mlp_bias": "yes"}, "mlp_bias: must be true or false, got 'yes'"),
        ({"use_sliding_window": 1}, "use_sliding_window: must be true or false, got 1"),
        (
            {"model_type": "mistral", "sliding_window": 0},
            "sliding_window: must be a whole number from 1 to 16777216, got 0",
        ),
        ({"layer_types": ["full_attention"]}, "layer_types: 1 of 2 layers"),
    ],
)
def test_a_bad_value_is_told_in_one_line(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    assert refusal(tmp_path, {**GOOD, **change}) == (told,)


def test_scaled_angles_are_read_in_the_old_and_the_new_form(tmp_path: Path) -> None:
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    old = read(tmp_path, {**GOOD, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **llama3}})
    new = read(tmp_path, {**GOOD, "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **llama3}})
    assert old == new
    assert (old.rope_theta, old.rope_scaling) == (5e5, RopeScaling("llama3", 8.0, 64, 1.0, 4.0))
    assert read(tmp_path, {**GOOD, "rope_scaling": None}).rope_scaling is None
    assert read(tmp_path, {**GOOD, "rope_scaling": {"type": "default"}}).rope_scaling is None
    yarn = {"type": "yarn", "factor": 40, "mscale": None, "mscale_all_dim": 0, "beta_fast": None}
    assert read(tmp_path, {**GOOD, "rope_scaling": yarn}).rope_scaling == RopeScaling("yarn", 40.0, 512)
    assert read(tmp_path, {**GOOD, "rope_scaling": {"type": "longrope"}}).rope_scaling == RopeScaling("longrope")


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 131072},  # as Qwen2.5 ships
        {"model_type": "qwen3", "use_sliding_window": False, "sliding_window": None},
        {"model_type": "mistral", "sliding_window": None},  # as Mistral 7B from v0.2 on
        {"mlp_bias": False},
    ],
)
def test_a_window_or_a_bias_that_is_off_changes_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    family = {key: change[key] for key in ("model_type",) if key in change}
    assert read(tmp_path, {**GOOD, **change}) == read(tmp_path, {**GOOD, **family})


def test_all_bad_values_are_told_at_once(tmp_path: Path) -> None:
    lines = refusal(tmp_path, {"model_type": "qwen3"})
    assert [line.partition(":")[0] for line in lines] == [
        "hidden_size",
        "num_attention_heads",
        "num_hidden_layers",
        "intermediate_size",
        "vocab_size",
    ]


@pytest.mark.parametrize("model_type", ["borg", None, 3, ["llama"], {}])
def test_an_architecture_that_is_not_lowered_is_refused_by_name(tmp_path: Path, model_type: Any) -> None:
    (line,) = refusal(tmp_path, {**GOOD, "model_type": model_type})
    shown = {None: "nothing", 3: "3"}.get(model_type) if not isinstance(model_type, list | dict) else "a "
    assert f"model_type {shown or repr(model_type)}" in line
    assert "is not modelled. The nearest shipped model that runs is " in line
    assert line.endswith("; `whatif list models` shows the families")


@pytest.mark.parametrize(
    ("model_type", "features"),
    [
        ("longcat_flash", "two attentions a layer next to the experts, and experts that do nothing (zero_expert_num)"),
        ("kimi_k3", "linear attention layers (linear_attn_config)"),
    ],
)
def test_a_known_architecture_that_is_not_lowered_says_why(tmp_path: Path, model_type: str, features: str) -> None:
    (line,) = refusal(tmp_path, {**GOOD, "model_type": model_type})
    assert line.startswith(f"model_type '{model_type}' is not modelled: it has {features}. The nearest shipped model ")


def test_an_unknown_architecture_is_refused_by_the_features_of_its_config(tmp_path: Path) -> None:
    config = {**GOOD, "model_type": "coming", "index_topk": 2048, "layer_types": ["full_attention", "mamba"]}
    (line,) = refusal(tmp_path, config)
    told = "it has sparse attention over indexed tokens (index_topk), layers of mamba (layer_types). The nearest "
    assert told in line


def test_a_feature_in_a_config_of_a_known_family_is_refused(tmp_path: Path) -> None:
    change = {"attn_logit_softcapping": 50.0, "hidden_act": "relu", "layer_types": ["mamba"] * 2}
    assert refusal(tmp_path, {**GOOD, **change}) == (
        "hidden_act: 'relu' is not modelled, only silu and gelu; layer_types: not modelled: layers of mamba; "
        "attn_logit_softcapping: not modelled: soft caps of scores. The nearest shipped model that runs is Tiny-Llama; "
        "`whatif list models` shows the families",
    )
    assert refusal(tmp_path, {**GOOD, **change, "vocab_size": 0})[0].startswith("vocab_size: must be ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "1:1: not JSON: Expecting value"),
        ('{"model_type": "llama",}', "not JSON"),
        ("[]", "not a Hugging Face config.json (a JSON object is expected)"),
        ('"llama"', "not a Hugging Face config.json (a JSON object is expected)"),
        ("[" * 100_000, "not a Hugging Face config.json"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not a Hugging Face config.json"),
        (" " * (64 << 20) + "{}", "larger than 67108864 bytes, not a config.json"),
    ],
    # The texts themselves would travel between processes as the names of the tests: one has 64 MiB.
    ids=["empty", "comma", "list", "text", "deep", "digits", "64 MiB"],
)
def test_what_is_no_config_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    (line,) = refusal(tmp_path, text)
    assert told in line


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe{}\x00")
    with pytest.raises(ScenarioError, match=r"not a Hugging Face config\.json"):
        load_model(str(path))


def test_a_folder_without_a_config_says_so(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"config\.json: No such file"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Qwen3-8", "Did you mean 'Qwen3-8B'?"),
        ("no such thing", "Shipped: DeepSeek-R1, "),
        ("x\0y", "neither shipped nor a folder"),
        ("a" * 4000, "neither shipped nor a folder"),
    ],
)
def test_an_unknown_name_gets_the_nearest_one(name: str, told: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_model(name)
    (line,) = caught.value.messages
    assert told in line


# ---- experts and latent attention ----

MIXED = {
    **GOOD,
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
LATENT = {
    **GOOD, "model_type": "deepseek_v3", "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "routed_scaling_factor": 2.5,
}  # fmt: skip


def test_a_weight_count_with_experts_by_hand(tmp_path: Path) -> None:
    model = read(tmp_path, MIXED)
    assert model.experts == Experts(8, 8, 2, 32, 0, 0, "softmax", False, normalised=False)
    # Every layer: attention, and eight experts of three matrices 64 x 32; the router stays in 16 bit.
    assert model.linear_weights == 2 * (2 * 64 * 64 + 2 * 64 * 16 + 8 * 3 * 64 * 32)
    plain = read(tmp_path, {**GOOD, "model_type": "qwen3", "head_dim": 8})
    assert model.other_weights - plain.other_weights == 2 * 64 * 8


def test_a_weight_count_with_latent_attention_by_hand(tmp_path: Path) -> None:
    model = read(tmp_path, LATENT)
    assert model.latent == Latent(24, 16, 8, 4, 8)
    assert model.experts == Experts(8, 8, 2, 32, 32, 1, "sigmoid", True, factor=2.5)
    attention = 24 * (64 + 8 * 12) + 64 * (16 + 4) + 8 * 8 * 64  # q_a and q_b, kv_a, o
    assert model.linear_weights == 2 * attention + 3 * 64 * 160 + 3 * 64 * (8 * 32 + 32)
    absorbed = 8 * 16 * (8 + 8)  # W_UK and W_UV
    assert model.other_weights == 2 * 100 * 64 + 2 * (2 * 64 + 24 + 16 + absorbed) + 64 + 64 * 8 + 8
    assert model.kv_bytes_per_token(16) == 2 * (16 + 4) * 2  # one row per layer, whatever the heads
    assert read(tmp_path, {**LATENT, "q_lora_rank": None}).latent == Latent(0, 16, 8, 4, 8)


@pytest.mark.parametrize(
    ("base", "change", "told"),
    [
        (MIXED, {"num_experts_per_tok": 9}, "num_experts_per_tok 9 is more than num_experts 8"),
        (MIXED, {"num_experts": 0}, "num_experts: must be a whole number from 1 to 16384, got 0"),
        (MIXED, {"decoder_sparse_step": 0}, "decoder_sparse_step: must be a whole number from 1 to 1024, got 0"),
        (MIXED, {"mlp_only_layers": "0"}, "mlp_only_layers: must be a list of numbers, got '0'"),
        (LATENT, {"first_k_dense_replace": 2}, "first_k_dense_replace 2 leaves no layer of 2 with experts"),
        (LATENT, {"kv_lora_rank": None}, "kv_lora_rank: must be a whole number from 1 to 16777216, got nothing"),
        (LATENT, {"routed_scaling_factor": 0}, "routed_scaling_factor: must be a positive number, got 0"),
    ],
)
def test_bad_experts_are_told_in_one_line(tmp_path: Path, base: Any, change: Any, told: str) -> None:
    assert refusal(tmp_path, {**base, **change}) == (told,)


def test_part_of_a_head_may_turn(tmp_path: Path) -> None:
    glm = {**LATENT, "model_type": "glm4_moe", "partial_rotary_factor": 0.5, "attention_bias": True}
    assert read(tmp_path, glm).rotated == 4
    assert refusal(tmp_path, {**glm, "partial_rotary_factor": 0.4})[0].startswith("partial_rotary_factor: 0.4 of")


def test_the_text_part_of_a_multimodal_config_runs(tmp_path: Path) -> None:
    text = {**GOOD, "model_type": "qwen3_vl_text", "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}}
    whole = {"model_type": "qwen3_vl", "text_config": text, "vision_config": {"depth": 27}, "tie_word_embeddings": True}
    model = read(tmp_path, whole)
    plain = read(tmp_path, {**GOOD, "model_type": "qwen3", "tie_word_embeddings": True})
    assert model.left_out == "vision tower"
    assert dataclasses.replace(model, left_out="") == plain
    omni = {"model_type": "qwen3_omni_moe", "talker_config": {}, "thinker_config": whole | {"audio_config": {}}}
    assert read(tmp_path, omni).left_out == "vision tower and audio tower and talker"
    flat = {**GOOD, "model_type": "qwen2_5_vl", "vision_config": {}, "rope_scaling": {"type": "mrope"}}
    assert read(tmp_path, flat).model_type == "qwen2"


@pytest.mark.parametrize(
    "model_type", [name for name, family in FAMILIES.items() if not family.experts and not family.latent]
)
def test_each_dense_family_is_read(tmp_path: Path, model_type: str) -> None:
    assert read(tmp_path, {**GOOD, "model_type": model_type}).model_type == model_type


def test_a_folder_with_params_alone_is_read(tmp_path: Path) -> None:
    params = {"dim": 64, "n_layers": 4, "n_heads": 8, "n_kv_heads": 2, "hidden_dim": 160, "vocab_size": 100}
    windows = {"sliding_window": [None, 16], "yarn": {"factor": 4, "original_max_position_embeddings": 64, "beta": 32}}
    (tmp_path / "params.json").write_text(json.dumps({**params, **windows}))
    model = load_model(str(tmp_path))
    assert [one.attention.window for one, _ in model.runs] == [0, 16, 0, 16]
    assert model.rope_scaling == RopeScaling("yarn", factor=4.0, original_positions=64)
    assert load_model(str(tmp_path / "params.json")).name == tmp_path.name


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"use_qk_norm": True}, "use_qk_norm: only false is modelled for this model_type"),
        ({"head_dim": 8, "v_head_dim": 4}, "v_head_dim: not modelled: values of another width than keys, got 4"),
        ({"bias": True}, "bias: not modelled: a bias in all projections"),
        ({"sparse_config": {"topk": 64}}, "sparse_config: not modelled: sparse attention over blocks of keys"),
    ],
)
def test_what_changes_the_arithmetic_is_not_ignored(tmp_path: Path, change: Any, told: str) -> None:
    (line,) = refusal(tmp_path, {**GOOD, **change})
    assert line == f"{told}. {NEAREST}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"compress_ratios": [0, 16]}, "compress_ratios: not modelled: ratios but 0, 4 and 128, got 16"),
        ({"attention_bias": True}, "attention_bias: only false is modelled for this model_type"),
        ({"mlp_bias": True}, "mlp_bias: only false is modelled for this model_type"),
        ({"num_key_value_heads": 2}, "num_key_value_heads: only 1 is modelled for this model_type, got 2"),
        ({"use_index_cache": True}, "use_index_cache: not modelled: layers that take over the rows that another chose"),
        ({"index_head_dim": 96}, "index_head_dim: only powers of two are modelled, for the rotation of Hadamard, "
         "got 96"),
        ({"zero_expert_num": 4}, "zero_expert_num: not modelled: experts that do nothing"),
    ],
)  # fmt: skip
def test_what_of_deepseek_v4_is_not_modelled_is_said(tmp_path: Path, change: Any, told: str) -> None:
    config = {
        **GOOD, "model_type": "deepseek_v4", "num_key_value_heads": 1, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "q_lora_rank": 24, "o_lora_rank": 12, "o_groups": 2, "head_dim": 16,
        "qk_rope_head_dim": 8, "compress_ratios": [4, 128],
    }  # fmt: skip
    assert read(tmp_path, config).kinds[0].kind == "chosen"
    (line,) = refusal(tmp_path, {**config, **change})
    assert line.startswith(f"{told}. The nearest shipped model that runs is ")


def test_experts_of_another_type_than_the_rest_are_not_ignored(tmp_path: Path) -> None:
    fp8 = {**LATENT, "quantization_config": {"quant_method": "fp8"}}
    assert read(tmp_path, {**fp8, "expert_dtype": "fp4"}).stored_as == "w4a8"
    assert read(tmp_path, {**fp8, "expert_dtype": "fp8"}).stored_as == read(tmp_path, fp8).stored_as == "w8a8"
    (line,) = refusal(tmp_path, {**fp8, "expert_dtype": "fp6"})
    assert line.startswith(
        "quantization_config: expert_dtype 'fp6' with FP8 (e4m3) has no near `optimizations.weights`"
    )


def test_a_config_may_say_how_its_router_scores(tmp_path: Path) -> None:
    softmax = read(tmp_path, {**LATENT, "scoring_func": "softmax"}).experts
    plain = read(tmp_path, {**LATENT, "moe_router_enable_expert_bias": False}).experts
    assert softmax is not None
    assert plain is not None
    assert (softmax.score, softmax.moves_choice) == ("softmax", False)
    assert (plain.score, plain.moves_choice) == ("sigmoid", False)
    (line,) = refusal(tmp_path, {**LATENT, "scoring_func": "tanh"})
    assert line.startswith("scoring_func: 'tanh' is not modelled, only softmax, sigmoid and sqrtsoftplus. The nearest ")


def test_convolutions_stand_where_attention_is_not_listed(tmp_path: Path) -> None:
    config = {**GOOD, "model_type": "lfm2", "num_hidden_layers": 4, "full_attn_idxs": [1, 3]}
    assert [one.state is None for one, _ in read(tmp_path, config).runs] == [False, True, False, True]
    assert refusal(tmp_path, {**config, "full_attn_idxs": "1"}) == (
        "full_attn_idxs: must be a list of numbers, got '1'",
    )
