"""Reports about a GPU use a GPU's words: nothing in them is called Ascend's, and what only an NPU has is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.trace import read_trace

SCENARIO = "llama_3_1_8b_h200_decode"
#: Words of Ascend, of its tools and of its parts.
ASCEND = re.compile(r"ascend|npu\b|cann\b|hcc[ls]|ai.?cpu|ai_core|cube|fractal|matmulv2|fusedinfer|davinci", re.I)
TASKS = (
    (),
    ("--set", "workload.phase=prefill", "--set", "optimizations.graph=eager"),
    ("--set", "engine.tensor_parallel_size=2", "--set", "optimizations.kv.layout=paged"),
    ("--set", "model=Qwen3-30B-A3B", "--set", "workload.batch=2", "--set", "optimizations.graph=ge_graph"),
)


def own_words(text: str) -> list[str]:
    """Ascend's words outside the lines that say why something is not there."""
    return [line for line in text.splitlines() if ASCEND.search(line) and "not applicable" not in line]


@pytest.mark.parametrize(
    "task",
    [*TASKS[:3], pytest.param(TASKS[3], marks=pytest.mark.study)],
    ids=["decode", "prefill", "two ranks, paged", "experts"],
)
def test_no_report_about_a_gpu_calls_anything_ascends(
    task: tuple[str, ...], whatif: Callable[..., Any], tmp_path: Path
) -> None:
    trace, out = tmp_path / "trace.json", tmp_path / "out.json"
    for command in (("run", SCENARIO, "--trace", trace, "--json", out), ("explain", SCENARIO)):
        done = whatif(*command, *task)
        assert (done.status, done.err) == (0, "")
        assert own_words(done.out) == []
    result = json.loads(out.read_text())
    assert result["device"] == "cuda"
    assert all(row["op_type"] == row["kind"] for row in result["kernels"])
    assert not ASCEND.search(result["bottleneck"]["evidence"])
    assert not ASCEND.search(trace.read_text())
    (timeline,) = read_trace(trace)
    assert timeline.device == "CUDA"
    assert {span.process for span in timeline.spans} <= {"Python", "Device", "Communication"}


def test_a_gpu_bound_by_its_arithmetic_is_told_so(whatif: Callable[..., Any]) -> None:
    told = whatif("explain", SCENARIO, *TASKS[1]).out
    assert "Bottleneck: tensor-core-bound" in told
    assert re.search(r"Tflop at \d+ TFLOPS in matmul, of 989 at peak", " ".join(told.split()))


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("optimizations.weight_format=nz", "FRACTAL_NZ is a layout of Ascend's cube cores, a GPU has none"),
        ("optimizations.overlap.prefetch=true", "torch brings no weight into a GPU's L2 ahead"),
        (
            "optimizations.graph=npugraph_ex",
            "a compiler of torch_npu; on a GPU aclgraph means CUDA graphs, and ge_graph torch.compile before them",
        ),
        ("engine.task_queue_enable=1", "a launch thread of torch_npu, a GPU has none; set it to 0"),
    ],
)
def test_what_only_an_npu_has_is_refused(setting: str, why: str, whatif: Callable[..., Any]) -> None:
    done = whatif("run", SCENARIO, "--set", setting)
    assert (done.status, done.out) == (2, "")
    assert done.problems == [f"--set {setting}: {setting.partition('=')[0]}: {why}"]


def test_an_npu_keeps_its_words(whatif: Callable[..., Any]) -> None:
    told = whatif("run", "llama_3_1_8b_decode").out
    assert "MatMulV2" in told or "MatMul " in told
    assert "AI CPU" in told
