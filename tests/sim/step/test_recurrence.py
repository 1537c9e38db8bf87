"""The recurrence against the engine: the same bytes without contention, a bound that says so with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from scenarios.timeline import step_time
from sim.step import engine, recurrence
from sim.step.plan import Issue, Plan, Replay, Update
from sim.step.recurrence import Contended, Quick
from sim.step.schedule import Schedule, SimulationStuck, launches
from tests.sim.plans import GREEDY, SYNCHRONIZE, assert_rules, issue, launch, plans, together


@settings(max_examples=400)
@given(plans())
def test_without_contention_the_two_players_agree_on_every_byte(plan: Plan) -> None:
    timeline = engine.play(plan)
    assert recurrence.play(plan) == timeline
    assert recurrence.total_ns(plan) == timeline.end_ns
    assert recurrence.quick(plan) == Quick(timeline.end_ns, step_time(timeline).computing_ns, False)


@given(plans())
def test_every_begin_is_the_latest_of_its_causes(plan: Plan) -> None:
    schedule = recurrence.times(plan)
    assert_rules(plan, schedule)
    alone = [one.kernel.duration_ns for one in launches(plan)]
    assert [end - start for start, end in schedule.kernels] == alone


def outcome(player: Callable[[Plan], Schedule], plan: Plan) -> Schedule | str:
    try:
        return player(plan)
    except SimulationStuck as error:
        return str(error)


@settings(max_examples=400)
@given(plans(wild=True))
def test_a_plan_that_cannot_end_stops_both_with_the_same_words(plan: Plan) -> None:
    assert outcome(engine.times, plan) == outcome(recurrence.times, plan)


@settings(max_examples=400)
@given(plans(GREEDY, wild=True, streams=1))
def test_a_lone_stream_that_runs_ahead_of_the_clock_changes_nothing(plan: Plan) -> None:
    """The engine's own short cut against its general way, and against the recurrence."""
    ahead = outcome(engine.times, plan)
    assert ahead == outcome(recurrence.times, plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.step.engine.one_stream", lambda _: False)
        assert outcome(engine.times, plan) == ahead


@settings(max_examples=400)
@given(plans(GREEDY))
def test_with_contention_the_recurrence_says_so_and_bounds_the_engine(plan: Plan) -> None:
    ours, theirs = recurrence.times(plan), engine.times(plan)
    bound = recurrence.quick(plan)
    assert bound.total_ns == ours.end_ns
    if bound.contended:
        with pytest.raises(Contended):
            recurrence.total_ns(plan)
        with pytest.raises(Contended):
            recurrence.play(plan)
        assert ours != theirs
    else:
        assert ours == theirs
    for lower, upper in zip(
        (*ours.host, *ours.launch, *ours.kernels), (*theirs.host, *theirs.launch, *theirs.kernels), strict=True
    ):
        assert lower[0] <= upper[0]
        assert lower[1] <= upper[1]


@given(plans(GREEDY))
def test_a_step_is_never_longer_than_all_of_it_in_a_row(plan: Plan) -> None:
    """Whatever kernels run together, together they progress at least as fast as one alone."""
    kernels_ns = [one.gap_ns + one.kernel.duration_ns for one in launches(plan)]
    host_ns = 0
    for step in plan.steps:
        payer = step.launch if isinstance(step, Issue) else step
        host_ns += payer.host_ns
        if isinstance(step, Issue | Replay):
            host_ns += payer.launch_ns
        if isinstance(step, Replay):
            host_ns += step.start_ns
    rounding = len(kernels_ns)  # each end is rounded up to a whole nanosecond
    assert engine.times(plan).end_ns <= host_ns + sum(kernels_ns) + rounding


@given(plans(GREEDY))
def test_computing_and_free_time_make_the_step(plan: Plan) -> None:
    step = step_time(engine.play(plan))
    assert step.computing_ns + step.free_ns == step.total_ns
    assert 0 <= step.free_ns <= step.total_ns


def test_contention_is_refused_by_name() -> None:
    plan = together(launch("a", 100, hbm=0.6), launch("b", 100, stream=1, hbm=0.6))
    with pytest.raises(Contended, match=r"^b on stream 1 shares a resource that is used up"):
        recurrence.total_ns(plan)
    assert recurrence.quick(plan) == Quick(total_ns=100, computing_ns=100, contended=True)


def test_kernels_that_only_touch_are_not_contended() -> None:
    plan = together(launch("a", 9, hbm=1.0, records=("e",)), launch("b", 9, stream=1, hbm=1.0, waits=("e",)))
    assert recurrence.total_ns(plan) == 18


def test_one_stream_is_never_contended() -> None:
    plan = together(*[launch("a", 10, hbm=1.0, gap_ns=1)] * 5)
    assert recurrence.total_ns(plan) == 54


def test_streams_that_wait_for_each_other_in_turn() -> None:
    """A relay between two streams, and an update in the middle that comes after the replay in program order."""
    captured = [
        launch("a", 10, records=("a",)),
        launch("d", 10, waits=("c",), records=("d",)),
        launch("b", 10, stream=1, waits=("a",)),
        launch("c", 10, stream=1, waits=("u",), records=("c",)),
        launch("e", 10, stream=1, waits=("d",)),
    ]
    plan = Plan((Replay("g", tuple(captured), 0, 0, 0), Update("u", 35, "u"), SYNCHRONIZE), False, 1)
    assert recurrence.times(plan).kernels == [(0, 10), (45, 55), (10, 20), (35, 45), (55, 65)]
    assert recurrence.total_ns(plan) == 65


def eager(count: int) -> Plan:
    ops = (issue(f"op{i % 30}", 5_000, layer=i // 30, host_ns=12_000, launch_ns=6_000, hbm=0.9) for i in range(count))
    return Plan((*ops, SYNCHRONIZE), launch_thread=True, queue_depth=1024)


def graph(count: int) -> Plan:
    captured = tuple(
        launch(f"op{i % 16}", 20_000, layer=i // 16, gap_ns=300, waits=(f"u{i // 16}",) if i % 16 == 7 else (), hbm=0.9)
        for i in range(count)
    )
    updates = (Update(f"attention {i}", 9_000, f"u{i}") for i in range(-(-count // 16)))
    return Plan((Replay("decode", captured, 50_000, 9_000, 3_000), *updates, SYNCHRONIZE), True, 1024)
