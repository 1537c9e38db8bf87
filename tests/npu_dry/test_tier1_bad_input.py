"""torch_npu is installed, and something that it needs is not: one line each, from the real command and the real wheel.

Here without the stand-ins: this is what a machine without CANN says.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from device.doctor.npu_trials import TRIALS
from device.operators.npu.plan import lacking
from scenarios.batches import decode_batch, prefill_batches, reported_batch
from scenarios.build import build
from scenarios.loader import load_scenario
from scenarios.lowering.parallel import shard_of
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.schema import Scenario

ROOT = Path(__file__).resolve().parents[2]


def whatif(*arguments: str, first_on_path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    if first_on_path:
        environment["PYTHONPATH"] = str(first_on_path)
    return subprocess.run(
        [sys.executable, "cli.py", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90
    )


def test_without_cann_the_npu_backend_is_one_line() -> None:
    done = whatif("run", "tiny_llama_cpu", "--backend", "npu")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("--backend npu: CANN is not there (lib")
    assert "source its set_env.sh; `whatif doctor --backend npu`" in line


def test_without_cann_the_cpu_backend_runs_beside_an_installed_torch_npu() -> None:
    done = whatif("run", "tiny_llama_cpu", "--backend", "cpu")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_torch_npu_for_another_torch_is_one_line(tmp_path: Path) -> None:
    info = tmp_path / "torch_npu-2.8.0.post4.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-npu\nVersion: 2.8.0.post4\n")
    done = whatif("run", "tiny_llama_cpu", "--backend", "npu", first_on_path=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("--backend npu: torch_npu 2.8.0.post4 wants torch 2.8.0, installed is 2.13.0")


def test_doctor_says_what_is_missing_and_ends_with_1() -> None:
    done = whatif("doctor", "--backend", "npu")
    assert (done.returncode, done.stderr) == (1, "")
    lines = [line.split(None, 1) for line in done.stdout.splitlines() if line.startswith(("  ok", "  MISSING"))]
    assert [state for state, _ in lines] == ["MISSING"] * 4 + ["ok", "ok", "MISSING", "MISSING"]
    assert any(rest.startswith("torch_npu        2.13.0") for _, rest in lines)
    assert any(rest.startswith("torch sees them  CANN is not found (") for _, rest in lines)


def scenario_of(words: list[str]) -> str:
    """The scenario that a trial's command runs."""
    return words[words.index("run") + 1 if "run" in words else words.index("device.doctor.errors") + 2]


def part_of(scenario: Scenario) -> Model:
    """What one rank holds of the scenario's model."""
    engine = scenario.engine
    return shard_of(engine, load_model(scenario.model), engine.tensor_parallel_size, engine.data_parallel_size)


@pytest.mark.parametrize("number", range(1, len(TRIALS)))
def test_a_trial_asks_for_nothing_that_is_refused(number: int) -> None:
    """The whole-size Programs of the trials, rehearsed on the real meta kernels."""
    words = shlex.split(TRIALS[number].command)
    sets = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    scenario = load_scenario(scenario_of(words), sets).scenario
    part = part_of(scenario)
    for batch in (decode_batch(scenario), *prefill_batches(scenario)):
        assert lacking(build(scenario, part, batch), part, "2.13.0") == []


#: Whole models of the shipped scenarios, on one rank or split over tensor-parallel ones.
WHOLE = {
    "qwen3_30b_a3b_decode": (),
    "glm_4_5_air_ep8_decode": (),
    "deepseek_v3_ep16_decode": (),
    "deepseek_v3_ep16_decode, not spread": (
        "engine.enable_expert_parallel=false",
        "engine.data_parallel_size=1",
        "engine.tensor_parallel_size=16",
        "optimizations.kv.layout=paged",
    ),
}


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_models_of_experts_are_taken(name: str, phase: str) -> None:
    scenario = load_scenario(name.partition(",")[0], [*WHOLE[name], f"workload.phase={phase}"]).scenario
    part = part_of(scenario)
    assert lacking(build(scenario, part, reported_batch(scenario)), part, "2.13.0") == []
