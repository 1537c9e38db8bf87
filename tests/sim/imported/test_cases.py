"""Every import of ../shared/cases gives the right answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.profile.read import CaptureError, read_captures
from sim.imported.result import import_result


def imported(shared: Path, name: str) -> dict[str, Any]:
    return import_result(read_captures(shared / "cases" / name), None)


def test_unnamed_streams(shared: Path) -> None:
    answer = imported(shared, "unnamed_streams.pt.trace.json")
    assert (answer["kernel_count"], answer["launches"], answer["step"]["total_us"]) == (3, 3, 130)


def test_host_ahead(shared: Path) -> None:
    answer = imported(shared, "host_ahead_overlapping_windows.pt.trace.json")
    assert answer["step_id"] in ("1", "2", "3")
    assert (answer["kernel_count"], answer["step"]["total_us"], answer["step"]["free_us"]) == (5, 1000, 540)
    assert answer["host_gaps"]["total_us"] == 540
    assert answer["bottleneck"]["name"] == "idle-bound"
    assert any("steps overlap on the device" in note for note in answer["notes"])


def test_empty_last_step(shared: Path) -> None:
    answer = imported(shared, "empty_last_step.pt.trace.json")
    assert (answer["step_id"], answer["kernel_count"], answer["step"]["computing_us"]) == ("1", 3, 90)


def test_vllm_marks(shared: Path) -> None:
    answer = imported(shared, "vllm_execute_marks.pt.trace.json")
    assert answer["step_count"] == 4
    assert answer["step_id"].startswith("execute_context_0(0)_generation_8(")
    assert (answer["kernel_count"], answer["step"]["computing_us"]) == (3, 270)


def test_gemm_names(shared: Path) -> None:
    answer = imported(shared, "gemm_names.pt.trace.json")
    assert sorted(kernel["bound"] for kernel in answer["kernels"]) == ["cube", "cube", "cube", "vector"]
    assert answer["bottleneck"]["name"] == "cube-bound"


def test_durations_over_successors(shared: Path) -> None:
    answer = imported(shared, "duration_over_successors.pt.trace.json")
    assert (answer["step"]["total_us"], answer["step"]["computing_us"]) == (580, 500)
    assert any("first in, first out" in note for note in answer["notes"])


def test_communication_json_with_more_collectives(shared: Path) -> None:
    answer = imported(shared, "import_communication_json_more_collectives_than_trace")
    assert answer["completeness"]["verdict"] == "partial"
    assert "1 of 2 collectives of communication.json" in answer["completeness"]["reasons"][0]
    assert answer["advice"] == []


def test_text_of_a_file_steers_no_terminal(shared: Path) -> None:
    with pytest.raises(CaptureError) as raised:
        read_captures(shared / "cases" / "import_ts_terminal_escape.json")
    assert str(raised.value).isprintable()
    assert "\\x1b" in str(raised.value)


@pytest.mark.parametrize("name", ["pytorch_level0_rank0", "pytorch_level2_rank0", "qwen3_0.6b_train_pp2dp2"])
def test_real_profiles_are_complete(shared: Path, name: str) -> None:
    answer = import_result(read_captures(shared / "measured" / "profiles" / name), None)
    assert answer["completeness"] == {"verdict": "complete", "reasons": ()}
    assert answer["reconciliation"]["worst_share"] < 0.000_004 + 1e-9
    assert sum(answer["bottleneck"]["shares"].values()) == pytest.approx(1)
    assert answer["host_gaps"]["total_us"] == pytest.approx(answer["step"]["free_us"], abs=0.002)
    if len(answer["ranks"]) > 1:
        assert answer["slowest_rank"] == 2
        for rank in answer["ranks"]:
            assert rank["wait_us"] + rank["transfer_us"] == pytest.approx(rank["step"]["communication_us"])
