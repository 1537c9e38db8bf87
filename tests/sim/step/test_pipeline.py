"""Stages and micro-batches: fill and drain by hand, the steady round, and the recurrence against SimPy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.step.pipeline import Bubble, Clocks, StageTime, once, steady
from tests.sim.pipeline_simpy import tokens_ns


def device_bound(ns: int, transfer_ns: int = 0) -> StageTime:
    """The host takes no time: all is on the device."""
    return StageTime(0, 0, ns, ns, transfer_ns)


@pytest.mark.parametrize(("stages", "chunks"), [(1, 1), (2, 1), (2, 4), (4, 3), (4, 16)])
def test_fill_and_drain_of_equal_stages(stages: int, chunks: int) -> None:
    # The textbook's bubble: chunks + stages - 1 slots, of which each stage works in `chunks`.
    result = once([[device_bound(100)] * stages] * chunks)
    assert result.total_ns == (chunks + stages - 1) * 100
    assert result.share == pytest.approx((stages - 1) / (chunks + stages - 1))


def test_one_request_makes_the_round_trip() -> None:
    # Two stages of 100 and 140 ns and a transfer of 10: each works while the other waits.
    result = steady([[device_bound(100), device_bound(140, 10)]])
    assert result.total_ns == 250
    assert result.bubbles == (Bubble(idle_ns=140), Bubble(receive_ns=100))


def test_two_micro_batches_hide_each_other() -> None:
    # The slowest stage sets the pace: twice 140 and the two transfers that hold it; the other waits to send.
    result = steady([[device_bound(100), device_bound(140, 10)]] * 2)
    assert result.total_ns == 300
    first, last = result.bubbles
    assert last.total_ns == 0
    assert first.total_ns == 300 - 2 * (100 + 10)


def test_a_second_micro_batch_is_no_slower_than_one_and_no_faster_than_the_slowest_stage() -> None:
    row = [StageTime(30, 5, 90, 70), StageTime(20, 5, 80, 60, 7), StageTime(25, 5, 120, 100, 7)]
    alone = steady([row]).total_ns
    for count in (2, 3):
        assert max(alone, count * (100 + 7)) <= steady([row] * count).total_ns < count * alone


def test_the_host_of_a_later_stage_works_while_the_first_device_does() -> None:
    # Host 40, device 100: the second stage's host is through at 80, its device only waits for the tensors.
    first, second = StageTime(40, 0, 140, 100), StageTime(40, 0, 140, 100)
    assert steady([[first, second]]).total_ns == 240
    assert steady([[first, second]]).bubbles[1].receive_ns == 100 - 0


def test_a_stage_whose_host_is_slow_is_busy_without_its_device() -> None:
    slow = StageTime(200, 0, 210, 10)
    result = steady([[slow, slow]] * 2)
    assert result.total_ns == 2 * 210
    assert result.share < 0.05


def test_a_sender_is_held_until_the_receiver_comes() -> None:
    clocks = Clocks.at_rest(2)
    clocks.through([device_bound(10), device_bound(500)], 0)
    second = clocks.through([device_bound(10), device_bound(500)], 0)
    assert (second[0].ready, second[1].transfer) == (20, 510)
    assert clocks.device[0] == 510


NS = st.integers(0, 50)


@st.composite
def stage_times(draw: st.DrawFn, rigid: bool) -> StageTime:
    host, post, queued = draw(NS), draw(NS), draw(NS)
    return StageTime(host, post, max(host, post, queued) + draw(NS), queued, draw(NS), rigid)


@st.composite
def rows(draw: st.DrawFn) -> list[list[StageTime]]:
    stages, count, rigid = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.booleans())
    return [[draw(stage_times(rigid)) for _ in range(stages)] for _ in range(min(count, stages))]


@given(rows(), st.integers(1, 4))
def test_the_recurrence_is_the_simulation(times: list[list[StageTime]], rounds: int) -> None:
    clocks = Clocks.at_rest(len(times[0]))
    done = [0] * len(times)
    result: list[int] = []
    for _ in range(rounds):
        for number, row in enumerate(times):
            done[number] = clocks.through(row, done[number])[-1].ready
        result += done
    assert result == tokens_ns(times, rounds)


@given(rows(), st.integers(1, 5))
def test_a_series_is_the_simulation(times: list[list[StageTime]], repeat: int) -> None:
    series = times * repeat
    expected = tokens_ns(series, 1, in_flight=len(times[0]))
    assert [row[-1].ready for row in once(series).passes] == expected


@given(rows())
def test_the_steady_round_is_what_many_rounds_take(times: list[list[StageTime]]) -> None:
    done = tokens_ns(times, 120)
    span = len(times)
    average = (done[-1] - done[-1 - 60 * span]) / 60
    assert steady(times).total_ns == pytest.approx(average, abs=1)
    # A round is never shorter than the work of one stage.
    queued = max(sum(row[s].queued_ns + row[s].transfer_ns * (s > 0) for row in times) for s in range(len(times[0])))
    assert steady(times).total_ns >= queued


@given(rows(), st.integers(1, 3))
def test_a_stage_works_or_waits(times: list[list[StageTime]], repeat: int) -> None:
    for result in (steady(times), once(times * repeat)):
        assert all(0 <= b.total_ns <= result.total_ns for b in result.bubbles)
        assert all(min(b.receive_ns, b.send_ns, b.idle_ns) >= 0 for b in result.bubbles)


def test_rounds_that_do_not_settle_are_told_by_their_second_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rounds enough the period is exact; where they run out, the mean of the later ones comes near it."""
    times = [[device_bound(100), device_bound(140, 10)], [device_bound(30), device_bound(50, 10)]]
    settled = steady(times).total_ns
    for rounds in (3, 4, 5):
        monkeypatch.setattr("sim.step.pipeline.MAX_ROUNDS", rounds)
        assert steady(times).total_ns == pytest.approx(settled, rel=0.5)
