"""The other forms: SQLite, msprof's tables, PyTorch's traces, our own. Each has the same known step."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.profile import NO_ROW, Capture, Kind, step_time_of, timeline_of
from scenarios.profile.families import function_of as cuda_op_type
from scenarios.profile.read.kernel_details import op_type_of
from scenarios.timeline import Span, Timeline, step_time
from scenarios.trace import write_trace
from tests.scenarios.profile import making
from tests.scenarios.profile.making import FIRST_STEP_TIME as FIRST
from tests.scenarios.profile.making import LAST_STEP_TIME as LAST
from tests.scenarios.profile.making import one


def chain(capture: Capture, row: int) -> list[str]:
    names = []
    while (row := int(capture.events.launched_by[row])) != NO_ROW:
        names.append(capture.text(row))
    return names


def test_database(tmp_path: Path) -> None:
    capture = one(making.database(tmp_path / "ascend_pytorch_profiler_3.db"))
    assert (capture.rank, capture.device, capture.kind) == (3, "NPU", "torch_npu")
    assert [step_time_of(capture, step) for step in capture.steps] == [FIRST, LAST]
    rows = capture.events.rows(Kind.KERNEL)
    assert making.texts_of(capture, rows[:3], "op_type") == ["Add", "RmsNorm", "MatMulV3"]
    assert making.texts_of(capture, rows[:3], "shapes") == ["16,4096;16,4096", "16,4096;4096", "16,4096;4096,4096"]
    assert chain(capture, int(rows[0])) == ["launch", "Dequeue@aclnnAdd"]
    assert capture.text(int(capture.events.rows(Kind.COLLECTIVE)[0]), "group") == making.GROUP
    assert len(capture.events.rows(Kind.COPY)) == 2


def test_database_in_a_folder_of_torch_npu(tmp_path: Path) -> None:
    output = tmp_path / "rank_3_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    making.database(output / "ascend_pytorch_profiler_3.db", steps=(7,))
    capture = one(tmp_path)
    assert step_time_of(capture, capture.steps[0]) == LAST


def test_op_summary(tmp_path: Path) -> None:
    making.op_summary(tmp_path / "op_summary_20260101120000.csv")
    capture = one(tmp_path)
    result = step_time_of(capture, capture.steps[0])
    assert (result.computing_ns, result.communication_ns, result.free_ns) == (250_000, 150_000, 100_000)
    assert (capture.kind, capture.rank) == ("msprof", 0)
    assert making.texts_of(capture, capture.events.rows(Kind.KERNEL), "op_type") == ["Add", "RmsNorm", "MatMulV3"]


def test_task_time_stands_in_where_there_is_no_op_summary(tmp_path: Path) -> None:
    making.task_time(tmp_path / "task_time_20260101120000.csv")
    capture = one(tmp_path)
    result = step_time_of(capture, capture.steps[0])
    assert (result.computing_ns, result.communication_ns, result.free_ns) == (250_000, 150_000, 100_000)
    assert making.texts_of(capture, capture.events.rows(Kind.KERNEL), "op_type") == ["Add", "RmsNorm", "MatMulV3"]
    assert "2 tasks are no kernels and left out" in capture.notes
    making.op_summary(tmp_path / "op_summary_20260101120000.csv")
    assert one(tmp_path).source.endswith("op_summary_20260101120000.csv")


@pytest.mark.parametrize("name", ["host_1.pt.trace.json", "host_1.pt.trace.json.gz"])
def test_pytorch_with_cuda(tmp_path: Path, name: str) -> None:
    making.pytorch(tmp_path / name)
    capture = one(tmp_path)
    assert (capture.rank, capture.device, capture.kind) == (1, "CUDA", "pytorch")
    times = [step_time_of(capture, step) for step in capture.steps]
    assert [(t.total_ns, t.computing_ns, t.communication_ns, t.overlapped_ns) for t in times] == [
        (1_000_000, 250_000, 150_000, 50_000),
        (450_000, 250_000, 150_000, 50_000),
    ]
    rows = capture.events.rows(Kind.KERNEL)
    assert chain(capture, int(rows[0])) == ["cudaLaunchKernel"]
    assert making.texts_of(capture, rows[:2], "op_type") == ["vectorized_elementwise_kernel", "rms_norm_kernel"]
    # NCCL's kernel lies on a stream and is communication all the same.
    timeline = timeline_of(capture, capture.steps[1])
    assert step_time(timeline).communication_not_overlapped_ns == 100_000
    assert [span.op_type for span in timeline.spans if span.process == "Communication"] == ["allreduce"]


def test_numbers_keep_the_nanoseconds_of_their_digits(tmp_path: Path) -> None:
    """A double of 1764246877000100.125 us would be a multiple of 0.25."""
    text = making.pytorch_text(steps=(7,)).replace(making.us(100), f"{making.EPOCH_US + 100}.123")
    (tmp_path / "a.pt.trace.json").write_text(text)
    capture = one(tmp_path)
    row = int(capture.events.rows(Kind.KERNEL)[0])
    assert int(capture.events.start_ns[row]) == (making.EPOCH_US + 100) * 1000 + 123


def timeline(label: str = "SIMULATED", rank: int = 0) -> Timeline:
    spans = (
        Span("add", "Python", "MainThread", 0, 40),
        Span("add", "CANN", "launch", 40, 60, launched_by=0),
        Span(
            "add",
            "Ascend Hardware",
            "Stream 0",
            100,
            150,
            op_type="Add",
            index=0,
            launched_by=1,
            args=(("Input Shapes", "16,4096"), ("Task Type", "AI_VECTOR_CORE"), ("Block Dim", 40)),
        ),
        Span("all_reduce", "Communication", "Group 0", 120, 200, op_type="hcom_allReduce_", index=1),
        Span("all_reduce", "Communication", "Group 0", 120, 160, kind="wait", index=1),
    )
    return Timeline(spans, 0, 300, label=label, rank=rank)  # type: ignore[arg-type]


def test_our_own_trace_comes_back_as_the_same_step(tmp_path: Path) -> None:
    given = timeline()
    write_trace(tmp_path / "ours.json", given)
    capture = one(tmp_path / "ours.json")
    assert step_time_of(capture, capture.steps[0]) == step_time(given)
    assert step_time(timeline_of(capture, capture.steps[0])) == step_time(given)
    row = int(capture.events.rows(Kind.KERNEL)[0])
    assert (capture.text(row, "op_type"), capture.text(row, "shapes"), chain(capture, row)) == (
        "Add",
        "16,4096",
        ["add", "add"],
    )


def test_a_prediction_is_never_read_as_a_measurement(tmp_path: Path) -> None:
    write_trace(tmp_path / "ours.json", timeline())
    capture = one(tmp_path / "ours.json")
    assert capture.label == "SIMULATED"
    assert timeline_of(capture, capture.steps[0]).label == "SIMULATED"
    write_trace(tmp_path / "both.json", [timeline(), timeline("MEASURED")])
    capture = one(tmp_path / "both.json")
    assert capture.label == "MEASURED"
    assert any("left out" in note for note in capture.notes)


@pytest.mark.parametrize(
    ("name", "op_type"),
    [
        ("aclnnInplaceRelu_Relu_Relu", "Relu"),
        ("trans_TransData_0", "TransData"),
        ("Conv2D1", "Conv2D"),
        ("MatMulV3", "MatMulV3"),
        ("hcom_allReduce__271_0_1", "hcom_allReduce_"),
        ("aclnnMatmul_MatMulV3_MatMulV3", "MatMulV3"),
        ("", ""),
        ("123", "123"),
    ],
)
def test_op_type_in_a_name(name: str, op_type: str) -> None:
    assert op_type_of(name) == op_type


@pytest.mark.parametrize(
    ("name", "op_type"),
    [
        ("void at::native::(anonymous namespace)::f<3, float>(int)", "f"),
        ("ampere_bf16_gemm", "ampere_bf16_gemm"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ],
)
def test_op_type_of_a_cuda_kernel(name: str, op_type: str) -> None:
    assert cuda_op_type(name) == op_type
