"""docs/models.md and the tables of families say the same, and each published config runs or is refused by feature."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.models.families import FAMILIES
from scenarios.models.hf_config import load_model
from scenarios.models.unmodelled import FEATURES, REFUSED

#: Parameters of the text decoder as published, in 10^9, and KV bytes of a token in 16 bits, of the configs that run.
#: Kimi-K2: 1.04 T with 61 layers (its model card says 1T; its tensors sum to 1,026.4 without the FP8 scales).
RUN = {
    "DeepSeek-V3": (671.03, 70_272),
    "DeepSeek-V3.1": (671.03, 70_272),
    "DeepSeek-V3.2": (671.88, 85_888),  # 671.03 and an indexer of 13.96 million in each of 61 layers
    # Of a token 43 rows of windows, 21 layers with a row and an INT8 key of 4 tokens, 20 with a row of 128.
    "DeepSeek-V4-Flash": (284.33, 43 * 1024 + 21 * (1024 + 130) // 4 + 20 * 1024 // 128),
    "GLM-5.1": (743.9, 109_824),
    "Kimi-K2-Instruct": (1026.41, 70_272),
    "MiniMax-M2": (228.70, 253_952),
    "MiniMax-M2.5": (228.70, 253_952),
    "Mixtral-8x7B": (46.703, 131_072),
    "Qwen3-0.6B": (0.596, 114_688),
    "Qwen3-1.7B": (1.7206, 114_688),
    "Qwen3-14B": (14.768, 163_840),
    "Qwen3-235B-A22B": (235.09, 192_512),
    "Qwen3-235B-A22B-FP8": (235.09, 192_512),
    "Qwen3-30B-A3B": (30.532, 98_304),
    "Qwen3-32B": (32.762, 262_144),
    "Qwen3-32B-FP8-Static-PerTensor": (32.762, 262_144),
    "Qwen3-4B": (4.0225, 147_456),
    "Qwen3-8B": (8.1907, 147_456),
    "Qwen3-VL-30B-A3B": (30.532, 98_304),
    "Qwen3-VL-32B": (32.762, 262_144),
    "Qwen3.5-27B": (26.896, 65_536),  # of 16 layers of 64; without MTP and the tower
    "Qwen3.5-35B-A3B": (34.661, 20_480),
    "gpt-oss-20b": (20.915, 49_152),
    "gemma-4-26B-A4B": (25.233, 225_280),  # of 25 layers with a window and 5 with wide heads
}


def table(root: Path, heading: str) -> str:
    text = (root / "docs" / "models.md").read_text(encoding="utf-8")
    return text.split(f"## {heading}\n")[1].split("\n## ")[0]


def types_of(rows: str) -> set[str]:
    """The words in backticks of each row's first cell."""
    cells = [line.split("|")[1] for line in rows.splitlines() if line.startswith("| `") and "model_type" not in line]
    return {word for cell in cells for word in re.findall(r"`([\w-]+)`", cell)}


def test_the_page_lists_each_family(root: Path) -> None:
    assert types_of(table(root, "Families that run")) == set(FAMILIES)
    refused = table(root, "What is refused, and why").partition("### By key")[0]
    assert types_of(refused) == set(REFUSED)
    assert not set(FAMILIES) & set(REFUSED)


def test_the_page_names_each_key_that_a_refusal_shows(root: Path) -> None:
    page = table(root, "What is refused, and why")
    keys = {key for words in REFUSED.values() for key in re.findall(r"\((\w+)\)", words)}
    spared = {"use_qk_norm", "attn_type_list", "linear_attn_config", "layer_types"}
    assert {key for key in keys - spared if f"`{key}`" not in page} == set()


def test_each_published_config_runs_or_is_refused_by_a_feature_of_the_page(shared: Path, root: Path) -> None:
    page = table(root, "What is refused, and why")
    for folder in sorted((shared / "models").iterdir()):
        try:
            model = load_model(str(folder))
        except ScenarioError as error:
            assert folder.name not in RUN
            (line,) = error.messages
            assert "is not modelled: it has " in line
            assert any(f"`{key}`" in page for key in re.findall(r"\((\w+)\)", line)), line
            assert "The nearest shipped model that runs is " in line
            continue
        billions, kv_bytes = RUN[folder.name]
        assert (model.linear_weights + model.other_weights) / 1e9 == pytest.approx(billions, rel=0.001), folder.name
        assert model.kv_bytes_per_token(16) == kv_bytes


def test_the_page_names_each_key_that_the_code_can_refuse(root: Path) -> None:
    """Those of FEATURES, and those that readers refuse by name."""
    rows = table(root, "What is refused, and why").partition("### By key")[2]
    source = "".join(path.read_text(encoding="utf-8") for path in (root / "scenarios" / "models").glob("*.py"))
    by_name = re.findall(r'wrong\(\s*f?"(\w+)[^"]*modelled', source)
    assert len(by_name) >= 8
    assert {key for key in (*FEATURES, *by_name) if f"`{key}`" not in rows} == set()
