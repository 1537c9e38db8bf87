"""Sizes of published models, written down by hand: each config runs, and has the parameters that its card states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenarios.batches import decode_batch, prefill_batches
from scenarios.build import build
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.catalogue import work_of
from scenarios.schema import Scenario

PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
#: KV bytes of a token in 16 bits until windows are full, and of a whole state: layers times what one keeps.
KEPT = {
    "gpt-oss-120b": (36 * 2 * 8 * 64 * 2, 0),
    "gemma-3-27b": (62 * 2 * 16 * 128 * 2, 0),
    "gemma-4-31b": (50 * 2 * 16 * 256 * 2 + 10 * 2 * 4 * 512 * 2, 0),
    "Qwen3-Next-80B-A3B": (12 * 2 * 2 * 256 * 2, 36 * (32 * 128 * 128 * 2 + 3 * 8192 * 2)),
    "Hunyuan-Large": (32 * 2 * 8 * 80 * 2, 0),  # two layers share their keys
    "Nemotron-H-8B": (4 * 2 * 8 * 128 * 2, 24 * (128 * 64 * 128 * 2 + 3 * (8192 + 2 * 8 * 128) * 2)),
    "GLM-5.2": (78 * (512 + 64) * 2 + 21 * 128 * 2, 0),  # of 78 layers 21 have an indexer
    # Of 27 layers 7 keep latent rows, and 20 a matrix of each head and the last inputs of the convolution.
    "Kimi-Linear-48B": (7 * (512 + 64) * 2, 20 * (32 * 128 * 128 * 4 + 3 * 3 * 4096 * 2)),
    "MiMo-V2-Flash": ((9 * 4 + 39 * 8) * (192 + 128) * 2, 0),
    "Baichuan2-13B": (40 * 2 * 5120 * 2, 0),
    "openPangu-Pro-MoE-72B": (48 * 2 * 8 * 128 * 2, 0),
    "DeepSeek-OCR": (12 * 2 * 10 * 128 * 2, 0),
    "LFM2-1.2B": (6 * 2 * 8 * 64 * 2, 10 * 2 * 2048 * 2),
}


def read(name: str, folder: Path) -> Model:
    (folder / "config.json").write_text(json.dumps(PUBLISHED[name]["config"]), encoding="utf-8")
    return load_model(str(folder))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_card(name: str, tmp_path: Path) -> None:
    model = read(name, tmp_path)
    assert (model.linear_weights + model.other_weights) / 1e9 == pytest.approx(PUBLISHED[name]["billions"], rel=0.005)


@pytest.mark.parametrize("name", KEPT)
def test_what_a_request_keeps(name: str, tmp_path: Path) -> None:
    model = read(name, tmp_path)
    assert model.kv_bytes_per_token(16) == KEPT[name][0]
    assert sum(count * one.state.state_bytes for one, count in model.runs if one.state) == KEPT[name][1]


def test_a_window_keeps_no_more_than_it_sees(tmp_path: Path) -> None:
    model = read("gpt-oss-120b", tmp_path)
    layer = 2 * 8 * 64 * 2
    for tokens in (100, 128, 131_072):
        kept = model.kept_bytes(tokens, lambda one: one.cached_elements * 2)
        assert kept == 18 * layer * tokens + 18 * layer * min(tokens, 128)


@pytest.mark.parametrize("name", ["gpt-oss-120b", "gemma-4-31b", "Nemotron-3-Nano", "Llama-4-Maverick", "LFM2-1.2B"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_each_kind_of_layers_is_lowered(name: str, phase: str, tmp_path: Path) -> None:
    model = read(name, tmp_path)
    sizes = {"phase": phase, "batch": 2, "input_tokens": 9000, "output_tokens": 8}
    scenario = Scenario.model_validate({"workload": sizes})
    batch = decode_batch(scenario) if phase == "decode" else prefill_batches(scenario)[-1]
    program = build(scenario, model, batch)
    assert sum(block.repeat for block in program.blocks if block.is_layer) == model.layers
    for block in program.blocks:
        names = [op.name for op in block.ops]
        assert len(names) == len(set(names))
    layers = {id(block.ops): block for block in program.blocks if block.is_layer}
    assert len(layers) == len(model.kinds)  # runs of one kind share what they issue
    assert all(work_of(op).gm_bytes > 0 for block in layers.values() for op in block.ops)


#: What a key of a config may hold by mistake.
WRONG = (None, True, 0, -1, "x", [], ["a"], [None], {}, {"a": 1}, 1.5, 1 << 40, float("nan"))


@pytest.mark.parametrize(
    "name",
    [
        "gpt-oss-120b",
        "gemma-4-31b",
        "Qwen3-Next-80B-A3B",
        "Llama-4-Scout",
        "Nemotron-H-8B",
        "MiMo-V2-Flash",
        "Kimi-Linear-48B",
        "openPangu-Pro-MoE-72B",
        "TeleChat2-115B",
        "Mistral-Large-3",
        "Baichuan2-13B",
    ],
)
def test_a_wrong_value_is_a_model_or_a_line(name: str, tmp_path: Path) -> None:
    config = PUBLISHED[name]["config"]
    part = "text_config" if "text_config" in config else ""
    text = config[part] if part else config
    refusals: list[str] = []
    for place, key in enumerate((*text, "layer_types", "rope_parameters", "num_kv_shared_layers")):
        for value in WRONG[place % 3 :: 3]:
            changed = {**text, key: value}
            (tmp_path / "config.json").write_text(json.dumps({**config, part: changed} if part else changed))
            try:
                load_model(str(tmp_path))
            except ScenarioError as error:
                refusals += error.messages
    assert len(refusals) > 20
    assert not [line for line in refusals if "\n" in line]
