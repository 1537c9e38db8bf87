"""Who chooses which experts: every choice is counted once, seeds repeat, popularity skews, ranks share out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scenarios.ops.routing import Routing


@st.composite
def routings(draw: st.DrawFn) -> Routing:
    ranks = draw(st.sampled_from([1, 2, 4]))
    held = draw(st.integers(1, 16))
    experts = ranks * held
    tokens = draw(st.sampled_from([1, 2, 7, 64, 500, 5000]))
    return Routing(
        tokens,
        experts,
        held,
        draw(st.integers(1, experts)),
        draw(st.sampled_from([0.0, 0.5, 2.0])),
        draw(st.integers(0, 5)),
    )


@given(routings(), st.integers(0, 60))
def test_every_choice_is_counted_once_on_one_rank(it: Routing, layer: int) -> None:
    by_rank = [it.loads(layer, rank) for rank in range(it.experts // it.held)]
    assert all(len(loads) == it.held for loads in by_rank)
    assert sum(map(sum, by_rank)) == it.tokens * it.top_k
    assert all(0 <= load <= it.tokens for loads in by_rank for load in loads)  # a token takes an expert once
    assert by_rank == [it.loads(layer, rank) for rank in range(len(by_rank))]


def test_seed_and_layer_make_another_draw() -> None:
    one = Routing(16, 256, 16, 8, 0.0, 0)
    assert one.loads(0) != one.loads(1)
    assert one.loads(0) != Routing(16, 256, 16, 8, 0.0, 1).loads(0)


def test_equal_popularity_reaches_as_many_experts_as_chance_says() -> None:
    # 16 tokens, 8 of 256 experts each: an expert is missed with probability (1 - 8 / 256)^16 = 0.602.
    routing = Routing(16, 256, 256, 8, 0.0, 0)
    reached = sum(sum(load > 0 for load in routing.loads(layer)) for layer in range(200)) / 200
    assert abs(reached / 256 - (1 - (1 - 8 / 256) ** 16)) < 0.01


def test_many_tokens_spread_evenly_and_skew_unbalances_them() -> None:
    def busiest(skew: float) -> float:
        routing = Routing(20_000, 256, 16, 8, skew, 0)
        return sum(routing.busiest(layer) for layer in range(20)) / 20

    assert 1.0 <= busiest(0.0) < 1.03
    assert 1.1 < busiest(0.5) < busiest(1.0)


def test_rows_of_the_mean_rank() -> None:
    assert Routing(16, 256, 16, 8, 0.0, 0).rows == 8
    assert Routing(3, 8, 8, 2, 0.0, 0).rows == 6


def test_many_tokens_have_the_spread_of_a_binomial() -> None:
    """20,000 tokens, 8 of 256 experts: 625 each on the mean, with a standard deviation of nearly the root of that; the
    draw of single tokens stops long before."""
    loads = [load for layer in range(20) for load in Routing(20_000, 256, 256, 8, 0.0, 0).loads(layer)]
    assert sum(loads) == 20 * 160_000
    spread = (sum((load - 625) ** 2 for load in loads) / len(loads)) ** 0.5
    assert 0.85 * 625**0.5 < spread < 1.15 * 625**0.5


def test_one_expert_of_each_group_gives_ranks_of_whole_groups_as_many_rows() -> None:
    """openPangu-Pro-MoE: 8 of 64 experts, one of each of 8 groups, whatever their popularity."""
    for tokens in (5, 4096):  # chosen one by one, and as counts
        grouped = Routing(tokens, 64, 8, 8, 1.5, 0, groups=8)
        assert [sum(grouped.loads(3, rank)) for rank in range(8)] == [tokens] * 8
        assert grouped.busiest(3) == 1.0
        assert Routing(tokens, 64, 4, 8, 1.5, 0, groups=8).busiest(3) > 1.0  # of half a group
        assert Routing(tokens, 64, 8, 8, 1.5, 0).busiest(3) > 1.0
