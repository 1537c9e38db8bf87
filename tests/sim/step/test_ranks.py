"""Ranks that meet in collectives: who waits for whom, and the vector recurrence that is as exact as the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.timeline import step_time
from sim.kernel.time import KernelTime
from sim.predict.waits import waits_by_rank
from sim.step import engine, ranks
from sim.step.plan import HostWork, Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.schedule import SimulationStuck, timeline


def kernel(duration_ns: int, communication: bool = False) -> KernelTime:
    lane = "COMMUNICATION" if communication else "AI_CORE"
    return KernelTime(duration_ns, lane, 1, "hbm", 0, 0, 0, 0)  # type: ignore[arg-type]


def launch(index: int, duration_ns: int, rendezvous: str = "", host_ns: int = 0, **more: object) -> Launch:
    result = Launch(
        index,
        0,
        f"k{index}",
        "add",
        "Add",
        kernel(duration_ns, bool(rendezvous)),
        host_ns=host_ns,
        rendezvous=rendezvous,
    )
    return replace(result, **more)  # type: ignore[arg-type]


def eager(*launches: Launch, launch_thread: bool = False) -> Plan:
    return Plan((*(Issue(item) for item in launches), Synchronize("synchronize", 10)), launch_thread, 4)


def test_a_collective_starts_when_the_last_rank_is_ready() -> None:
    # Rank 0 computes for 100 ns and waits; rank 1 computes for 400 ns. Both are issued at 50 ns; the exchange takes 30.
    fast = eager(launch(0, 100, host_ns=50), launch(1, 30, "reduce", host_ns=0))
    slow = eager(launch(0, 400, host_ns=50), launch(1, 30, "reduce", host_ns=0))
    first, second = engine.times_of_ranks([fast, slow])
    assert first.kernels == [(50, 150), (450, 480)]
    assert second.kernels == [(50, 450), (450, 480)]
    assert (first.arrivals, second.arrivals) == ({1: 150}, {1: 450})
    assert first.end_ns == second.end_ns == 490


def test_waiting_and_transfer_are_lanes_of_their_own() -> None:
    fast = eager(launch(0, 100), launch(1, 30, "reduce"))
    slow = eager(launch(0, 400), launch(1, 30, "reduce"))
    schedule = engine.times_of_ranks([fast, slow])
    spans = timeline(fast, schedule[0]).spans
    lanes = {(s.thread, s.kind): (s.start_ns, s.end_ns) for s in spans if s.process == "Communication"}
    assert lanes == {
        ("Group 0 Communication", "add"): (100, 430),
        ("Plane 0", "wait"): (100, 400),
        ("Plane 0", "transfer"): (400, 430),
    }
    step = step_time(timeline(fast, schedule[0]))
    assert (step.computing_ns, step.communication_ns, step.communication_wait_ns) == (100, 330, 300)
    assert step.total_ns == step.computing_ns + step.communication_not_overlapped_ns + step.free_ns


def test_the_last_rank_waits_for_nobody() -> None:
    plans = [eager(launch(0, n), launch(1, 30, "reduce")) for n in (100, 400)]
    spans = timeline(plans[1], engine.times_of_ranks(plans)[1]).spans
    assert [s.kind for s in spans if s.thread == "Plane 0"] == ["transfer"]


def test_ranks_that_meet_in_different_collectives_are_stuck() -> None:
    plans = [eager(launch(0, 10, "reduce")), eager(launch(0, 10, "gather"))]
    with pytest.raises(SimulationStuck, match="collectives wait: 'gather' for 1 ranks, 'reduce' for 1 ranks"):
        engine.times_of_ranks(plans)


def test_one_rank_meets_itself_at_once() -> None:
    plan = eager(launch(0, 100), launch(1, 30, "reduce"))
    assert engine.times(plan).kernels == [(0, 100), (100, 130)]


numbers = st.integers(0, 500)


@st.composite
def groups(draw: st.DrawFn) -> list[Plan]:
    """Plans of one program for 1 to 5 ranks: eager ops, a synchronise, a replay with an update; collectives in both."""
    ranks_, threaded = draw(st.integers(1, 5)), draw(st.booleans())
    issued = draw(st.lists(st.booleans(), min_size=1, max_size=6))
    captured = draw(st.lists(st.booleans(), min_size=1, max_size=6))
    gated = draw(st.booleans())
    gaps = draw(st.lists(st.integers(0, 50), min_size=12, max_size=12))
    depth = draw(st.integers(1, 3))

    def op(index: int, has_rendezvous: bool, host: bool) -> Launch:
        waits = ("go",) if gated and not host and index == len(issued) else ()
        return launch(
            index,
            draw(numbers),
            f"meet {index}" if has_rendezvous else "",
            draw(numbers) if host else 0,
            gap_ns=gaps[index],
            launch_ns=draw(numbers) if threaded and host else 0,
            waits=waits,
        )

    # Collectives take the same time on all ranks.
    same = [draw(numbers) for _ in range(len(issued) + len(captured))]

    def fixed(item: Launch) -> Launch:
        return replace(item, kernel=kernel(same[item.index], True)) if item.rendezvous else item

    plans = []
    for _ in range(ranks_):
        eager_ops = [Issue(fixed(op(i, has_rendezvous, True))) for i, has_rendezvous in enumerate(issued)]
        inside = tuple(fixed(op(len(issued) + i, has_rendezvous, False)) for i, has_rendezvous in enumerate(captured))
        plans.append(
            Plan(
                (
                    HostWork("prepare", draw(numbers)),
                    *eager_ops,
                    Synchronize("synchronize", draw(numbers)),
                    Replay("graph", inside, draw(numbers), draw(numbers) if threaded else 0, 40),
                    *((Update("lengths", draw(numbers), "go"),) if gated else ()),
                    Synchronize("synchronize", draw(numbers)),
                ),
                threaded,
                depth,
            )
        )
    return plans


@settings(max_examples=150)
@given(groups())
def test_the_vector_recurrence_equals_the_engine(plans: list[Plan]) -> None:
    schedules = engine.times_of_ranks(plans)
    assert ranks.total_ns(plans) == schedules[0].end_ns
    assert ranks.times(plans) == schedules
    first, *others = ranks.times(plans, only_first=True)
    assert first == schedules[0]
    assert [(one.end_ns, one.arrivals) for one in others] == [(one.end_ns, one.arrivals) for one in schedules[1:]]


@settings(max_examples=150)
@given(groups())
def test_a_lone_stream_runs_ahead_of_the_clock_and_changes_nothing(plans: list[Plan]) -> None:
    ahead = engine.times_of_ranks(plans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.step.engine.one_stream", lambda _: False)
        assert engine.times_of_ranks(plans) == ahead


@given(groups())
def test_a_collective_starts_together_and_never_before_its_last_rank(plans: list[Plan]) -> None:
    schedule = engine.times_of_ranks(plans)
    for number in schedule[0].arrivals:
        starts = {item.kernels[number][0] for item in schedule}
        assert starts == {max(value.arrivals[number] for value in schedule)}


def late(ns: int) -> Plan:
    """Two collectives of 30 ns, each after a kernel of `ns`."""
    return eager(launch(0, ns), launch(1, 30, "first"), launch(2, ns), launch(3, 30, "second"))


def test_a_wait_counts_for_the_rank_that_came_last() -> None:
    plans = [late(ns) for ns in (100, 100, 400, 300)]
    assert waits_by_rank(plans[0], engine.times_of_ranks(plans)) == {2: 600}
    # The one that all wait for waits for nobody.
    schedule = engine.times_of_ranks(plans)
    assert waits_by_rank(plans[0], [schedule[2], *schedule[:2], schedule[3]]) == {}


def test_ranks_that_come_last_together_share_the_wait() -> None:
    # Twice 301 ns for three ranks: 100 each, and the odd one is the first's.
    plans = [late(ns) for ns in (100, 401, 401, 401)]
    assert waits_by_rank(plans[0], engine.times_of_ranks(plans)) == {1: 202, 2: 200, 3: 200}


def in_pieces(products: list[int], reductions: list[int]) -> Plan:
    """Products on one stream, the collective of each on another, and a kernel that waits for the last."""
    steps: list[Launch] = []
    for i, (product_ns, reduction_ns) in enumerate(zip(products, reductions, strict=True)):
        steps.append(launch(2 * i, product_ns, records=(f"made {i}",)))
        steps.append(
            launch(2 * i + 1, reduction_ns, f"meet {i}", stream=2, waits=(f"made {i}",), records=(f"reduced {i}",))
        )
    steps.append(launch(2 * len(products), 5, waits=(f"reduced {len(products) - 1}",)))
    return Plan((Replay("graph", tuple(steps), 0, 0, 0), Synchronize("synchronize", 0)), False, 4)


def test_a_piece_is_reduced_beside_the_product_of_the_next() -> None:
    # Products of 100 ns, reductions of 30: the last reduction alone is not hidden. The reader takes 5.
    assert engine.times(in_pieces([100, 100], [30, 30])).kernels == [
        (0, 100),
        (100, 130),
        (100, 200),
        (200, 230),
        (230, 235),
    ]
    # Reductions of 300: the first product alone is not hidden.
    assert engine.times(in_pieces([100, 100], [300, 300])).end_ns == 100 + 300 + 300 + 5


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.integers(1, 4),
    st.lists(st.integers(0, 300), min_size=16, max_size=16),
)
def test_the_vector_recurrence_equals_the_engine_on_several_streams(
    reductions: list[int], count: int, products: list[int]
) -> None:
    each = len(reductions)
    plans = [in_pieces(products[each * rank : each * (rank + 1)], reductions) for rank in range(count)]
    assert ranks.total_ns(plans) == engine.times_of_ranks(plans)[0].end_ns


def test_a_plan_that_ends_without_a_synchronise_is_refused() -> None:
    plan = Plan((Issue(launch(0, 10)),), False, 4)
    with pytest.raises(ValueError, match="a final Synchronize is due"):
        ranks.total_ns([plan, plan])
