"""A step without its neighbours: where a host runs ahead, each kernel belongs to the step that launched it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.profile import Capture, Kind
from scenarios.profile.read import read_captures
from scenarios.profile.views import overlapping, place_of, views_of
from scenarios.timeline import StepTime
from tests.scenarios.profile import cuda, making


def one(path: Path) -> Capture:
    [capture] = read_captures(path).captures
    return capture


def kernels(capture: Capture) -> list[tuple[str, int, int]]:
    rows = capture.events.rows(Kind.KERNEL)
    return [(capture.text(int(r)), int(capture.events.start_ns[r]), int(capture.events.duration_ns[r])) for r in rows]


def test_a_tail_that_runs_a_period_later_is_laid_into_its_own_step(tmp_path: Path) -> None:
    views = views_of(one(cuda.write(tmp_path, cuda.ahead(4))))
    assert views.kernels == (5, 5, 5, 5)
    capture, step = views.view(1)
    assert (step.start_ns, step.end_ns) == (2_100_000, 3_100_000)
    # The tail ran at 3900; a period earlier the device ran the tail of the step before. The last is the next step's.
    assert kernels(capture) == [
        ("gemm_kernel", 2_100_000, 100_000), ("gemm_kernel", 2_300_000, 100_000), ("gemm_kernel", 2_500_000, 100_000),
        ("gemm_kernel", 2_700_000, 100_000), ("tail_kernel", 2_900_000, 60_000), ("gemm_kernel", 3_100_000, 100_000),
    ]  # fmt: skip
    assert views.times[1] == StepTime(1_000_000, 460_000, 0, 0, 0, 0, 540_000)
    assert views.times[0] == views.times[1] == views.times[2]
    assert "laid into it by whole periods" in overlapping(views, 1)


def test_the_last_step_has_no_period_and_does_not_stand_for_all(tmp_path: Path) -> None:
    views = views_of(one(cuda.write(tmp_path, cuda.ahead(4))))
    assert views.whole_steps() == [0, 1, 2]
    _, step = views.view(3)
    assert (step.start_ns, step.end_ns) == (4_100_000, 5_960_000)
    assert views.times[3].computing_ns == 460_000
    assert "to the end of its last" in overlapping(views, 3)


@pytest.mark.parametrize(
    ("tail_after", "tail"),
    [(2050, 100), (1000, 450)],  # over the end of the period; it and its own start of a later period
)
def test_a_tail_that_does_not_fit_into_the_period_leaves_the_step_as_long_as_it_ran(
    tmp_path: Path, tail_after: float, tail: float
) -> None:
    views = views_of(one(cuda.write(tmp_path, cuda.ahead(4, tail_after=tail_after, tail=tail))))
    capture, step = views.view(1)
    rows = [row for row in kernels(capture) if row[1] < step.end_ns]
    assert len(rows) == 5
    assert sum(length for *_, length in rows) == round(1000 * (400 + tail))
    if views.own:
        assert views.times[1].total_ns == step.end_ns - step.start_ns
        assert views.times[1].total_ns == (
            views.times[1].computing_ns + views.times[1].communication_not_overlapped_ns + views.times[1].free_ns
        )


def test_steps_that_follow_each_other_are_told_by_their_windows(tmp_path: Path) -> None:
    views = views_of(one(making.torch_npu(tmp_path)))
    assert views.own == ()
    assert views.view(0)[0] is views.capture
    assert overlapping(views, 0) == ""


def test_a_step_without_kernels_is_not_one_that_may_stand_for_all(tmp_path: Path) -> None:
    events = [cuda.mark("ProfilerStep#1", 990, 300), cuda.mark("ProfilerStep#2", 1300, 20)]
    capture = one(cuda.write(tmp_path, events, cuda.kernel(1, 1000, 1020, 30), cuda.kernel(2, 1050, 1310, 30)))
    views = views_of(capture)
    # The second kernel runs while the host is in step 2, but step 1 launched it.
    assert views.kernels == (2, 0)
    assert views.whole_steps() == [0]


def test_rows_without_a_launch_go_with_the_row_before_them_on_their_stream(tmp_path: Path) -> None:
    events = cuda.ahead(3)
    events.append(cuda.row("kernel", "fill_kernel", 7, 2420, 20, pid=cuda.DEVICE_PID))
    views = views_of(one(cuda.write(tmp_path, events)))
    assert views.kernels == (5, 6, 5)
    assert ("fill_kernel", 2_420_000, 20_000) in kernels(views.view(1)[0])


def test_steps_are_found_by_their_ids_and_by_their_place() -> None:
    from scenarios.profile import Step

    steps = [Step(name, 0, 1, 0, 1) for name in ("decode a", "decode b")]
    assert (place_of(steps, "decode b"), place_of(steps, "1"), place_of(steps, "3")) == (1, 0, None)
    numbered = [Step(name, 0, 1, 0, 1) for name in ("12", "13")]
    assert (place_of(numbered, "13"), place_of(numbered, "1")) == (1, None)
