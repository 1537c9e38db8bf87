"""A config.json whose weights are quantised: the nearest weights are taken, and a line says so."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from scenarios.loader import load_scenario, load_text
from scenarios.models.hf_config import SHIPPED
from sim.predict.scenario_result import case_of, first_result
from sim.predict.stored import notes_of_hardware
from sim.report.run import _head


def answer(folder: Path, **workload: str) -> dict[str, Any]:
    config = json.loads((SHIPPED / "Tiny-Llama" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(config))
    sets = [f"model={folder / 'config.json'}", "hardware=atlas_a3_die", *(f"{k}={v}" for k, v in workload.items())]
    return first_result(load_text("workload: {batch: 1, input_tokens: 64, output_tokens: 8}\n", "mine", sets)).result


def test_a_scenario_that_gives_no_weights_takes_the_nearest(tmp_path: Path) -> None:
    result = answer(tmp_path)
    assert result["scenario"]["optimizations"]["weights"] == "w8a8"
    told = "config.json: weights stored as FP8 (e4m3, blocks of 128 x 128) are computed as w8a8, the nearest here"
    assert result["notes"] == [told]
    console = Console(width=200, record=True, file=StringIO())
    console.print(_head(result))
    assert told in console.export_text()


def test_weights_that_a_scenario_gives_are_kept_and_the_difference_is_said(tmp_path: Path) -> None:
    result = answer(tmp_path, **{"optimizations.weights": "bf16"})
    assert result["scenario"]["optimizations"]["weights"] == "bf16"
    (note,) = result["notes"]
    assert note.endswith("(e4m3, blocks of 128 x 128); the nearest is w8a8, and the scenario computes bf16")


def test_the_shipped_cpu_says_which_core_it_is_of() -> None:
    """Before the numbers: a core without units for 16-bit products takes 10 to 18 times as long for a prefill."""
    (note,) = first_result(load_scenario("tiny_llama_cpu")).result["notes"]
    assert note.startswith("cpu: of a core that multiplies 16-bit numbers in hardware")
    assert "AVX2" in note
    assert first_result(load_scenario("qwen3_8b_decode")).result["notes"] == []


def test_a_calibrated_cpu_takes_nothing_for_granted() -> None:
    case = case_of(load_scenario("tiny_llama_cpu"))
    measured = case.hardware.profile.model_copy(
        update={"reference_us": case.hardware.profile.numbers()["host.launch_us"]}
    )
    assert notes_of_hardware(case.scenario, case.model, case.hardware)
    assert not notes_of_hardware(case.scenario, case.model, replace(case.hardware, profile=measured))
