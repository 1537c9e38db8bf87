"""`whatif import`: the step, what is wrong with it, who waited, what to try; as text, JSON and trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.timeline import step_time
from scenarios.trace import read_trace
from tests.scenarios.profile import cuda, making

STEP_KEYS = (
    "total_us", "computing_us", "communication_us", "communication_not_overlapped_us", "communication_wait_us",
    "overlapped_us", "free_us",
)  # fmt: skip


@pytest.fixture
def imported(whatif: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`imported(path, *options)`: the document."""

    def get(path: Path, *options: object) -> dict[str, Any]:
        out = tmp_path / "import.json"
        done = whatif("import", path, "--json", out, *options)
        assert (done.status, done.err) == (0, "")
        document: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return document

    return get


def test_document_has_the_keys_of_the_contract(imported: Callable[..., Any], tmp_path: Path) -> None:
    document = imported(making.torch_npu(tmp_path, steps=(7,)), "--hardware", "910b2")
    assert document["schema_version"] == 1
    assert tuple(document["step"]) == STEP_KEYS
    assert document["step"]["total_us"] == 450.0
    assert document["reported_step"]["free_us"] == 100.0
    assert document["reconciliation"]["reconciled"] is True
    assert {"name", "evidence", "shares", "limits_us"} <= set(document["bottleneck"])
    assert document["completeness"] == {"verdict": "complete", "reasons": []}
    assert document["provenance"]["kind"] == "measured"
    assert [rank["rank"] for rank in document["ranks"]] == [0]
    assert (document["kernel_count"], document["collective_count"], document["hardware"]) == (3, 1, "atlas_a2_910b2")


def test_gaps_say_how_late_the_host_was_and_with_what(imported: Callable[..., Any], tmp_path: Path) -> None:
    gaps = imported(making.torch_npu(tmp_path, steps=(7,)))["host_gaps"]
    # 150-200: RmsNorm was launched at 180. 400-450: MatMul lay in the queue since 90.
    assert (gaps["count"], gaps["host_late_us"], gaps["queued_us"], gaps["unknown_us"]) == (2, 30.0, 70.0, 0.0)
    assert gaps["calls"] == [{"name": "aten::add", "gaps": 1, "late_us": 30.0}]


def test_kernels_have_their_place_under_the_roofline(imported: Callable[..., Any], tmp_path: Path) -> None:
    kernels = imported(making.torch_npu(tmp_path, steps=(7,)), "--hardware", "910b2")["kernels"]
    by_type = {kernel["op_type"]: kernel for kernel in kernels}
    matmul = by_type["MatMulV3"]
    assert matmul["flops"] == 2 * 16 * 4096 * 4096
    assert matmul["tflops"] == pytest.approx(2 * 16 * 4096 * 4096 / 100e-6 / 1e12, rel=1e-6)
    # 33.5 MB of weights at 1.8 TB/s are 18.6 us of the 100.
    assert matmul["roofline_share"] == pytest.approx(0.187, abs=0.01)
    assert (matmul["bound"], matmul["bound_source"]) == ("hbm", "measured")
    assert (by_type["Add"]["bound"], by_type["Add"]["bound_source"]) == ("vector", "measured")
    assert by_type["RmsNorm"]["bound_source"] == "predicted"
    assert by_type["Add"]["share"] == pytest.approx(50 / 450)


def test_without_hardware_nothing_is_priced(imported: Callable[..., Any], tmp_path: Path) -> None:
    document = imported(making.torch_npu(tmp_path, steps=(7,)))
    assert document["hardware"] is None
    assert all(kernel["roofline_share"] is None for kernel in document["kernels"])


def test_who_came_last_is_found_over_the_ranks(imported: Callable[..., Any], tmp_path: Path) -> None:
    making.torch_npu(tmp_path, rank=0, steps=(7,))
    making.torch_npu(tmp_path, rank=1, steps=(7,), late_us=80)
    document = imported(tmp_path)
    assert document["waited_for_us"] == {"1": 80.0}
    [collective] = document["collectives"]
    assert (collective["ranks"], collective["last_rank"], collective["late_us"], collective["transfer_us"]) == (
        [0, 1],
        1,
        80.0,
        70.0,
    )
    assert [(rank["wait_us"], rank["came_last"]) for rank in document["ranks"]] == [(80.0, 0), (0.0, 1)]


def test_clocks_that_differ_are_told_and_not_believed(
    imported: Callable[..., Any], whatif: Callable[..., Any], tmp_path: Path
) -> None:
    making.torch_npu(tmp_path, rank=0, steps=(7,))
    making.torch_npu(tmp_path, rank=1, steps=(7,), shift_us=5000)
    document = imported(tmp_path)
    assert document["clocks_differ_us"] == 5000.0
    assert not any("balance the ranks" in item["why"] for item in document["advice"])
    assert "clocks differ by 5.000 ms" in whatif("import", tmp_path).out


