"""Kernels that run together: fair rates by themselves, then on the device, in nanoseconds worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.timeline import length_ns, union_ns
from sim.step import engine
from sim.step.plan import Plan
from sim.step.schedule import launches
from sim.step.sharing import FULL_RATE, HELD, RESOURCES, VECTOR, WHOLE, Shares, contended, rates, shares
from tests.sim.plans import GREEDY, SYNCHRONIZE, assert_rules, issue, kernel, kernels, launch, plans, together


def fair(*wanted: tuple[float, float]) -> list[float]:
    """Rates of kernels with these (hbm, cube) shares."""
    return [rate / FULL_RATE for rate in rates([shares(kernel(1, hbm=hbm, cube=cube)) for hbm, cube in wanted])]


def test_a_kernel_alone_runs_at_full_speed() -> None:
    assert fair((1.0, 1.0)) == [1.0]
    assert fair() == []


def test_shares_that_fit_slow_nobody() -> None:
    assert fair((0.6, 0.0), (0.4, 0.0)) == [1.0, 1.0]
    # In floating point these sum to more than 1.
    assert fair(*[(1 / 10, 0.0)] * 10) == [1.0] * 10
    assert fair(*[(1 / 7, 0.0)] * 7) == [1.0] * 7


def test_an_over_subscribed_resource_slows_its_users_alike() -> None:
    assert fair((1.0, 0.0), (1.0, 0.0)) == [0.5, 0.5]
    assert fair((0.6, 0.0), (0.6, 0.0)) == pytest.approx([1 / 1.2] * 2, abs=1e-9)
    assert fair((1.0, 0.0), (1.0, 0.0), (0.5, 0.0)) == [0.4, 0.4, 0.4]


def test_who_does_not_use_the_scarce_resource_goes_on() -> None:
    # HBM holds a and b at 1/2; b leaves 0.6 of the cube, and c rises to 0.6 / 0.8.
    assert fair((1.0, 0.0), (1.0, 0.8), (0.0, 0.8)) == [0.5, 0.5, 0.75]
    # With a smaller c there is cube enough.
    assert fair((1.0, 0.0), (1.0, 0.8), (0.0, 0.6)) == [0.5, 0.5, 1.0]


def test_the_scarcest_resource_holds_first() -> None:
    # The cube holds all three at 1/3, and HBM, wanted 1.5 times, is not scarce any more.
    assert fair((0.5, 1.0), (0.5, 1.0), (0.5, 1.0)) == pytest.approx([1 / 3] * 3, abs=1e-15)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_and_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="shares lie between 0 and 1"):
        shares(kernel(1, hbm=share))


def test_a_share_may_miss_1_by_a_rounding_error() -> None:
    assert shares(kernel(1, hbm=1.0000000000000002)) == (WHOLE, 0, 0, 0, 0, 0)


def alongside(*wanted: tuple[float, bool]) -> list[float]:
    """Rates of kernels with these shares of the vector cores, held or not."""
    return [rate / FULL_RATE for rate in rates([shares(kernel(1, vector=v, holds=holds)) for v, holds in wanted])]


def test_what_just_fits_is_no_contention() -> None:
    # 24 of 40 cores are held and a kernel wants just the other 16; one more is too many.
    held, wants, more = (shares(kernel(1, vector=v, holds=h)) for v, h in ((0.6, True), (0.4, False), (0.425, False)))
    assert not contended([held, wants])
    assert contended([held, more])
    assert not contended([shares(kernel(1, hbm=1.0))])


def test_cores_that_a_collective_holds_are_lost_to_the_others() -> None:
    # 24 of 40 cores are held: who fills all 40 has 16, who fills 20 has 16 of 20, who fills 16 does not notice.
    assert alongside((0.6, True), (1.0, False)) == [1.0, 0.4]
    assert alongside((0.6, True), (0.5, False)) == [1.0, 0.8]
    assert alongside((0.6, True), (0.4, False)) == [1.0, 1.0]
    # Without holding, both would be slowed alike.
    assert alongside((0.6, False), (1.0, False)) == pytest.approx([1 / 1.6] * 2, abs=1e-9)


def test_who_finds_no_core_left_stands_still_until_there_are_some() -> None:
    assert alongside((1.0, True), (0.5, False)) == [1.0, 0.0]
    # The collective takes 100 ns; the other has run for 10 of its 30 ns when it starts.
    holder = launch("reduce", 100, stream=1, waits=("go",), vector=1.0, holds=True)
    assert times(launch("add", 30, vector=1.0), launch("tick", 10, stream=2, records=("go",)), holder) == [
        ("add", 0, 130),
        ("tick", 0, 10),
        ("reduce", 10, 110),
    ]


def test_two_that_hold_more_cores_than_there_are_share_them() -> None:
    assert alongside((0.8, True), (0.8, True)) == pytest.approx([1 / 1.6] * 2, abs=1e-9)
    assert alongside((0.8, True), (0.8, True), (0.1, False))[2] == 0.0


SIX_SHARES = st.tuples(*[st.sampled_from([0, WHOLE // 10, WHOLE // 3, WHOLE // 2, WHOLE]) | st.integers(0, WHOLE)] * 6)


@given(st.lists(SIX_SHARES, max_size=6))
def test_rates_are_max_min_fair(wanted: list[Shares]) -> None:
    """Feasible, and each kernel below its full speed uses a resource that is used up and in which nobody is faster.

    The second is the definition of max-min fairness turned into a check (Bertsekas and Gallager, Data Networks, 6.5.2).
    """
    given_rates = rates(wanted)
    slack = Fraction(len(wanted), FULL_RATE)  # rates are rounded up
    each, all_of = list(zip(given_rates, wanted, strict=True)), range(len(RESOURCES))
    used = [sum(Fraction(rate, FULL_RATE) * Fraction(mine[j], WHOLE) for rate, mine in each) for j in all_of]
    there = [Fraction(1)] * len(RESOURCES)
    there[VECTOR] -= min(Fraction(1), sum((Fraction(mine[HELD], WHOLE) for mine in wanted), Fraction(0)))
    assert all(0 <= rate <= FULL_RATE for rate in given_rates)
    assert all(rate or (mine[VECTOR] and not there[VECTOR]) for rate, mine in each)
    assert all(part <= whole + slack for part, whole in zip(used, there, strict=True))
    for rate, mine in each:
        held_by = [
            j for j in all_of if mine[j] and used[j] >= there[j] - slack and all(r <= rate + 6 for r, s in each if s[j])
        ]
        assert rate == FULL_RATE or held_by
    assert contended(wanted) == any(rate < FULL_RATE for rate in given_rates)


@given(st.lists(SIX_SHARES, max_size=6), st.randoms(use_true_random=False))
def test_rates_do_not_depend_on_order(wanted: list[Shares], random) -> None:
    order = list(range(len(wanted)))
    random.shuffle(order)
    assert rates([wanted[i] for i in order]) == [rates(wanted)[i] for i in order]


# On the device.


def times(*captured) -> list[tuple[str, int, int]]:
    return kernels(engine.play(together(*captured)))


def test_two_kernels_that_each_fill_hbm_take_twice_as_long() -> None:
    assert times(launch("a", 100, hbm=1.0), launch("b", 100, stream=1, hbm=1.0)) == [("a", 0, 200), ("b", 0, 200)]


def test_two_kernels_that_want_six_tenths_each() -> None:
    assert times(launch("a", 100, hbm=0.6), launch("b", 100, stream=1, hbm=0.6)) == [("a", 0, 120), ("b", 0, 120)]


def test_the_longer_kernel_speeds_up_when_the_shorter_has_ended() -> None:
    # Both at 1/2 until b ends at 100; a has 50 left then.
    assert times(launch("a", 100, hbm=1.0), launch("b", 50, stream=1, hbm=1.0)) == [("a", 0, 150), ("b", 0, 100)]


def test_three_of_which_one_is_small() -> None:
    # All at 0.4 until small ends at 50; a and b have 80 left each and go on at 1/2.
    assert times(
        launch("a", 100, hbm=1.0), launch("b", 100, stream=1, hbm=1.0), launch("small", 20, stream=2, hbm=0.5)
    ) == [("a", 0, 210), ("b", 0, 210), ("small", 0, 50)]


def test_a_kernel_that_joins_midway() -> None:
    steps = (issue("a", 100, hbm=1.0), issue("b", 30, stream=1, host_ns=60, hbm=1.0), SYNCHRONIZE)
    # a has 40 left at 60; both at 1/2 until b ends at 120; a has 10 left then.
    timeline = engine.play(Plan(steps, launch_thread=False, queue_depth=1))
    assert kernels(timeline) == [("a", 0, 130), ("b", 60, 120)]
    assert timeline.end_ns == 130


def test_each_resource_holds_its_own_users() -> None:
    # Rates 1/2, 1/2, 3/4 (see above): c ends at 100, which frees no HBM.
    assert times(
        launch("a", 100, hbm=1.0), launch("b", 100, stream=1, hbm=1.0, cube=0.8), launch("c", 75, stream=2, cube=0.8)
    ) == [("a", 0, 200), ("b", 0, 200), ("c", 0, 100)]


def test_cube_beside_vector_and_ai_cpu_beside_both() -> None:
    cube = launch("matmul", 100, cube=1.0, hbm=0.5)
    vector = launch("norm", 80, stream=1, vector=1.0, hbm=0.5)
    ai_cpu = launch("mask", 300, stream=2, lane="AI_CPU", ai_cpu=1.0)
    assert times(cube, vector, ai_cpu) == [("matmul", 0, 100), ("norm", 0, 80), ("mask", 0, 300)]


def test_two_ai_cpu_kernels_share_it() -> None:
    one, other = (launch(name, 50, stream=s, lane="AI_CPU", ai_cpu=1.0) for s, name in enumerate("ab"))
    assert times(one, other) == [("a", 0, 100), ("b", 0, 100)]


def test_an_end_between_two_nanoseconds_is_rounded_up() -> None:
    # 10 / (3/4) = 13.33
    assert times(launch("a", 10, hbm=2 / 3), launch("b", 10, stream=1, hbm=2 / 3)) == [("a", 0, 14), ("b", 0, 14)]


def test_a_kernel_that_starts_when_another_ends_never_met_it() -> None:
    captured = (
        launch("a", 100, hbm=1.0, records=("e",)),
        launch("b", 100, stream=1, hbm=1.0, waits=("e",)),
        launch("nothing", 0, stream=2, hbm=1.0),
    )
    assert times(*captured) == [("a", 0, 100), ("nothing", 0, 0), ("b", 100, 200)]


@given(plans(GREEDY))
def test_contention_only_ever_delays_the_ends_of_kernels(plan: Plan) -> None:
    assert_rules(plan, engine.times(plan))


@given(plans(GREEDY))
def test_no_resource_gives_more_than_the_whole_of_itself(plan: Plan) -> None:
    """In any stretch of time the kernels that lie within it used at most that much of each resource."""
    intervals = engine.times(plan).kernels
    work = list(zip(intervals, (one.kernel for one in launches(plan)), strict=True))
    for first in {start for start, _ in intervals}:
        for end in {end for _, end in intervals}:
            within = [k for (start, stop), k in work if first <= start and stop <= end]
            for resource in ("hbm_share", "cube_share", "vector_share", "ai_cpu_share"):
                used = sum(k.duration_ns * getattr(k, resource) for k in within)
                assert used <= max(0, end - first) + 1e-6


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 300)), min_size=1, max_size=6))
def test_work_is_conserved_where_each_kernel_wants_all(kernels_of_streams: list[tuple[int, int]]) -> None:
    """The resource is busy exactly as long as the work takes, but for the nanosecond to which each end is rounded."""
    steps = tuple(
        issue(f"k{n}", ns, stream=n, host_ns=host_ns, hbm=1.0) for n, (ns, host_ns) in enumerate(kernels_of_streams)
    )
    schedule = engine.times(Plan((*steps, SYNCHRONIZE), launch_thread=False, queue_depth=1))
    busy_ns = length_ns(union_ns(schedule.kernels))
    work_ns = sum(ns for ns, _ in kernels_of_streams)
    assert work_ns <= busy_ns <= work_ns + len(steps)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.05, 1.0)), min_size=1, max_size=5), st.floats(0.1, 1.0))
def test_a_faster_resource_never_makes_a_kernel_later(wanted: list[tuple[int, float]], scale: float) -> None:
    """More bandwidth is smaller shares of it: kernels that start together on one resource all end sooner or when they
    did."""

    def ends(factor: float) -> list[int]:
        captured = (launch(f"k{n}", ns, stream=n, hbm=share * factor) for n, (ns, share) in enumerate(wanted))
        return [end for _, end in engine.times(together(*captured)).kernels]

    rounding = len(wanted)  # each end that comes before is rounded up
    assert all(fast <= slow + rounding for fast, slow in zip(ends(scale), ends(1.0), strict=True))
