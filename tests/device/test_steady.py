"""Times at one speed of the machine: drift and other programs taken out, and nothing else."""

from __future__ import annotations

from time import sleep

import pytest
import torch

from device.backends import choose
from device.measure.steady import Reference, around, steadied, timed


def test_a_drift_that_the_reference_sees_is_taken_out() -> None:
    speeds = [1.0 + 0.04 * i for i in range(10)]  # 40 % slower within ten repeats
    values, references = [100.0 * s for s in speeds], [7.0 * s for s in speeds]
    result = steadied(values, references, at=7.0)
    assert result == pytest.approx([100.0] * 10)


def test_one_reference_that_was_disturbed_disturbs_nothing() -> None:
    assert steadied([5.0] * 9, [2.0, 2.0, 2.0, 2.0, 90.0, 2.0, 2.0, 2.0, 2.0]) == [5.0] * 9


def test_values_keep_their_level_unless_another_is_asked_for() -> None:
    assert steadied([3.0, 6.0, 3.0], [1.0, 1.0, 1.0]) == [3.0, 6.0, 3.0]
    assert steadied([3.0, 6.0, 3.0], [1.0, 1.0, 1.0], at=2.0) == [6.0, 12.0, 6.0]
    assert steadied([], []) == []


def test_a_window_lies_on_both_sides_alike() -> None:
    assert around([1.0, 2.0, 3.0, 4.0, 50.0, 6.0, 7.0]) == [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 7.0]
    assert around([4.0, 2.0]) == [4.0, 2.0]


def test_what_others_take_is_in_the_wall_clock_only() -> None:
    results = [timed(choose("cpu"), lambda: sleep(0.05)) for _ in range(3)]
    assert all(result.wall_ns >= 50_000_000 for result in results)
    assert min(result.busy_ns for result in results) < 10_000_000


def test_a_call_takes_time_though_its_thread_clock_does_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = choose("cpu")
    monkeypatch.setattr(type(backend), "own_ns", lambda _: 7)
    result = timed(backend, lambda: sleep(0.001))
    assert result.busy_ns == result.wall_ns >= 1_000_000
    assert Reference(backend).timed().busy_ns > 0


def test_the_reference_always_does_the_same() -> None:
    backend = choose("cpu")
    one, other = Reference(backend), Reference(backend)
    one.timed()
    other.timed()
    assert torch.equal(one._product, other._product)
    assert torch.equal(one._memory, other._memory)
