"""The tile pipeline: by hand, in closed form, and played by SimPy."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.kernel.tiles import Tile, pipeline_ns, uniform_ns
from sim.kernel.tiles_simpy import LaneSpan, play

TIMES = st.integers(min_value=0, max_value=50)
TILES = st.lists(st.builds(Tile, TIMES, TIMES, TIMES), min_size=1, max_size=12)


def test_one_tile_passes_all_three_units() -> None:
    assert pipeline_ns([Tile(5, 7, 3)]) == 15


def test_two_buffers_hide_all_but_the_slowest_unit() -> None:
    # The load of the next tile runs alongside the computation: 5 + 7 + 7 + 7 + 3.
    assert pipeline_ns([Tile(5, 7, 3)] * 3) == 29


def test_one_buffer_serialises_load_and_computation() -> None:
    # A tile may be loaded only when the tile before it has been computed: 5+7, 5+7, 5+7, then the last store of 3.
    assert pipeline_ns([Tile(5, 7, 3)] * 3, buffers=1) == 39


def test_a_slow_store_holds_the_computation_back() -> None:
    # Output buffers: the third computation waits for the first store. 1 + 2 + 10 + 10 + 10.
    assert pipeline_ns([Tile(1, 2, 10)] * 3) == 33


def test_a_short_last_tile_by_hand() -> None:
    # Loads end at 10, 20, 22; computations at 14, 24, 25; stores at 20, 30, 31.
    assert pipeline_ns([Tile(10, 4, 6), Tile(10, 4, 6), Tile(2, 1, 1)]) == 31


def test_no_tiles_take_no_time() -> None:
    assert uniform_ns(0, Tile(5, 5, 5)) == 0


@given(st.integers(1, 40), st.builds(Tile, TIMES, TIMES, TIMES), st.integers(1, 4))
def test_the_closed_form_is_the_recurrence(count: int, tile: Tile, buffers: int) -> None:
    assert uniform_ns(count, tile, buffers) == pipeline_ns([tile] * count, buffers)


@settings(max_examples=150, deadline=None)
@given(TILES, st.integers(1, 3))
def test_simpy_agrees_to_the_nanosecond(tiles: list[Tile], buffers: int) -> None:
    spans = play([tiles], buffers=buffers)
    assert max(span.end_ns for span in spans) == pipeline_ns(tiles, buffers)


def test_lanes_of_a_kernel_by_hand() -> None:
    assert play([[Tile(5, 7, 3), Tile(5, 7, 3)]]) == (
        LaneSpan(0, "MTE2", 0, 0, 5),
        LaneSpan(0, "MTE2", 1, 5, 10),
        LaneSpan(0, "VECTOR", 0, 5, 12),
        LaneSpan(0, "MTE3", 0, 12, 15),
        LaneSpan(0, "VECTOR", 1, 12, 19),
        LaneSpan(0, "MTE3", 1, 19, 22),
    )


def test_cores_run_beside_one_another_and_lanes_never_overlap() -> None:
    spans = play([[Tile(4, 6, 2)] * 5, [Tile(3, 1, 8)] * 4], unit="CUBE")
    assert {span.core for span in spans} == {0, 1}
    for core in (0, 1):
        for lane in ("MTE2", "CUBE", "MTE3"):
            mine = [s for s in spans if (s.core, s.lane) == (core, lane)]
            assert all(a.end_ns <= b.start_ns for a, b in pairwise(mine))


@given(TILES, st.integers(0, 11), TIMES)
def test_a_longer_tile_is_never_faster(tiles: list[Tile], place: int, more: int) -> None:
    i = place % len(tiles)
    longer = [*tiles[:i], Tile(tiles[i].load_ns + more, tiles[i].compute_ns, tiles[i].store_ns + more), *tiles[i + 1 :]]
    assert pipeline_ns(longer) >= pipeline_ns(tiles)
