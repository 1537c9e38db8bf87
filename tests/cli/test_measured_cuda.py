"""`whatif run --backend cuda`: for real on a GPU (`pytest -m cuda`); what is said where there is none, anywhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from device.backends import choose
from device.measure.answer import what_failed
from scenarios.errors import ScenarioError

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
on_gpu = pytest.mark.skipif(not GPUS, reason=f"no GPU that torch {torch.__version__} sees: nothing of CUDA can run")
two_gpus = pytest.mark.skipif(GPUS < 2, reason=f"two ranks want two GPUs, there are {GPUS}")
pytestmark = pytest.mark.xdist_group("torch")

SCENARIO = "llama_3_1_8b_h200_decode"


class Built:
    """A torch that is built for CUDA, on a machine with `count` GPUs, of which torch says `error`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, error: str = "") -> None:
        self.error = error
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        for name in ("device_count", "is_available", "set_device", "init"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        self.count = count

    def device_count(self) -> int:
        return self.count

    def is_available(self) -> bool:
        return self.count > 0

    def set_device(self, _: object) -> None:
        """A context is made later."""

    def init(self) -> None:
        if self.error:
            raise RuntimeError(self.error)


def test_without_a_gpu_one_line_says_where_to_look(whatif: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Built(monkeypatch, 0)
    done = whatif("run", SCENARIO, "--backend", "cuda")
    assert (done.status, done.out) == (2, "")
    expected = (
        "--backend cuda: no GPU is there; see nvidia-smi and CUDA_VISIBLE_DEVICES; `whatif doctor --backend cuda` "
    )
    assert done.problems == [f"{expected}says what is missing"]


def test_a_gpu_that_cannot_be_used_is_one_line(whatif: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Built(monkeypatch, 1, "CUDA error: all CUDA-capable devices are busy or unavailable\nSearch for `cudaErrorDevices'")
    (line,) = whatif("run", SCENARIO, "--backend", "cuda").problems
    assert line.startswith("--backend cuda: GPU 0 cannot be used (CUDA error: all CUDA-capable devices are busy or")


def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Built(monkeypatch, 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ScenarioError, match="rank 2 has no GPU of its own, there are 2; take fewer ranks"):
        choose("cuda")


def test_more_ranks_than_gpus_are_refused_before_one_starts(
    whatif: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Built(monkeypatch, 2)
    monkeypatch.setattr("device.operators.cuda.only_fused_attention", lambda: None)
    done = whatif("run", SCENARIO, "--backend", "cuda", "--set", "engine.tensor_parallel_size=4")
    said = "--backend cuda: engine.tensor_parallel_size: 4 ranks want a device each, there are 2; take fewer ranks"
    assert (done.status, done.problems) == (2, [said])


def test_a_prediction_for_another_device_is_not_laid_beside_a_gpu(
    whatif: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Built(monkeypatch, 1)
    monkeypatch.setattr("device.operators.cuda.only_fused_attention", lambda: None)
    (line,) = whatif("run", "qwen3_0_6b_decode", "--backend", "cuda").problems
    said = "is a profile for npu, and --backend measures cuda; set it to h200_sxm"
    assert re.fullmatch(rf".*qwen3_0_6b_decode\.yaml:\d+:\d+: hardware: \w+ {said}", line)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore"),
            "out of memory: CUDA out of memory. Tried to allocate 2.00 GiB.",
        ),
        (
            RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
            "out of memory: CUDA error: out of memory",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "out of memory: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        ),
        (
            RuntimeError("CUDA error: an illegal memory access was encountered\nmore\nmore"),
            "the GPU failed (CUDA error: an illegal memory access was encountered): see nvidia-smi and dmesg; "
            "CUDA_LAUNCH_BLOCKING=1 says which call it was",
        ),
        (
            RuntimeError("No available kernel. Aborting execution."),
            "no fused attention kernel of this GPU takes this shape and type; set fusion.attention to false",
        ),
    ],
)
def test_what_a_gpu_says_is_one_line(error: RuntimeError, line: str) -> None:
    assert what_failed(error) == line


def test_a_fault_of_this_program_stays_one() -> None:
    assert what_failed(RuntimeError("shape mismatch")) is None


# ---- on a GPU ----


@pytest.mark.cuda
@on_gpu
def test_the_command_measures_beside_its_prediction(whatif: Callable[..., Any], tmp_path: Path) -> None:
    small = ("--set", "model=Qwen3-0.6B", "--set", "workload.input_tokens=64", "--set", "workload.output_tokens=8")
    out = tmp_path / "out.json"
    done = whatif("run", SCENARIO, "--backend", "cuda", "--json", out, *small)
    assert (done.status, done.err) == (0, "")
    measured = json.loads(out.read_text())["measured"]
    assert measured["backend"] == "cuda"
    assert sum(op["ops"] for op in measured["ops"]) == json.loads(out.read_text())["kernel_count"]
    assert measured["step"]["total_us"] > 0


@pytest.mark.cuda
@two_gpus
def test_torchrun_starts_the_ranks_too(tmp_path: Path, root: Path) -> None:
    out = tmp_path / "out.json"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "cli", "run",
        SCENARIO, "--backend", "cuda", "--json", str(out), "--set", "model=Qwen3-0.6B",
        "--set", "engine.tensor_parallel_size=2", "--set", "workload.input_tokens=64",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["measured"]["step"]["communication_us"] > 0
