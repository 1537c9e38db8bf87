"""`whatif run --backend cpu`: the step runs for real, op by op next to its prediction."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.build import build
from scenarios.models.hf_config import load_model
from scenarios.trace import read_trace
from tests.scenarios.making import scenario

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("torch")]

TINY = "scenarios/tiny_llama_cpu.yaml"
#: Small, so that all repeats take a second.
SMALL = ("--set", "workload.batch=2", "--set", "workload.input_tokens=16", "--set", "workload.output_tokens=8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, whatif: Callable[..., Any]) -> dict[str, Any]:
    """One measured run: its document, its trace and what the terminal showed."""
    folder = tmp_path_factory.mktemp("measured")
    done = whatif(
        "run", TINY, "--backend", "cpu", "--json", folder / "out.json", "--trace", folder / "trace.json", *SMALL
    )
    assert (done.status, done.err) == (0, "")
    return {
        "result": json.loads((folder / "out.json").read_text()),
        "trace": read_trace(folder / "trace.json"),
        "out": done.out,
    }


def test_every_op_of_the_program_is_measured_and_predicted(made: dict[str, Any]) -> None:
    result, ops = made["result"], made["result"]["measured"]["ops"]
    assert [op["index"] for op in ops] == list(range(result["kernel_count"]))
    assert all(op["predicted_us"] > 0 and op["low_us"] <= op["measured_us"] <= op["high_us"] for op in ops)
    assert sum(row["count"] for row in result["measured"]["kernels"]) == len(ops)
    given = {key: value for key, value in result["scenario"].items() if key != "name"}
    program = build(scenario().model_validate(given), load_model("Tiny-Llama"), _batch(given))
    assert [op["name"] for op in ops] == [issued.op.name for issued in program]


def _batch(given: dict[str, Any]) -> Any:
    from scenarios.batches import reported_batch

    return reported_batch(scenario().model_validate(given))


def test_the_measured_step_adds_up_and_says_where_it_was_measured(made: dict[str, Any]) -> None:
    measured = made["result"]["measured"]
    step = measured["step"]
    assert step["total_us"] == pytest.approx(
        step["computing_us"] + step["communication_not_overlapped_us"] + step["free_us"]
    )
    assert (measured["kind"], measured["backend"], measured["threads"]) == ("measured", "cpu", 1)
    raw, steady = {"step", "ops", "op_median", "op_p90", "op_bias"}, {"steady_step", "steady_ops", "steady_op_median"}
    assert set(measured["errors"]) == raw | steady
    assert measured["scaled_by"] == 1  # the profile `cpu` does not say how fast its machine was
    assert 0 < measured["steady_step"]["low_us"] <= measured["steady_step"]["median_us"]
    total = sum(op["measured_us"] for op in measured["ops"])
    predicted = sum(op["predicted_us"] for op in measured["ops"])
    assert measured["errors"]["ops"] == pytest.approx(predicted / total - 1)
    assert made["result"]["provenance"]["worst_source"] == "assumed"


def test_the_trace_holds_both_as_neighbours(made: dict[str, Any]) -> None:
    predicted, measured = made["trace"]
    assert (predicted.label, predicted.device) == ("SIMULATED", "CPU")
    assert (measured.label, measured.device) == ("MEASURED", "CPU")
    assert [s.index for s in measured.spans] == list(range(len(measured.spans)))
    assert {s.process for s in measured.spans} == {"Device"}  # a CPU's spans never look like Ascend's
    assert {s.process for s in predicted.device_spans} == {"Device"}
    by_index = {s.index: s.kind for s in predicted.device_spans}
    assert {s.index: s.kind for s in measured.spans} == by_index


def test_the_terminal_shows_both(made: dict[str, Any]) -> None:
    assert "predicted, measured below" in made["out"]
    assert "Measured on cpu" in made["out"]
    assert re.search(r"The 24 of \d+ ops that differ most, times of calls: mark to mark", made["out"])
    # Long numbers wrap it.
    assert made["out"].rstrip().rpartition("\n\n")[2].startswith("Measured step ")


# ---- bad input ----


def test_without_torch_one_line_says_what_to_install(whatif: Callable[..., Any], absent: Callable[[str], None]) -> None:
    absent("torch")
    done = whatif("run", TINY, "--backend", "cpu")
    expected = "--backend cpu: torch is not installed; pip install 'ascend-whatif[device]'"
    assert (done.status, done.out, done.problems) == (2, "", [expected])


def test_what_does_not_fit_is_refused_before_it_is_tried(
    whatif: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from device.backends.cpu import Cpu

    monkeypatch.setattr(Cpu, "free_bytes", lambda self: 1 << 20)
    done = whatif("run", TINY, "--backend", "cpu")
    assert (done.status, done.out) == (2, "")
    (line,) = done.problems
    assert line.startswith("--backend cpu: out of memory: weights of 0.01 GiB and a KV cache of 0.00 GiB")


def test_a_prediction_for_ascend_is_not_laid_beside_a_cpu(whatif: Callable[..., Any]) -> None:
    done = whatif("run", "qwen3_0_6b_decode", "--backend", "cpu")
    (line,) = done.problems
    assert (done.status, done.out) == (2, "")
    said = "is a profile for npu, and --backend measures cpu; set it to cpu"
    assert re.fullmatch(rf".*qwen3_0_6b_decode\.yaml:\d+:\d+: hardware: \w+ {said}", line)


def test_an_allocation_that_fails_is_one_line(whatif: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from device.weights.weights import RandomCheckpoint

    def fails(self: object, name: str) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes\ntrace")

    monkeypatch.setattr(RandomCheckpoint, "tensor", fails)
    done = whatif("run", TINY, "--backend", "cpu", *SMALL)
    expected = "--backend cpu: out of memory: DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"
    assert (done.status, done.out, done.problems) == (2, "", [expected])


@pytest.mark.slow
def test_a_compiler_that_fails_is_one_line(process: Callable[..., Any], tmp_path: Path, root: Path) -> None:
    environment = {"CXX": "/bin/false", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    swiglu = ("--set", "optimizations.fusion.swiglu=true")
    done = process("run", root / TINY, "--backend", "cpu", *SMALL, *swiglu, env=environment)
    (line,) = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (2, b"")
    assert re.match(
        r"--backend cpu: torch\.compile failed \(.*\): check the C\+\+ compiler, or set graph to eager", line
    )


def test_what_the_cpu_lacks_is_refused_by_name(whatif: Callable[..., Any]) -> None:
    done = whatif("run", TINY, "--backend", "cpu", "--set", "optimizations.weight_format=nz", *SMALL)
    assert done.status == 2
    expected = "--backend cpu: optimizations.weight_format: FRACTAL_NZ is the layout of Ascend's cube; set it to nd"
    assert done.problems == [expected]


# ---- tensor parallel ----

PAIR = ("--set", "engine.tensor_parallel_size=2", *SMALL)


@pytest.mark.slow
def test_two_ranks_measure_what_two_ranks_predict(
    whatif: Callable[..., Any], tmp_path: Path, made: dict[str, Any]
) -> None:
    done = whatif("run", TINY, "--backend", "cpu", "--json", tmp_path / "out.json", *PAIR)
    assert (done.status, done.err) == (0, "")
    result = json.loads((tmp_path / "out.json").read_text())
    measured = result["measured"]
    assert len(measured["ops"]) == result["kernel_count"]
    assert sum(op["kind"] == "all_reduce" for op in measured["ops"]) == 1 + 2 * 4
    assert measured["step"]["communication_us"] > 0
    assert measured["next_ids"] == made["result"]["measured"]["next_ids"]


@pytest.mark.slow
def test_torchrun_starts_the_ranks_too(tmp_path: Path, root: Path, made: dict[str, Any]) -> None:
    out = tmp_path / "out.json"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "cli", "run",
        TINY, "--backend", "cpu", "--json", str(out), *PAIR,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Measured on cpu") == 1  # rank 0 speaks for all
    assert json.loads(out.read_text())["measured"]["next_ids"] == made["result"]["measured"]["next_ids"]


def test_the_arithmetic_of_a_cpu_is_told_in_gflops(whatif: Callable[..., Any]) -> None:
    told = whatif("explain", TINY).out
    assert re.search(
        r"cube-bound: 0\.\d\d Gflop at [1-9]\d* GFLOPS in matmul, of [1-9]\d* at peak", " ".join(told.split())
    )


@pytest.mark.slow
def test_a_profile_is_a_chrome_trace_of_the_steps(whatif: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    folder.mkdir()  # an empty one gives way
    done = whatif("run", TINY, "--backend", "cpu", "--profile", folder, *SMALL)
    assert (done.status, done.err) == (0, "")
    assert [path.name for path in tmp_path.rglob("*")] == ["profile", "rank0.pt.trace.json"]
    events = json.loads((folder / "rank0.pt.trace.json").read_text())["traceEvents"]
    names = [event.get("name", "") for event in events]
    assert sum(name.startswith("ProfilerStep#") for name in names) == 3
    assert names.count("aten::linear") >= 3 * 10


@pytest.mark.slow
def test_every_rank_writes_its_profile(whatif: Callable[..., Any], tmp_path: Path) -> None:
    two = ("--set", "engine.tensor_parallel_size=2")
    done = whatif("run", TINY, "--backend", "cpu", "--profile", tmp_path / "profile", *two, *SMALL)
    assert (done.status, done.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == [
        "rank0.pt.trace.json",
        "rank1.pt.trace.json",
    ]


def _taken(folder: Path) -> Path:
    (folder / "taken").mkdir()
    (folder / "taken" / "other").write_text("")
    return folder / "taken"


REFUSED_PROFILES = {
    "sim": (lambda folder: folder / "profile", ("--backend", "sim"), "--profile: sim runs nothing; take --backend cpu"),
    "taken": (_taken, ("--backend", "cpu"), "is not empty; name a new folder"),
    "a file": (lambda folder: Path(__file__), ("--backend", "cpu"), "is a file; name a new folder"),
    "no folder": (lambda folder: folder / "a" / "b", ("--backend", "cpu"), "its folder does not exist"),
}


@pytest.mark.parametrize("case", REFUSED_PROFILES)
def test_a_profile_that_cannot_be_written_is_one_line(case: str, whatif: Callable[..., Any], tmp_path: Path) -> None:
    where, backend, says = REFUSED_PROFILES[case]
    done = whatif("run", TINY, *backend, "--profile", where(tmp_path), *SMALL)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert says in line
    assert not list(tmp_path.rglob("*.partial"))


def test_a_run_that_is_refused_leaves_no_profile(whatif: Callable[..., Any], tmp_path: Path) -> None:
    switch = ("--set", "optimizations.overlap.prefetch=true")
    done = whatif("run", TINY, "--backend", "cpu", "--profile", tmp_path / "profile", *switch, *SMALL)
    assert done.status == 2
    assert "overlap.prefetch" in done.err
    assert list(tmp_path.iterdir()) == []
