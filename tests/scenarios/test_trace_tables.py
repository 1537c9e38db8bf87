"""torch_npu's tables of a step: its columns, its units, and its way of counting."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from scenarios.timeline import Span, Timeline
from scenarios.trace import kernel_details_csv, step_trace_time_csv
from scenarios.trace.tables import KERNEL_COLUMNS, STEP_COLUMNS

#: Computing 0-4 and 6-8, communication 3-7 and 9-10 of 12 µs.
OVERLAP = Timeline(
    spans=(
        Span("a", "Ascend Hardware", "Stream 2", 0, 4_000, op_type="Add", index=0),
        Span("b", "AI CPU", "Stream 2", 6_000, 8_000, op_type="Range", index=2),
        Span("hcom_allReduce__1", "Communication", "Group 0 Communication", 3_000, 7_000, op_type="hcom_allReduce_"),
        Span("hcom_receive__2", "Communication", "Group 0 Communication", 9_000, 10_000, op_type="hcom_receive_"),
        Span("Memcpy", "Communication", "Plane 0", 5_000, 6_000),
        Span("Notify_Wait", "Communication", "Group 0 Communication", 3_000, 5_000, kind="wait"),
    ),
    start_ns=0,
    end_ns=12_000,
)


def of(*spans: Span, rank: int = 0) -> Timeline:
    return Timeline(spans, 0, 1_000, rank=rank)


def kernel(name: str, start_ns: int, end_ns: int) -> Span:
    return Span(name, "Ascend Hardware", "Stream 2", start_ns, end_ns)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_step_trace_time_literally() -> None:
    # Computing 4 + 2 µs, communication 4 + 1, of which 3-4 and 6-7 are hidden; the receive of 1 µs is a bubble.
    assert step_trace_time_csv(OVERLAP) == (
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\n"
        "0,0,6.000,3.000,2.000,5.000,3.000,11.000,1.000,2.000,0.000\n"
    )


def test_step_trace_time_has_a_row_for_each_rank_and_nothing_negative() -> None:
    hidden = Span("hcom_receive__1", "Communication", "Group 0 Communication", 100, 200)
    rows = table(step_trace_time_csv([of(), of(kernel("k", 50, 400), hidden, rank=3)]))
    assert [row["Device_id"] for row in rows] == ["0", "3"]
    assert rows[0]["Preparing"] == rows[0]["Free"] == "1.000"
    assert rows[1]["Communication(Not Overlapped and Exclude Receive)"] == "0.000"
    assert rows[1]["Preparing"] == "0.050"


def test_kernel_details_literally() -> None:
    kernel_args = {0: {"Task Type": "AI_VECTOR_CORE", "Block Dim": 8, "Input Shapes": "1,4096;4096", "bound": "hbm"}}
    assert kernel_details_csv(OVERLAP, kernel_args) == (
        "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
        "Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
        "Output Data Types,Output Formats\n"
        '0,0,4294967295,0,2,a,Add,N/A,AI_VECTOR_CORE,0.000,4.000,0.000,8,N/A,N/A,"""1,4096;4096""",N/A,N/A,N/A,N/A,N/A\n'
        "0,0,4294967295,N/A,N/A,hcom_allReduce__1,hcom_allReduce_,N/A,COMMUNICATION,3.000,4.000,0.000"
        + ",N/A" * 9
        + "\n0,0,4294967295,1,2,b,Range,N/A,AI_CPU,6.000,2.000,0.000"
        + ",N/A" * 9
        + "\n0,0,4294967295,N/A,N/A,hcom_receive__2,hcom_receive_,N/A,COMMUNICATION,9.000,1.000,1.000"
        + ",N/A" * 9
        + "\n"
    )


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@A1"])
def test_no_cell_starts_as_a_formula(name: str) -> None:
    (row,) = table(kernel_details_csv(of(kernel(name, 0, 1))))
    assert row["Name"] == "'" + name


def test_a_name_of_two_lines_stays_in_its_row() -> None:
    (row,) = table(kernel_details_csv(of(kernel("a\r\nb,c\td", 0, 1))))
    assert row["Name"] == "a  b,c d"
    assert row["Start Time(us)"] == "0.000"


@pytest.fixture(scope="module")
def profiles(shared: Path) -> list[Path]:
    folders = sorted(shared.glob("measured/profiles/*/*/ASCEND_PROFILER_OUTPUT"))
    if not folders:
        pytest.skip("no torch_npu profiles in ../shared/measured/profiles")
    return folders


def ns(text: str) -> int:
    whole, _, fraction = text.strip().partition(".")
    return int(whole) * 1000 + int(fraction.ljust(3, "0"))


def test_our_columns_are_those_of_torch_npu(profiles: list[Path]) -> None:
    kernels, steps = [], []
    for folder in profiles:
        kernels.append((folder / "kernel_details.csv").read_text("utf-8").partition("\n")[0].strip().split(","))
        steps.append((folder / "step_trace_time.csv").read_text("utf-8").partition("\n")[0].strip().split(","))
    assert list(STEP_COLUMNS) in steps
    assert any(columns[: len(KERNEL_COLUMNS)] == list(KERNEL_COLUMNS) for columns in kernels)


def test_waiting_is_counted_as_torch_npu_counts_it(profiles: list[Path]) -> None:
    """The level 2 profile's own kernels, through our table: its Wait Time comes out in all rows but one."""
    (folder,) = (folder for folder in profiles if "level2" in str(folder))
    rows = table((folder / "kernel_details.csv").read_text("utf-8"))
    first = ns(rows[0]["Start Time(us)"])
    spans = []
    for row in rows:
        start = ns(row["Start Time(us)"]) - first
        end = start + round(float(row["Duration(us)"]) * 1000)
        thread = ("Communication", "Group 0") if row["Accelerator Core"] == "HCCL" else ("Ascend Hardware", "Stream 2")
        spans.append(Span(row["Name"], thread[0], thread[1], start, end))  # type: ignore[arg-type]
    ours = table(kernel_details_csv(Timeline(tuple(spans), 0, spans[-1].end_ns)))
    off = [
        row["Name"]
        for row, mine in zip(rows, ours, strict=True)
        if abs(float(row["Wait Time(us)"]) - float(mine["Wait Time(us)"])) > 0.011
    ]
    assert len(rows) == 191
    assert len(off) <= 1
