"""Shapley shares sum to the whole way, and a pair that is no sum is named."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import pytest

from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from sim.predict import attribution
from sim.predict.attribution import Attribution, attribution_of, attribution_result
from sim.predict.gains import gains_of
from sim.predict.steps import Case
from tests.scenarios.making import PLAIN, TINY, bare, scenario
from tests.sim.hardware_maker import hardware

HW = hardware(host__jitter_sigma=0.05)


@cache
def of(model: Model = PLAIN, **settings: object) -> tuple[Attribution, Case]:
    """Of a model without Q and K norms the best set has ten switches, so that all subsets are played."""
    case = Case(scenario(workload__batch=4, **settings), model, HW)
    return attribution_of(case), case


def test_exact_shares_sum_to_the_whole_way() -> None:
    result, case = of()
    gains = gains_of(case)
    assert (result.baseline_us, result.best_us) == (gains.baseline_us, gains.target_us)
    assert {share.switch for share in result.shares} == set(gains.order)
    assert result.method == "exact"
    total = sum(share.shapley_us for share in result.shares)
    assert total == pytest.approx(result.baseline_us - result.best_us, abs=1e-6)


def test_an_exact_share_is_the_mean_over_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, of a game of four: v(S) has a pair that overlaps, a pair that reinforces, and one that does nothing."""

    def saved(players: frozenset[int]) -> int:
        value = 100 * (0 in players) + 80 * (1 in players) - 60 * ({0, 1} <= players)
        return value + 10 * (2 in players) + 40 * ({1, 2} <= players)

    values, pairs = attribution._exact((0, 1, 2, 3), saved, lambda share: None)
    orders = list(permutations(range(4)))
    for i in range(4):
        marginals = [saved(frozenset(o[: o.index(i) + 1])) - saved(frozenset(o[: o.index(i)])) for o in orders]
        assert values[i] == pytest.approx(sum(marginals) / len(orders))
    assert sum(values.values()) == pytest.approx(saved(frozenset(range(4))))
    assert pairs[0, 1] == pytest.approx(60)
    assert pairs[1, 2] == pytest.approx(-40)
    assert pairs[0, 3] == pytest.approx(0)


def test_sampled_shares_sum_to_the_whole_way_and_are_near_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, case = of()
    monkeypatch.setattr(attribution, "EXACT", 2)
    sampled = attribution_of(case)
    assert (exact.method, sampled.method) == ("exact", "sampled")
    assert sum(s.shapley_us for s in sampled.shares) == pytest.approx(sampled.baseline_us - sampled.best_us, abs=1e-6)
    for one, other in zip(exact.shares, sampled.shares, strict=True):
        assert other.shapley_us == pytest.approx(one.shapley_us, abs=4 * other.error_us + 1)
    assert len(attribution_result(sampled)["shares"]) == len(exact.shares)


def test_shares_sum_to_the_whole_way_where_many_do_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches below the threshold had no share, and what they do together was nobody's (8.5 us of gpt-oss-20b)."""
    _, case = of()
    monkeypatch.setattr(attribution, "NO_EFFECT", 0.1)
    result = attribution_of(case)
    assert sum(share.error_us == 0 and abs(share.first_us) < result.baseline_us / 10 for share in result.shares) >= 1
    total = sum(share.shapley_us for share in result.shares)
    assert total == pytest.approx(result.baseline_us - result.best_us, abs=1e-6)


def test_what_saves_host_calls_overlaps_with_the_graph() -> None:
    """On top of nothing a fused norm saves calls; behind a graph there are none to save."""
    result, _ = of(TINY, optimizations__graph="ge_graph")
    norm = next(share for share in result.shares if share.switch == "fusion.rms_norm")
    assert norm.first_us > 2 * norm.last_us
    assert norm.last_us < norm.shapley_us < norm.first_us
    named = {frozenset(pair.pair): pair for pair in result.interactions}
    assert named[frozenset(("fusion.rms_norm", "graph"))].kind == "overlap"


def test_a_switch_without_what_it_needs_gains_nothing_first() -> None:
    result = attribution_of(Case(bare(workload__batch=4), load_model("Qwen3-0.6B"), HW))
    shares = {share.switch: share for share in result.shares}
    assert shares["fusion.qkv_norm_rope_cache"].first_us == 0
    assert shares["fusion.qkv_norm_rope_cache"].last_us > 0
