"""torch_npu's folders: the step by hand, launches, levels, several ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scenarios.profile import NO_ROW, Capture, Kind, step_time_of, timeline_of
from scenarios.profile.read import read_captures
from scenarios.timeline import step_time
from tests.scenarios.profile import making
from tests.scenarios.profile.making import FIRST_STEP_TIME as FIRST
from tests.scenarios.profile.making import LAST_STEP_TIME as LAST
from tests.scenarios.profile.making import one


def row_of(capture: Capture, name: str) -> int:
    """The first row whose name starts so."""
    return next(r for r in range(len(capture.events)) if capture.text(r).startswith(name))


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("communication", ["HCCL", "Communication"])
def test_step_is_what_torch_npu_counts(tmp_path: Path, level: int, communication: str) -> None:
    capture = one(making.torch_npu(tmp_path, level=level, communication_name=communication))
    assert [step.id for step in capture.steps] == ["7", "8"]
    assert [step_time_of(capture, step) for step in capture.steps] == [FIRST, LAST]
    assert [reported.time.total_ns for reported in capture.reported] == [1_000_000, 450_000]
    assert capture.metadata["level"] == f"Level{level}"
    assert capture.notes == ()


@pytest.mark.parametrize("level", [0, 2])
def test_timeline_of_a_step_has_the_same_times(tmp_path: Path, level: int) -> None:
    capture = one(making.torch_npu(tmp_path, level=level))
    for step, expected in zip(capture.steps, (FIRST, LAST), strict=True):
        for tasks in (False, True):
            timeline = timeline_of(capture, step, tasks)
            assert step_time(timeline) == expected
            assert (timeline.label, timeline.rank, timeline.device) == ("MEASURED", 0, "NPU")
    assert timeline.start_ns == 100_000  # from the host's mark to the first kernel


def test_kernels_carry_what_kernel_details_knows(tmp_path: Path) -> None:
    capture = one(making.torch_npu(tmp_path, steps=(7,)))
    rows = capture.events.rows(Kind.KERNEL)
    assert making.texts_of(capture, rows, "op_type") == ["Add", "RmsNorm", "MatMulV3"]
    assert making.texts_of(capture, rows, "shapes") == ["16,4096;16,4096", "16,4096;4096", "16,4096;4096,4096"]
    assert making.texts_of(capture, rows, "task_type") == ["AI_VECTOR_CORE", "AI_VECTOR_CORE", "AI_CORE"]
    assert making.texts_of(capture, rows, "pipe") == ["vec", "", "mte2"]
    assert capture.events.block_dim[rows].tolist() == [40, 40, 40]
    assert (capture.events.start_ns[rows] - making.EPOCH_US * 1000).tolist() == [100_000, 200_000, 450_000]
    [collective] = capture.events.rows(Kind.COLLECTIVE)
    assert capture.text(int(collective), "group") == making.GROUP


def test_level_0_takes_op_types_from_names(tmp_path: Path) -> None:
    capture = one(making.torch_npu(tmp_path, steps=(7,), level=0))
    assert making.texts_of(capture, capture.events.rows(Kind.KERNEL), "op_type") == ["Add", "RmsNorm", "MatMulV3"]


@pytest.mark.parametrize(
    ("level", "chain"),
    [(0, ["Dequeue@aclnnAdd", "Enqueue"]), (2, ["Node@launch", "Dequeue@aclnnAdd", "Enqueue"])],
)
def test_a_kernel_goes_back_to_the_call_that_enqueued_it(tmp_path: Path, level: int, chain: list[str]) -> None:
    capture = one(making.torch_npu(tmp_path, level=level))
    for row in capture.events.rows(Kind.KERNEL).tolist():
        names, at = [], int(capture.events.launched_by[row])
        while at != NO_ROW:
            names.append(capture.text(at))
            at = int(capture.events.launched_by[at])
        assert names == chain


def test_the_moment_of_a_launch_is_kept_where_one_call_launches_several(tmp_path: Path) -> None:
    events = (capture := one(making.torch_npu(tmp_path, steps=(7,), level=0))).events
    issued = [int(events.start_ns[events.launched_by[r]] + events.issued_after_ns[r]) for r in events.rows(Kind.KERNEL)]
    assert [ns - making.EPOCH_US * 1000 for ns in issued] == [50_000, 180_000, 90_000]
    assert capture.dropped == {"python_function": 1, "Overlap Analysis": 1, "counters": 1}


def test_without_a_trace_kernels_and_collectives_are_read_and_it_is_said(tmp_path: Path) -> None:
    capture = one(making.torch_npu(tmp_path, trace=False))
    first, last = (step_time_of(capture, step) for step in capture.steps)
    assert last == LAST
    # The idle time until the next step belongs to the first one, which nobody can tell without the host's mark.
    assert (first.computing_ns, first.communication_not_overlapped_ns, first.free_ns) == (250_000, 100_000, 100_000)
    assert any("trace_view.json is missing" in note for note in capture.notes)
    assert not len(capture.events.rows(Kind.HOST))


def test_a_profile_without_marks_is_one_step_without_a_name(tmp_path: Path) -> None:
    top = making.torch_npu(tmp_path, steps=(7,))
    trace = top / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    trace.write_text(trace.read_text().replace("ProfilerStep#7", "step"))
    capture = one(top)
    assert [step.id for step in capture.steps] == [""]
    assert step_time_of(capture, capture.steps[0]) == LAST


def test_ranks_of_a_folder_are_read_together_in_their_order(tmp_path: Path) -> None:
    making.torch_npu(tmp_path, rank=10)
    making.torch_npu(tmp_path, rank=2)
    assert [capture.rank for capture in read_captures(tmp_path).captures] == [2, 10]


def test_a_folder_may_be_named_at_any_depth(tmp_path: Path) -> None:
    top = making.torch_npu(tmp_path / "a" / "b")
    for path in (tmp_path, top, top / "ASCEND_PROFILER_OUTPUT"):
        assert one(path).rank == 0


def test_a_trace_alone_is_read_without_shapes(tmp_path: Path) -> None:
    top = making.torch_npu(tmp_path, steps=(7,))
    capture = one(top / "ASCEND_PROFILER_OUTPUT" / "trace_view.json")
    assert step_time_of(capture, capture.steps[0]) == LAST
    assert making.texts_of(capture, capture.events.rows(Kind.KERNEL), "op_type") == ["Add", "RmsNorm", "MatMulV3"]
    assert capture.reported == ()


def test_events_come_in_order_of_start_and_launchers_point_at_rows(tmp_path: Path) -> None:
    events = one(making.torch_npu(tmp_path)).events
    assert (np.diff(events.start_ns) >= 0).all()
    known = events.launched_by[events.launched_by != NO_ROW]
    assert (events.kind[known] == Kind.HOST).all()


def test_sums_of_the_profiler_are_held_against_the_kernels(tmp_path: Path) -> None:
    top = making.torch_npu(tmp_path, steps=(7,))
    capture = one(top)
    assert [(api.name, api.count, api.total_ns) for api in capture.host_apis] == [
        ("aclrtSynchronizeStream", 2, 400_500),
        ("launch", 5, 10_000),
    ]
    table = top / "ASCEND_PROFILER_OUTPUT" / "op_statistic.csv"
    table.write_text(table.read_text().replace("RmsNorm,AI_VECTOR_CORE,1,100.0", "RmsNorm,AI_VECTOR_CORE,1,150.0"))
    assert one(top).lost == ("op_statistic.csv has 150.000 us of RmsNorm, the kernels have 100.000",)
