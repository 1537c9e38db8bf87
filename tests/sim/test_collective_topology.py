"""Which link joins whom."""

from __future__ import annotations

import pytest

from sim.collective.topology import Level, levels_of, tier_between
from sim.hardware import load_hardware

A2 = load_hardware("atlas_a2_910b2").collective
A3 = load_hardware("atlas_a3_die").collective


@pytest.mark.parametrize(
    ("b", "tier"), [(1, "sio"), (2, "hccs"), (15, "hccs"), (16, "pod"), (767, "pod"), (768, "roce")]
)
def test_dies_of_a3_seen_from_the_first(b: int, tier: str) -> None:
    assert tier_between(0, b, A3) == tier


@pytest.mark.parametrize(("b", "tier"), [(1, "hccs"), (7, "hccs"), (8, "roce")])
def test_cards_of_a2_seen_from_the_first(b: int, tier: str) -> None:
    assert tier_between(0, b, A2) == tier


def test_levels_of_neighbours() -> None:
    assert levels_of(1, A3) == ()
    assert levels_of(2, A3) == (Level("sio", 2),)
    assert levels_of(16, A3) == (Level("hccs", 16),)
    assert levels_of(64, A3) == (Level("hccs", 16), Level("pod", 4))
    assert levels_of(1536, A3) == (Level("hccs", 16), Level("pod", 48), Level("roce", 2))
    assert levels_of(8, A2) == (Level("hccs", 8),)
    assert levels_of(16, A2) == (Level("hccs", 8), Level("roce", 2))


def test_ranks_a_replica_apart() -> None:
    # Data parallelism over replicas of 8 dies: two of them share a server of 16 dies.
    assert levels_of(4, A3, stride=8) == (Level("hccs", 2), Level("pod", 2))
    assert levels_of(4, A3, stride=16) == (Level("pod", 4),)
    assert levels_of(2, A2, stride=8) == (Level("roce", 2),)


def test_a_server_that_is_not_full_counts_as_the_fullest() -> None:
    assert levels_of(24, A3) == (Level("hccs", 12), Level("pod", 2))
