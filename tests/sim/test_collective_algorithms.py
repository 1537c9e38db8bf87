"""What each algorithm moves, worked out by hand for small tensors."""

from __future__ import annotations

import pytest

from sim.collective.algorithms import FORMULAS, Terms


@pytest.mark.parametrize(
    ("op", "algorithm", "n", "p", "terms"),
    [
        # All-reduce of 800 bytes on 8 ranks: a share is 100 bytes, seven peers send at once, 7 x 100 are added.
        ("all_reduce", "mesh", 800, 8, Terms(2, 200, 700, 1, 7)),
        ("all_reduce", "one_shot", 800, 8, Terms(1, 800, 5600, 1, 7)),
        ("all_reduce", "ring", 800, 8, Terms(14, 1400, 700, 7)),
        ("all_reduce", "rhd", 800, 8, Terms(6, 1400, 700, 3)),
        ("all_reduce", "nhr", 800, 8, Terms(6, 1400, 700, 3)),
        # Six ranks: halving and doubling on four of them (2 x 3/4 n) and the whole there and back for the other two.
        ("all_reduce", "rhd", 1200, 6, Terms(6, 2 * 900 + 2 * 1200, 2100, 3)),
        ("all_reduce", "nhr", 1200, 6, Terms(6, 2000, 1000, 3)),
        ("all_gather", "mesh", 800, 8, Terms(1, 100, peers=7)),
        ("all_gather", "ring", 800, 8, Terms(7, 700)),
        ("all_gather", "rhd", 800, 8, Terms(3, 700)),
        ("all_gather", "nhr", 700, 7, Terms(3, 600)),
        ("reduce_scatter", "mesh", 800, 8, Terms(1, 100, 700, 1, 7)),
        ("reduce_scatter", "ring", 800, 8, Terms(7, 700, 700, 7)),
        ("reduce_scatter", "nhr", 700, 7, Terms(3, 600, 600, 3)),
        ("all_to_all", "mesh", 800, 8, Terms(1, 100, peers=7)),
        ("all_to_all", "pairwise", 800, 8, Terms(7, 700)),
        ("broadcast", "star", 800, 8, Terms(1, 800, peers=7)),
        ("broadcast", "mesh", 800, 8, Terms(2, 200, peers=7)),
        ("broadcast", "ring", 800, 8, Terms(14, 1400)),
        ("send_recv", "direct", 800, 2, Terms(1, 800)),
    ],
)
def test_terms(op: str, algorithm: str, n: int, p: int, terms: Terms) -> None:
    assert FORMULAS[op][algorithm](n, p) == terms


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    for name in ("mesh", "ring", "rhd", "nhr"):
        halves = FORMULAS["reduce_scatter"][name](960, 6) + FORMULAS["all_gather"][name](960, 6)
        assert FORMULAS["all_reduce"][name](960, 6) == halves


def test_what_arrives_counts_all_links() -> None:
    assert Terms(1, 100, peers=7).received_bytes == 700


def test_terms_over_different_peers_do_not_add() -> None:
    with pytest.raises(ValueError, match="peers"):
        _ = Terms(1, 100, peers=7) + Terms(1, 100)
