"""How checkpoints say that their weights are quantised, and what is nearest to each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.batches import decode_batch
from scenarios.build import build
from scenarios.models.hf_config import load_model
from scenarios.models.quantization import UnknownFormat, stored_weights
from scenarios.schema import Scenario
from sim.predict.memory import weight_bytes
from tests.scenarios.models.test_model import GOOD, read, refusal


def group(bits: int, inputs: int | None, kind: str = "int") -> dict[str, Any]:
    acts = None if inputs is None else {"num_bits": inputs, "type": kind, "dynamic": True}
    return {"group_0": {"targets": ["Linear"], "weights": {"num_bits": bits, "type": kind}, "input_activations": acts}}


@pytest.mark.parametrize(
    ("config", "nearest"),
    [
        ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, "w8a8"),
        ({"quant_method": "compressed-tensors", "config_groups": group(4, None)}, "w4a16"),
        ({"quant_method": "compressed-tensors", "config_groups": group(8, 8)}, "w8a8"),
        ({"quant_method": "compressed-tensors", "config_groups": group(4, 8)}, "w4a8"),
        ({"quant_method": "compressed-tensors", "config_groups": group(8, None, "float")}, "w8a16"),
        ({"quant_algo": "FP8", "producer": {"name": "modelopt"}}, "w8a8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}, "w4a16"),
        ({"quant_method": "gptq", "bits": 8, "desc_act": False}, "w8a16"),
        ({"quant_method": "mxfp4"}, "w4a16"),
        ({"quant_method": "ascend", "model_quant_type": "W8A8_DYNAMIC"}, "w8a8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "w4a16"),
    ],
)
def test_each_format_has_a_nearest(tmp_path: Path, config: dict[str, Any], nearest: str) -> None:
    model = read(tmp_path, {**GOOD, "quantization_config": config})
    assert model.stored_as == nearest
    assert model.stored


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"quant_method": "gptq", "bits": 3}, "GPTQ of 3 bits has no near"),
        ({"quant_method": "quip"}, "quant_method 'quip' has no near `optimizations.weights`; known: fp8, "),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "without config_groups"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {**group(4, 4), "group_1": group(8, 8)["group_0"]}},
            "with several formats (2)",
        ),
        ({"quant_method": "ascend"}, "ModelSlim without model_quant_type"),
        ([8], "must be a mapping, got a list"),
        ({}, "quant_method nothing has no near"),
    ],
)
def test_what_is_near_to_nothing_is_refused_by_name(tmp_path: Path, config: Any, told: str) -> None:
    (line,) = refusal(tmp_path, {**GOOD, "quantization_config": config})
    assert line.startswith("quantization_config: ")
    assert told in line


def test_modelslim_says_its_type_beside_the_config_or_in_it(tmp_path: Path) -> None:
    description = tmp_path / "quant_model_description.json"
    description.write_text(json.dumps({"model_quant_type": "W4A8_DYNAMIC", "lm_head.weight": "FLOAT"}))
    assert read(tmp_path, {**GOOD, "quantization_config": {"quant_method": "ascend"}}).stored_as == "w4a8"
    assert read(tmp_path, {**GOOD, "quantize": "w8a8"}).stored == "ModelSlim W8A8"
    kept = [
        f"model.layers.{layer}.{name}.weight" for layer in range(2) for name in ("self_attn.o_proj", "mlp.down_proj")
    ]
    types = {**dict.fromkeys(kept, "FLOAT"), "model.layers.0.mlp.up_proj.weight": "W8A8_DYNAMIC", "metadata": {}}
    description.write_text(json.dumps(types))
    model = read(tmp_path, {**GOOD, "quantization_config": {"quant_method": "ascend"}})
    assert (model.stored_as, model.keeps) == ("w8a8", {"attention.o_proj", "mlp.down_proj"})


def test_a_plain_checkpoint_says_nothing(tmp_path: Path) -> None:
    assert stored_weights(GOOD, tmp_path / "config.json") is None
    assert read(tmp_path, {**GOOD, "quantization_config": None}).stored_as == ""
    with pytest.raises(UnknownFormat):
        stored_weights({"quantize": "sparse"}, tmp_path / "config.json")


def test_a_config_of_two_mebibytes_is_a_config(tmp_path: Path) -> None:
    kept = [f"model.layers.{i}.mlp.gate" for i in range(60_000)]
    config = {**GOOD, "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": kept}}
    assert len(json.dumps(config)) > 1 << 20
    assert read(tmp_path, config).stored_as == "w8a8"


# ---- rules of one kind of rotary scaling do not hold for another ----


def test_equal_betas_of_yarn_are_legal_and_turned_ones_are_not(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "original_max_position_embeddings": 64}
    scaling = read(tmp_path, {**GOOD, "rope_scaling": yarn}).rope_scaling
    assert (scaling.beta_fast, scaling.beta_slow) == (1.0, 1.0)
    wrong = {**yarn, "beta_slow": 2}
    assert refusal(tmp_path, {**GOOD, "rope_scaling": wrong}) == (
        "rope_scaling.beta_slow 2 must not be above beta_fast 1",
    )


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        ("yarn", {"low_freq_factor": 4.0, "high_freq_factor": 1.0}),
        ("llama3", {"beta_fast": 1.0, "beta_slow": 32.0, "truncate": "?"}),
        ("linear", {"low_freq_factor": "x", "beta_fast": "x", "mscale": "x"}),
    ],
)
def test_fields_of_another_kind_are_not_looked_at(tmp_path: Path, kind: str, others: dict[str, Any]) -> None:
    bare = read(tmp_path, {**GOOD, "rope_scaling": {"rope_type": kind, "factor": 8.0}})
    assert read(tmp_path, {**GOOD, "rope_scaling": {"rope_type": kind, "factor": 8.0, **others}}) == bare


def test_the_case_of_the_issue_is_read(shared: Path) -> None:

    assert load_model(str(shared / "cases" / "kimi_yarn_equal_betas.json")).rope_scaling
    assert load_model(str(shared / "cases" / "fp8_checkpoint.json")).stored_as == "w8a8"


ATTENTION = [f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(2) for name in "qkvo"]


@pytest.mark.parametrize(
    ("ignored", "kept"),
    [
        ({"ignore": ["lm_head", "re:.*self_attn.*"]}, {"attention"}),
        ({"ignore": ["re:.*self_attn.*", r"re:.*mlp\.(gate|up|down)_proj.*"]}, {"attention", "mlp"}),
        ({"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, {"attention"}),
        ({"modules_to_not_convert": ["self_attn"]}, {"attention"}),
        ({"ignored_layers": ATTENTION}, {"attention"}),
        ({"ignored_layers": ATTENTION[:-1]}, {"attention.q_proj", "attention.k_proj", "attention.v_proj"}),
        ({"modules_to_not_convert": ["o_proj"]}, {"attention.o_proj"}),
        ({"ignore": ["re:.*o_proj", r"re:.*mlp\.down_proj"]}, {"attention.o_proj", "mlp.down_proj"}),
        ({"exclude": ["*down_proj"]}, {"mlp.down_proj"}),
        ({"ignored_layers": ["model.layers.0.*"]}, set()),
        ({"ignore": ["re:(", "lm_head", "re:.*gate$"]}, set()),
        ({"ignore": "lm_head"}, set()),
    ],
)
def test_parts_that_a_checkpoint_leaves_out_stay_in_16_bits(
    tmp_path: Path, ignored: dict[str, Any], kept: set[str]
) -> None:
    given = {"quant_method": "compressed-tensors", "config_groups": group(4, None), **ignored}
    assert read(tmp_path, {**GOOD, "quantization_config": given}).keeps == kept


@pytest.mark.parametrize("ignored", [["q_proj"], ["k_proj", "v_proj"], ["re:.*gate_proj"]])
def test_half_of_what_engines_pack_is_refused(tmp_path: Path, ignored: list[str]) -> None:
    given = {"quant_method": "compressed-tensors", "config_groups": group(8, 8), "ignore": ignored}
    (line,) = refusal(tmp_path, {**GOOD, "quantization_config": given})
    assert line.startswith("quantization_config: compressed-tensors (INT8 weights, 8-bit activations) has ")
    assert "in 16 bits, but not all of " in line


def test_products_of_single_layers_are_told_of(tmp_path: Path) -> None:
    given = {"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["model.layers.1.mlp.down_proj", "lm_head"]}
    model = read(tmp_path, {**GOOD, "quantization_config": given})
    assert model.keeps == frozenset()
    layer = {**given, "modules_to_not_convert": ["model.layers.0.*", r"re:.*layers\.(0|1)\.mlp.*"]}
    assert "and 2 modules of single layers" in read(tmp_path, {**GOOD, "quantization_config": layer}).stored
    assert model.stored == "AWQ of 4 bits, and 1 modules of single layers, which are quantised here"


@pytest.mark.parametrize("fused", [True, False])
def test_single_products_stay_in_16_bits(tmp_path: Path, fused: bool) -> None:
    ignored = ["o_proj", "re:.*down_proj"]
    given = {"quant_method": "compressed-tensors", "config_groups": group(8, None), "ignore": ignored}
    model = read(tmp_path, {**GOOD, "quantization_config": given})
    assert model.stored.endswith("with o_proj of attention and down_proj of plain MLPs in 16 bits")
    fusion = {"qkv": fused, "gate_up": fused}
    scenario = Scenario.model_validate(
        {"optimizations": {"weights": "w8a16", "fusion": fusion}, "workload": {"batch": 2, "input_tokens": 100,
         "output_tokens": 8}}
    )  # fmt: skip
    layer = next(block for block in build(scenario, model, decode_batch(scenario)).blocks if block.is_layer)
    held = {op.name: op.inputs[1].dtype for op in layer.ops if op.name.endswith("_proj")}
    assert {name for name, dtype in held.items() if dtype != "int8"} == {"o_proj", "down_proj"}
    assert model.kept_weights(model.keeps) == (2 * (64 * 64 + 160 * 64), 2 * (64 + 64))
    quantised = 64 * (64 + 2 * 16) + 2 * 64 * 160 + 4 * (64 + 2 * 16 + 2 * 160)
    assert weight_bytes(scenario, model) == 2 * quantised + 2 * 2 * (64 * 64 + 160 * 64) + 2 * model.other_weights


@pytest.mark.parametrize(
    ("part", "product", "sizes"),
    [
        ("experts", "down_proj", (8 * 32 * 64, 8 * 64)),
        ("experts", "gate_proj", (8 * 32 * 64, 8 * 32)),
        ("experts", "", (3 * 8 * 32 * 64, 8 * (2 * 32 + 64))),
        ("shared", "up_proj", (32 * 64, 32)),
        ("attention", "k_proj", (64 * 16, 16)),
    ],
)
def test_products_of_experts_have_their_sizes(tmp_path: Path, part: str, product: str, sizes: tuple[int, int]) -> None:
    config = {**GOOD, "model_type": "glm4_moe", "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
              "moe_intermediate_size": 32}  # fmt: skip
    model = read(tmp_path, config)
    assert model._of_part(f"{part}.{product}" if product else part) == sizes


def test_what_is_kept_is_neither_quantised_nor_counted_so(tmp_path: Path) -> None:
    given = {"quant_method": "compressed-tensors", "config_groups": group(8, None), "ignore": ["re:.*self_attn.*"]}
    model = read(tmp_path, {**GOOD, "quantization_config": given})
    scenario = Scenario.model_validate(
        {"optimizations": {"weights": "w8a16"}, "workload": {"batch": 2, "input_tokens": 100, "output_tokens": 8}}
    )
    layer = next(block for block in build(scenario, model, decode_batch(scenario)).blocks if block.is_layer)
    held = {op.name: op.inputs[1].dtype for op in layer.ops if op.name.endswith("_proj")}
    assert {name for name, dtype in held.items() if dtype == "int8"} == {"gate_up_proj", "down_proj"}
    attention, mlp = 2 * 64 * 64 + 2 * 64 * 16, 3 * 64 * 160
    assert model.kept_weights(model.keeps) == (2 * attention, 2 * (64 + 16 + 16 + 64))
    assert weight_bytes(scenario, model) == (
        2 * (mlp + 4 * (2 * 160 + 64)) + 2 * (2 * attention) + 2 * model.other_weights
    )
    # As other weights than the checkpoint's all linear layers are those.
    assert model.kept_in("w8a8") == frozenset()


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}, "input_tensors":
          {"dtype": "fp8_e4m3"}}}, "w8a8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}, "input_tensors": {"dtype":
          "fp4"}}}, "w4a8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "uint4"}, "input_tensors": None}},
         "w4a16"),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "w4a16"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}, "w8a16"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type":
          "Int8DynamicActivationInt8WeightConfig"}}}, "w8a8"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type":
          "Float8DynamicActivationFloat8WeightConfig"}}}, "w8a8"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type":
          "Int8DynamicActivationInt4WeightConfig"}}}, "w4a8"),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}}, "w4a16"),
        ({"quant_method": "hqq", "quant_config": {"q_proj": {"weight_quant_params": {"nbits": 8}}}}, "w8a16"),
        ({"quant_method": "quanto", "weights": "int8"}, "w8a16"),
        ({"quant_method": "w4afp8"}, "w4a8"),
        ({"quant_method": "gptq_marlin", "bits": 4}, "w4a16"),
        ({"quant_method": "intel/auto-round", "bits": 4}, "w4a16"),
        ({"quant_method": "eetq"}, "w8a16"),
    ],
)  # fmt: skip
def test_each_rarer_format_has_a_nearest(tmp_path: Path, given: dict[str, Any], nearest: str) -> None:
    assert read(tmp_path, {**GOOD, "quantization_config": given}).stored_as == nearest


def test_weights_of_mlx_say_their_bits(tmp_path: Path) -> None:
    assert read(tmp_path, {**GOOD, "quantization": {"group_size": 64, "bits": 4}}).stored_as == "w4a16"


@pytest.mark.parametrize("method", ["aqlm", "bitnet", "vptq", "higgs", "spqr", "quip"])
def test_formats_that_are_near_to_none_are_refused(tmp_path: Path, method: str) -> None:
    (line,) = refusal(tmp_path, {**GOOD, "quantization_config": {"quant_method": method, "bits": 2}})
    assert f"quant_method '{method}' has no near" in line


@pytest.mark.parametrize("given", [{"quant_type": "int3_weight_only"}, {}, {"quant_type": 3}])
def test_a_type_of_torchao_that_is_near_to_none_is_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    (line,) = refusal(tmp_path, {**GOOD, "quantization_config": {"quant_method": "torchao", **given}})
    assert "has no near `optimizations.weights`" in line
