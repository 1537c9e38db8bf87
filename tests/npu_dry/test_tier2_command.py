"""`whatif run --backend npu` from end to end on the dry runtime, alone and as two ranks under torchrun.

The times are those of this host and the tokens are what lay in memory: only that all of it runs is shown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.npu_dry import stubs

ROOT = Path(__file__).resolve().parents[2]


def dry(*command: str, devices: int = 1) -> subprocess.CompletedProcess[str]:
    """A command with the dry runtime where CANN would be."""
    more = {"LD_LIBRARY_PATH": str(stubs.built("dry")), "DRYCANN_DEVICES": str(devices), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **more}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )


#: The scenario is a CPU's, which waits after each op and has no second launching thread.
NPU = (
    *("--set", "hardware=atlas_a2_910b2"),
    *("--set", "protocol.synchronize=step"),
    *("--set", "engine.task_queue_enable=1"),
)
RUN = ("run", "tiny_llama_cpu", "--backend", "npu", *NPU, "--set", "optimizations.graph=aclgraph")


def test_a_captured_step_is_laid_beside_its_prediction(tmp_path: Path) -> None:
    done = dry("cli.py", *RUN, "--json", str(tmp_path / "run.json"))
    assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["measured"]
    assert (measured["backend"], measured["torch_npu"]) == ("npu", "2.13.0")
    (step,) = (op for op in measured["ops"] if op["form"] == "captured")
    assert step["ops"] > 60
    assert step["predicted_us"] > 0 < step["measured_us"]
    assert measured["op_times"] == "call"  # the dry runtime's clock tells no product's time, so nothing is queued
    refused = dry("cli.py", *RUN, "--set", "protocol.synchronize=op", "--set", "engine.task_queue_enable=2")
    assert refused.returncode == 2
    assert refused.stderr.startswith("--backend npu: protocol.synchronize: the host waits at the end of a step")
    assert "TASK_QUEUE_ENABLE of this process is 1; export it before the start" in refused.stderr


@pytest.mark.slow
def test_a_profile_holds_the_host_side_of_the_steps(tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    done = dry("cli.py", *RUN, "--profile", str(folder))
    assert done.returncode == 0, done.stderr
    (result,) = folder.iterdir()
    assert result.name.startswith("rank0_")
    assert result.name.endswith("_ascend_pt")
    assert (result / "FRAMEWORK").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["profile"]  # nothing half-done next to it


@pytest.mark.slow
def test_two_ranks_under_torchrun(tmp_path: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29533", "cli.py")
    more = ("--set", "engine.tensor_parallel_size=2", "--json", str(tmp_path / "run.json"))
    done = dry(*torchrun, *RUN, *more, devices=2)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["measured"]["backend"] == "npu"


@pytest.mark.slow
def test_an_experiment_needs_no_edit_for_an_npu(tmp_path: Path) -> None:
    """Both sides captured, in turn, with what the backend lacks named. The numbers lay in memory, and are called so."""
    more = ("--factors", "weights=w8a8,weights=w4a8,fusion.ffn", "--budget-s", "60", "--out", str(tmp_path / "report"))
    done = dry("cli.py", "experiment", *RUN[1:], *more)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    rows = {row["factor"]: row for row in result["factors"]}
    assert rows["weights=w8a8"]["status"] == "measured"
    assert rows["weights=w8a8"]["measured"]["tpot"]["turns"] >= 6
    assert rows["fusion.ffn"]["status"] == "measured"
    assert rows["weights=w4a8"]["status"] == "refused"
    assert "rows of 704 beside INT4 weights; multiples of 256 are taken" in rows["weights=w4a8"]["reason"]
    assert (result["baseline"]["machine"]["backend"], result["baseline"]["hardware"]) == ("npu", "atlas_a2_910b2")
