"""How far interpolated step times are from the steps themselves, and that prices are what was played."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from statistics import median

import pytest

from scenarios.loader import load_scenario
from scenarios.ops.program import Batch, Group
from sim.engines.costs import EngineCosts
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, step_ns
from sim.serving.prices import TICKS_PER_NS, GridPrices
from sim.serving.simulate import prices_of


@lru_cache
def case(*sets: str) -> Case:
    return case_of(load_scenario("serve_qwen3_14b_910b3", list(sets)))


@lru_cache
def prices(*sets: str) -> GridPrices:
    return prices_of(case(*sets), EngineCosts())


def errors(wanted: list[tuple[Batch, int]], *sets: str) -> list[float]:
    """Price over step, less one."""
    plain = prices(*sets)._case
    return sorted(ticks / TICKS_PER_NS / step_ns(plain, batch) - 1 for batch, ticks in wanted)


def decodes(random: Random, number: int, *sets: str) -> list[tuple[Batch, int]]:
    wanted = []
    for _ in range(number):
        requests, context = random.randint(1, 256), random.randint(30, 6000)
        total = requests * context
        ticks = prices(*sets).decode(requests, total).ticks(total)
        wanted.append((Batch("decode", (Group(requests, 1, context),)), ticks))
    return wanted


def mixed(random: Random, number: int, most: int) -> list[tuple[Batch, int]]:
    wanted = []
    for _ in range(number):
        requests, context = random.randint(0, most), random.randint(64, 3000)
        tokens, start = random.randint(16, 4000), random.choice([0, 0, 1000])
        pairs = tokens * start + tokens * (tokens + 1) // 2
        ticks = prices().mixed(requests, requests * context, tokens, pairs)
        groups = (*((Group(requests, 1, context),) if requests else ()), Group(1, tokens, start))
        wanted.append((Batch("mixed" if requests else "prefill", groups), ticks))
    return wanted


@pytest.mark.slow
@pytest.mark.parametrize("sets", [(), ("optimizations.graph=eager", "model=Qwen3-8B")])
def test_decode_steps_are_priced_within_a_percent_and_never_six_off(sets: tuple[str, ...]) -> None:
    off = errors(decodes(Random(1), 40, *sets), *sets)
    assert max(map(abs, off)) < 0.06
    assert median(map(abs, off)) < 0.01
    assert abs(sum(off) / len(off)) < 0.01  # no bias that would add up over steps


@pytest.mark.slow
def test_steps_with_prefills_are_priced_within_a_percent_and_never_eight_off() -> None:
    off = errors(mixed(Random(2), 40, 128))
    assert max(map(abs, off)) < 0.08
    assert median(map(abs, off)) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 7])
def test_steps_with_prefills_lean_to_no_side(seed: int) -> None:
    off = errors(mixed(Random(seed), 40, 128))
    assert abs(sum(off) / len(off)) < 0.012


def test_a_row_that_starts_a_tile_pays_for_it() -> None:
    """255 requests that decode and a prompt of 520 tokens are 775 rows, 7 tiles of 128 and not the 6.05 of a line."""
    wanted = [
        (Batch("prefill", (Group(1, tokens, 0),)), prices().mixed(0, 0, tokens, tokens * (tokens + 1) // 2))
        for tokens in (768, 769)
    ]
    assert max(map(abs, errors(wanted))) < 1e-6
    assert wanted[1][1] > 1.05 * wanted[0][1]
    full = Batch("mixed", (Group(255, 1, 648), Group(1, 520, 0)))
    assert errors([(full, prices().mixed(255, 255 * 648, 520, 520 * 521 // 2))])[0] == pytest.approx(0, abs=0.015)


@pytest.mark.slow
def test_steps_of_a_thousand_rows_are_priced_within_a_percent_and_never_four_off() -> None:
    random, wanted = Random(5), []
    for _ in range(40):
        requests, context = random.choice([0, random.randint(1, 255)]), random.randint(64, 3000)
        tokens = random.randint(400, 1100) - requests
        groups = (*((Group(requests, 1, context),) if requests else ()), Group(1, tokens, 0))
        ticks = prices().mixed(requests, requests * context, tokens, tokens * (tokens + 1) // 2)
        wanted.append((Batch("mixed" if requests else "prefill", groups), ticks))
    off = errors(wanted)
    assert max(map(abs, off)) < 0.04
    assert median(map(abs, off)) < 0.01


@pytest.mark.slow
def test_a_ragged_batch_is_close_to_its_mean() -> None:
    random, off = Random(3), []
    for _ in range(12):
        lengths = [random.randint(100, 3000) for _ in range(random.randint(2, 32))]
        ticks = prices().decode(len(lengths), sum(lengths)).ticks(sum(lengths))
        groups = tuple(Group(1, 1, length) for length in lengths)
        off += errors([(Batch("decode", groups), ticks)])
    assert max(map(abs, off)) < 0.05


def test_a_cpu_pays_for_each_request_that_is_unlike_its_neighbours() -> None:
    """Its attention is a call for each of them: a ragged step is priced as played, and longer than an even one."""
    small = case_of(load_scenario("serve_tiny_cpu", []))
    lengths = [70, 90, 66, 101, 130, 84, 95, 128]
    plain = prices_of(small, EngineCosts())
    ragged = step_ns(plain._case, Batch("decode", tuple(Group(1, 1, length) for length in lengths)))
    ticks = plain.decode(len(lengths), sum(lengths)).ticks(sum(lengths))
    assert ticks / TICKS_PER_NS == pytest.approx(ragged, rel=0.01)
    assert ragged > 1.3 * step_ns(plain._case, Batch("decode", (Group(len(lengths), 1, sum(lengths) // len(lengths)),)))


def test_a_point_of_the_grid_is_the_step_itself() -> None:
    ticks = prices().decode(64, 64 * 1024).ticks(64 * 1024)
    assert ticks / TICKS_PER_NS == pytest.approx(
        step_ns(prices()._case, Batch("decode", (Group(64, 1, 1024),))), rel=1e-6
    )


def test_a_batch_pays_for_the_captured_size_and_eager_for_none() -> None:
    sets = ("engine.cudagraph_capture_sizes=[16, 32]", "model=Qwen3-0.6B")
    grid = prices(*sets)
    assert [grid.rows(n) for n in (3, 16, 17, 32, 33)] == [16, 16, 32, 32, 33]
    small, full, above = (grid.decode(n, 1000).ticks(1000) for n in (3, 16, 33))
    assert small == full  # padded
    assert above > 1.5 * full  # runs eager


def test_scaled_prices_play_nothing_again() -> None:
    grid = prices()
    one = grid.decode(8, 8 * 1024).ticks(8 * 1024)
    points = grid.points
    double = grid.scaled(2.0)
    assert double.decode(8, 8 * 1024).ticks(8 * 1024) == pytest.approx(2 * one, rel=1e-9)
    assert double.points == grid.points == points
