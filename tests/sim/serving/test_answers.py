"""What a served scenario should do: optimisations at equal SLO, sizes to capture."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from scenarios.loader import load_scenario
from sim.predict.scenario_result import case_of
from sim.serving import at_slo
from sim.serving.at_slo import compare_at_slo
from sim.serving.captures import chosen_sizes, size_budget
from sim.serving.result import serve_scenario

NAME = "serve_qwen3_14b_910b3"


def compared(monkeypatch: pytest.MonkeyPatch, switches: set[str], *sets: str) -> at_slo.Compared:
    passes_for = at_slo.passes_for
    monkeypatch.setattr(at_slo, "passes_for", lambda model: [p for p in passes_for(model) if p.switch in switches])
    loaded = load_scenario(NAME, ["workload.traffic.requests=60", *sets])
    result = compare_at_slo(loaded, case_of(loaded))
    assert result is not None
    return result


def test_a_second_card_buys_little_where_the_host_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    result = compared(monkeypatch, set(), "engine.profile=starved", "slo={tpot_ms: 60}")
    second = next(row for row in result.rows if row.setting == "engine.tensor_parallel_size=2")
    assert second.cards == 2
    assert second.rate < 1.25 * result.rate
    assert second.gain == pytest.approx(second.rate / 2 / result.rate)
    assert second.verdict == "loss"


def test_each_optimisation_has_a_rate_of_its_own_and_gains_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result = compared(monkeypatch, {"weights", "fusion.rope", "overlap.comm_chunks"}, "slo={tpot_ms: 45}")
    rows = {row.setting: row for row in result.rows}
    weights = rows["optimizations.weights=w8a8"]
    assert (weights.state, weights.verdict) == ("off", "gain")
    assert weights.gain == pytest.approx(weights.rate / result.rate)
    rope = rows["optimizations.fusion.rope=true"]
    assert rope.state == "on"
    assert rope.gain == pytest.approx(result.rate / rope.rate)
    chunks = next(row for row in result.rows if row.setting.startswith("optimizations.overlap.comm_chunks"))
    assert chunks.verdict == "not applicable"
    assert "tensor_parallel_size" in chunks.reason
    verdicts = [row.verdict for row in result.rows]
    assert verdicts == sorted(verdicts, key=["gain", "not distinguishable", "loss", "not applicable"].index)


def test_without_an_slo_there_is_nothing_to_compare_at() -> None:
    loaded = load_scenario(NAME, ["slo=null"])
    assert compare_at_slo(loaded, case_of(loaded)) is None


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_chosen_sizes_are_the_best_of_all(most: int) -> None:
    rng = np.random.default_rng(most)
    batches = sorted(rng.choice(np.arange(1, 60), 7, replace=False).tolist())
    steps = rng.integers(1, 50, 7).tolist()

    def cost(batch: int) -> float:
        return 10.0 + batch + 5.0 * (batch // 16)

    def total(sizes: tuple[int, ...]) -> float:
        return sum(n * cost(min(s for s in sizes if s >= b)) for b, n in zip(batches, steps, strict=True))

    every = [(*some, batches[-1]) for k in range(min(most, 7)) for some in combinations(batches[:-1], k)]
    sizes, time = chosen_sizes(batches, steps, cost, most)
    assert time == pytest.approx(min(map(total, every)))
    assert time == pytest.approx(total(sizes))
    assert len(sizes) <= most


def test_pieces_leave_room_for_few_sizes() -> None:
    def budget(*sets: str) -> int:
        return size_budget(case_of(load_scenario(NAME, sets)))

    assert budget() == 64
    assert budget("engine.cudagraph_mode=PIECEWISE") == 1920 // 41
    assert budget("engine.cudagraph_mode=FULL_AND_PIECEWISE", "engine.tensor_parallel_size=2") == 1920 // 41 // 2


def test_coarse_sizes_cost_padding_that_better_ones_save() -> None:
    loaded = load_scenario(NAME, ["engine.cudagraph_capture_sizes=[1, 64, 256]", "slo=null"])
    captures = serve_scenario(loaded, case_of(loaded)).captures
    assert captures is not None
    assert captures.given == 3
    assert captures.padding_share > 0.1
    assert 0 <= captures.proposed_padding_share < 0.02
    small = load_scenario(NAME, ["engine.cudagraph_capture_sizes=[1, 2]", "slo=null"])
    few = serve_scenario(small, case_of(small)).captures
    assert few is not None
    assert few.eager_share > 0.9
