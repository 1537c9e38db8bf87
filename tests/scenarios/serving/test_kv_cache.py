"""The allocators: stories by hand, what fits, and a million random operations that lose or share no block wrongly."""

from __future__ import annotations

import random
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.serving.kv_cache import ContiguousCache, OutOfCache, PagedCache

OPERATIONS = 1_000_000


def test_a_contiguous_request_takes_a_whole_row() -> None:
    cache = ContiguousCache(rows=2, row_tokens=10)
    cache.allocate("a", 3)
    cache.allocate("b", 10)
    assert cache.free_rows == 0
    assert [cache.slot("a", 2), cache.slot("b", 0), cache.slot("b", 9)] == [2, 10, 19]
    with pytest.raises(OutOfCache):
        cache.allocate("c", 1)
    with pytest.raises(OutOfCache):
        cache.append("b")
    cache.append("a", 7)
    assert cache.slot("a", 9) == 9
    with pytest.raises(IndexError):
        cache.slot("a", 10)
    cache.free("a")
    cache.allocate("c", 1)
    assert cache.slot("c", 0) == 0


def test_blocks_come_as_a_request_grows() -> None:
    cache = PagedCache(blocks=3, block_size=4)
    cache.allocate("a", 4)
    cache.allocate("b", 1)
    assert (cache.table("a"), cache.table("b"), cache.free_blocks, cache.wasted_tokens) == ((0,), (1,), 1, 3)
    cache.append("a")
    assert (cache.table("a"), cache.slot("a", 4), cache.free_blocks) == ((0, 2), 8, 0)
    cache.append("a", 3)
    with pytest.raises(OutOfCache):
        cache.append("a")
    assert cache.tokens("a") == 8  # a refusal changes nothing
    cache.free("b")
    cache.append("a")
    assert cache.table("a") == (0, 2, 1)


def test_blocks_that_came_back_go_first_and_then_those_that_nobody_ever_held() -> None:
    cache = PagedCache(1 << 40, 4)  # a list of them would not fit in memory
    cache.allocate("a", 8)
    cache.allocate("b", 5)
    cache.free("a")
    assert cache.free_blocks == (1 << 40) - 2
    cache.allocate("c", 14)
    assert cache.table("c") == (0, 1, 4, 5)


def test_a_common_prefix_is_held_once_and_outlives_its_first_holder() -> None:
    cache = PagedCache(blocks=6, block_size=4)
    cache.allocate("a", 11)
    cache.allocate("b", 10, like="a", common_tokens=9)  # two whole blocks of the nine tokens
    assert (cache.table("a"), cache.table("b")) == ((0, 1, 2), (0, 1, 3))
    assert [cache.holders(block) for block in range(4)] == [2, 2, 1, 1]
    assert cache.slot("a", 7) == cache.slot("b", 7)
    assert cache.slot("a", 8) != cache.slot("b", 8)
    cache.free("a")
    assert (cache.free_blocks, cache.holders(0)) == (3, 1)
    cache.free("b")
    assert cache.free_blocks == 6


def test_no_more_can_be_common_than_both_hold() -> None:
    cache = PagedCache(blocks=8, block_size=4)
    cache.allocate("a", 4)
    with pytest.raises(ValueError, match="5 common tokens of 8 and 4"):
        cache.allocate("b", 8, like="a", common_tokens=5)
    with pytest.raises(ValueError, match="has blocks already"):
        cache.allocate("a", 4)


@given(blocks=st.integers(0, 60), block_size=st.integers(1, 9), tokens=st.integers(1, 50), common=st.integers(0, 50))
def test_as_many_requests_fit_as_the_count_says(blocks: int, block_size: int, tokens: int, common: int) -> None:
    common = min(common, tokens - 1)
    cache = PagedCache(blocks, block_size)
    admitted = 0
    try:
        while True:
            cache.allocate(admitted, tokens, like=0 if admitted else None, common_tokens=common if admitted else 0)
            admitted += 1
    except OutOfCache:
        assert admitted == PagedCache.max_requests(blocks, block_size, tokens, common)


@given(rows=st.integers(0, 20), row_tokens=st.integers(1, 30), rest=st.integers(0, 29))
def test_as_many_rows_fit_as_the_count_says(rows: int, row_tokens: int, rest: int) -> None:
    assert ContiguousCache.max_requests(rows * row_tokens + min(rest, row_tokens - 1), row_tokens) == rows


def consistent(cache: PagedCache, live: list[int]) -> None:
    """Every block is free or held, by exactly the requests in whose tables it stands; nobody's tail is shared."""
    held = Counter(block for request in live for block in cache.table(request))
    assert all(cache.holders(block) == held[block] for block in range(cache.blocks))
    assert cache.free_blocks + len(held) == cache.blocks
    for request in live:
        table = cache.table(request)
        assert len(table) == len(set(table)) == -(-cache.tokens(request) // cache.block_size)
        if cache.tokens(request) % cache.block_size:
            assert cache.holders(table[-1]) == 1


def test_a_million_random_operations_lose_and_share_no_block_wrongly() -> None:
    random = Random(5)
    cache, live, number = PagedCache(blocks=97, block_size=16), list[int](), 0
    refused = shared = 0
    for step in range(OPERATIONS):
        choice = random.random()
        try:
            if choice < 0.3 or not live:
                like = live[int(random.random() * len(live))] if live and choice < 0.15 else None
                tokens = 1 + int(random.random() * 100)
                common = min(tokens, cache.tokens(like)) if like is not None else 0
                cache.allocate(number, tokens, like, common)
                live.append(number)
                number += 1
                shared += common >= cache.block_size
            elif choice < 0.75:
                cache.append(live[int(random.random() * len(live))], 1 + int(random.random() * 8))
            else:
                at = int(random.random() * len(live))
                live[at], live[-1] = live[-1], live[at]
                cache.free(live.pop())
        except OutOfCache:
            refused += 1
        if step % 500 == 0:
            consistent(cache, live)
    consistent(cache, live)
    # The cache was full again and again, and much of it was shared.
    assert refused > OPERATIONS // 100
    assert shared > OPERATIONS // 100
    for request in live:
        cache.free(request)
    assert cache.free_blocks == cache.blocks


def test_holders_that_are_counted_late_are_those_counted_from_the_start() -> None:
    rng = random.Random(1)
    late, early = PagedCache(40, 4), PagedCache(40, 4)
    early.allocate("a", 8)
    early.allocate("b", 8, "a", 4)  # a shared block: from now on it counts
    for request in ("b", "a"):
        early.free(request)
    live: list[int] = []
    for number in range(2000):
        kind, tokens = rng.random(), rng.randint(1, 20)
        if kind < 0.45 and tokens <= 4 * late.free_blocks:
            like = rng.choice(live) if live and rng.random() < 0.3 else None
            common = min(tokens, late.tokens(like)) if like is not None else 0
            for cache in (late, early):
                cache.allocate(number, tokens, like, common)
            live.append(number)
        elif live:
            request = live.pop(rng.randrange(len(live)))
            for cache in (late, early):
                cache.free(request)
        assert late.free_blocks == early.free_blocks
        shared = [sorted(late.holders(b) for b in late.table(request)) for request in live]
        assert shared == [sorted(early.holders(b) for b in early.table(request)) for request in live]
