"""A step replayed as it is gives the times that were measured: for any step, and for real profiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given

from scenarios.profile.read import read_captures
from scenarios.timeline import Span, Timeline
from sim.imported.replay.build import build
from sim.imported.replay.graph import Task
from sim.imported.replay.play import play, timelines
from sim.imported.timelines import timelines_of
from tests.sim.imported.replay.steps import (
    as_set,
    call,
    collective,
    kernel,
    runs,
    step,
    steps,
    synchronize,
    violations,
    wait,
)


def same_as_measured(measured: list[Timeline]) -> None:
    graph = build(measured)
    schedule = play(graph)
    assert list(schedule.starts_ns) == list(graph.starts_ns)
    for before, after in zip(measured, timelines(graph, schedule), strict=True):
        assert as_set(before.spans) == as_set(after.spans)
        assert (before.start_ns, before.end_ns) == (after.start_ns, after.end_ns)
        launchers = [
            (s.name, s.start_ns, t.spans[s.launched_by].name, t.spans[s.launched_by].start_ns)
            for t in (before, after)
            for s in t.spans
            if s.launched_by >= 0
        ]
        assert sorted(launchers[: len(launchers) // 2]) == sorted(launchers[len(launchers) // 2 :])


@given(steps())
def test_any_step_replays_to_its_own_times(measured: Timeline) -> None:
    assert violations(measured) == []
    same_as_measured([measured])


@given(runs())
def test_any_ranks_replay_to_their_own_times(measured: list[Timeline]) -> None:
    same_as_measured(measured)


@given(steps())
def test_causes_come_before_effects(measured: Timeline) -> None:
    graph = build([measured])
    assert all(edge.source < number for number, task in enumerate(graph.tasks) for edge in task.after)
    assert all(edge.lag_ns >= 0 for task in graph.tasks for edge in task.after)


def after(graph_task: Task) -> set[str]:
    return {edge.why for edge in graph_task.after}


def task(measured: Timeline, what: str, name: str = "") -> Task:
    graph = build([measured])
    [result] = [t for t in graph.tasks if t.what == what and (not name or (t.span and t.span.name == name))]
    return result


def test_a_kernel_that_starts_late_without_a_reason_waits_for_another_stream() -> None:
    late = step(call(0, 5), kernel(10, 90_000, "Conv", 0), call(6, 8), kernel(90_002, 90_100, "Add", 2, stream=1))
    edges = {edge.why: edge for edge in task(late, "kernel", "Add").after}
    assert edges["inferred"].lag_ns == 2
    assert edges["launch"].lag_ns < 90_000  # no longer what it took here


def test_a_stream_waits_for_a_collective_and_a_collective_for_kernels() -> None:
    measured = step(call(0, 1), kernel(1, 10, "Mul", 0), collective(10, 30, by=0), kernel(30, 40, "Add", 0))
    graph = build([measured])
    [arrive] = [t for t in graph.tasks if t.what == "arrive"]
    assert "event" in after(arrive)
    assert "event" in after(task(measured, "kernel", "Add"))


def test_a_synchronise_ends_with_the_device() -> None:
    waits = task(step(call(0, 5), kernel(6, 100, by=0), synchronize(8, 103)), "synchronise")
    assert [(edge.why, edge.lag_ns) for edge in waits.after] == [("thread", 0), ("drain", 3)]


def test_one_that_found_the_device_idle_takes_as_long_as_it_did() -> None:
    waits = task(step(call(0, 5), kernel(6, 10, by=0), synchronize(50, 57)), "synchronise")
    assert ("thread", 7) in [(edge.why, edge.lag_ns) for edge in waits.after]


def test_a_thread_that_idles_while_another_one_works_waits_for_it() -> None:
    """Python calls backward(), autograd's thread launches, and Python goes on when that is through."""
    spans = [
        call(0, 100, "forward", "Thread 1"), kernel(50, 90, "Mul", 0),
        call(150, 900_000, "backward", "Thread 2"), kernel(400, 500, "MulGrad", 2),
        call(900_040, 900_100, "optimizer", "Thread 1"), kernel(900_050, 900_200, "Adam", 4),
    ]  # fmt: skip
    last = task(step(*spans), "host", "optimizer")
    assert {edge.why: edge.lag_ns for edge in last.after} == {"thread": 50, "inferred": 40}


def test_a_wait_of_a_stream_ends_with_what_ended_last_elsewhere() -> None:
    event = Span("EVENT_WAIT", "Ascend Hardware", "Stream 0", 5, 82, "event_wait")
    result = task(step(kernel(0, 80, "Conv", stream=1), event, kernel(83, 90, "Add")), "wait")
    assert [(e.why, e.lag_ns) for e in result.after] == [("queue", 0), ("event", 2)] or result.after[-1].lag_ns == 2


def test_two_ranks_meet_in_a_collective() -> None:
    ranks = [
        step(call(0, 1), kernel(1, 10, by=0), collective(12, 50, by=0), wait(12, 40), end=60),
        step(call(0, 1), kernel(1, 38, by=0), collective(40, 51, by=0), end=60, rank=1),
    ]
    same_as_measured(ranks)
    graph = build(ranks)
    assert [t.duration_ns for t in graph.tasks if t.what == "transfer"] == [10, 11]
    assert "1 collectives begin when the last of the ranks here arrives" in graph.notes


def test_collectives_that_overlap_on_one_lane_keep_their_times() -> None:
    """Of two groups on one lane, the first of which starts for good when the other has long started."""
    early, late = "hcom_allReduce__1_0_1", "hcom_allGather__2_0_1"
    ranks = [
        step(kernel(0, 5), collective(5, 90, early), collective(6, 20, late), kernel(95, 99)),
        step(kernel(0, 5), collective(80, 90, early), kernel(95, 99), rank=1),
    ]
    same_as_measured(ranks)


def test_collectives_of_one_name_that_do_not_overlap_are_not_one() -> None:
    ranks = [step(kernel(0, 5), collective(5, 9)), step(kernel(0, 5), collective(500, 600), rank=1)]
    same_as_measured(ranks)
    assert "1 collectives of one name do not overlap in time on all ranks: each is replayed alone" in build(ranks).notes


def test_a_timeline_without_kernels_cannot_be_replayed() -> None:
    with pytest.raises(ValueError, match="no kernels"):
        build([step(call(0, 5))])


PROFILES = ("pytorch_level0_rank0", "pytorch_level2_rank0", "qwen3_0.6b_train_pp2dp2")


@pytest.mark.parametrize("name", PROFILES)
def test_real_profiles_replay_within_one_percent(shared: Path, name: str) -> None:
    """Exactly, in fact; 1 % is what is asked for. All ranks together and each alone."""
    measured, _ = timelines_of(read_captures(shared / "measured" / "profiles" / name), tasks=True)
    for ranks in (measured, *([t] for t in measured)):
        graph = build(ranks)
        schedule = play(graph)
        length = max(t.end_ns for t in ranks) - min(t.start_ns for t in ranks)
        assert schedule.makespan_ns == pytest.approx(length, rel=0.01)
        assert list(schedule.starts_ns) == list(graph.starts_ns)
        for before, now in zip(ranks, timelines(graph, schedule), strict=True):
            assert len(before.spans) == len(now.spans)


def test_a_prediction_replays_too(predicted: Callable[..., Timeline]) -> None:
    same_as_measured([predicted("qwen3_8b_910b2_eager")])