def test_bottleneck_and_advice_follow_the_evidence(imported: Callable[..., Any], tmp_path: Path) -> None:
    document = imported(making.torch_npu(tmp_path, steps=(7,)))
    assert document["bottleneck"]["limits_us"] == {
        "vector-bound": 150.0,
        "HBM-bound": 100.0,
        "communication-bound": 100.0,
        "host-bound": 30.0,
        "idle-bound": 70.0,
    }
    assert document["bottleneck"]["name"] == "mixed"  # 150 of 450 us are no half, and not twice HBM's 100
    ratios = [item["at_most_ratio"] for item in document["advice"]]
    assert ratios == sorted(ratios, reverse=True)
    by_setting = {tuple(item["settings"]): item for item in document["advice"]}
    assert by_setting["optimizations.graph=aclgraph",]["at_most_us"] == 30.0
    assert by_setting["optimizations.graph=aclgraph",]["at_most_ratio"] == pytest.approx(450 / 420)
    assert by_setting["optimizations.fusion.add_rms_norm=true",]["at_most_us"] == 50.0


def test_trace_of_an_import_is_the_measured_step(imported: Callable[..., Any], tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    document = imported(making.torch_npu(tmp_path / "p", steps=(7,)), "--trace", trace)
    [timeline] = read_trace(trace)
    assert timeline.label == "MEASURED"
    assert step_time(timeline).total_ns == document["step"]["total_us"] * 1000
    again = imported(trace)
    assert again["step"] == document["step"]
    assert again["kernel_count"] == document["kernel_count"]


def test_a_step_may_be_named(imported: Callable[..., Any], whatif: Callable[..., Any], tmp_path: Path) -> None:
    top = making.torch_npu(tmp_path)
    assert imported(top, "--step", "7")["step"]["total_us"] == 1000.0
    assert imported(top)["step"]["total_us"] == 450.0  # the lower median
    done = whatif("import", top, "--step", "9")
    assert (done.status, done.problems) == (2, ["--step: '9' is not a step of this profile; it has 7, 8"])


def test_text_says_what_the_document_says(whatif: Callable[..., Any], tmp_path: Path) -> None:
    done = whatif("import", making.torch_npu(tmp_path, steps=(7,)), "--hardware", "910b2")
    assert done.status == 0
    for said in (
        "Step 0.450 ms",
        "reconciled within 0.1 %",
        "Bottleneck: mixed",
        "vector-bound 33%, HBM-bound 22%, communication-bound 22% of the step",
        "MatMulV3",
        "aten::add",
        "CANN",
    ):
        assert said.lower() in done.out.lower()


def test_same_profile_same_bytes(whatif: Callable[..., Any], tmp_path: Path) -> None:
    top = making.torch_npu(tmp_path)
    files = []
    for name in ("a", "b"):
        json_file, trace = tmp_path / f"{name}.json", tmp_path / f"{name}.trace.json"
        assert whatif("import", top, "--json", json_file, "--trace", trace).status == 0
        files.append((json_file.read_bytes(), trace.read_bytes()))
    assert files[0] == files[1]


def test_a_prediction_is_called_one(whatif: Callable[..., Any], imported: Callable[..., Any], tmp_path: Path) -> None:
    trace = tmp_path / "ours.json"
    assert whatif("run", "qwen3_8b_decode", "--trace", trace, "--json", tmp_path / "run.json").status == 0
    document, run = imported(trace), json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert document["step"] == pytest.approx(run["step"])
    assert document["provenance"]["kind"] == "predicted"
    assert "PREDICTED" in whatif("import", trace).out


def test_a_mark_of_the_users_own_makes_steps(whatif: Callable[..., Any], tmp_path: Path) -> None:
    events = [event for n in range(3) for event in (cuda.op(f"my forward {n}", 1000 * n, 900),)]
    kernels = [cuda.kernel(n + 1, 1000 * n + 10, 1000 * n + 50, 100) for n in range(3)]
    path = cuda.write(tmp_path, events, *kernels)
    done = whatif("import", path, "--step-mark", "my forward 0", "--step", "my forward 1")
    assert (done.status, done.err) == (0, "")
    assert "step my forward 1, one of 3" in done.out
    done = whatif("import", path, "--step-mark", "my forwrd 0")
    assert done.status == 2
    assert "Did you mean 'my forward 0'?" in done.err


def test_a_partial_profile_is_shown_and_not_advised_on(whatif: Callable[..., Any], tmp_path: Path) -> None:
    top = making.torch_npu(tmp_path, steps=(7,))
    table = top / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join([lines[0], lines[1], *lines[1:]]).replace("_Add,Add", "_Other,Add", 1))
    done = whatif("import", top)
    assert (done.status, done.err) == (0, "")
    assert "The profile is partial: nothing is advised" in done.out
    assert "1 of 4 kernels of kernel_details.csv are not in the trace" in " ".join(done.out.split())
