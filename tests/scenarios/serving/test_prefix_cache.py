"""A cache that shares blocks: what is found, copied and forgotten; and that none is lost or shared wrongly."""

from __future__ import annotations

from random import Random

import pytest

from scenarios.serving.kv_cache import OutOfCache
from scenarios.serving.prefix_cache import PrefixCache
from scenarios.serving.requests import Request


def test_a_prompt_is_found_after_its_request_has_ended() -> None:
    cache = PrefixCache(blocks=4, block_size=16)
    cache.allocate("a", 40)
    cache.remember("a", ["x", "xy"])  # two whole blocks; the third is partly full and has no name
    table = cache.table("a")
    cache.free("a")
    assert cache.free_blocks == 4
    assert cache.hits(["x", "xy", "xyz"]) == list(table[:2])
    assert cache.hits(["y", "xy"]) == []


def test_the_longest_free_contents_are_forgotten_first() -> None:
    cache = PrefixCache(blocks=2, block_size=16)
    for name in ("old", "new"):
        cache.allocate(name, 16)
        cache.remember(name, [name])
        cache.free(name)
    cache.allocate("c", 16)
    assert (cache.hits(["old"]), len(cache.hits(["new"]))) == ([], 1)


def test_shared_contents_are_held_once_and_outlive_the_first_holder() -> None:
    cache = PrefixCache(blocks=3, block_size=16)
    cache.allocate("a", 32)
    cache.remember("a", ["x", "xy"])
    cache.allocate("b", 48, cache.hits(["x", "xy"]))
    assert cache.free_blocks == 0
    cache.free("a")
    assert cache.free_blocks == 0
    cache.free("b")
    assert cache.free_blocks == 3


def test_a_fork_copies_the_block_that_it_writes_into() -> None:
    cache = PrefixCache(blocks=4, block_size=16)
    cache.allocate("a", 20)
    cache.fork("a", "b")
    assert cache.table("a") == cache.table("b")
    first, last = cache.table("a")
    assert cache.append("b") == [(last, cache.table("b")[1])]
    assert cache.table("a") == (first, last)
    assert cache.append("a") == []  # it is alone with its block now
    assert cache.append("b") == []


def test_what_does_not_fit_changes_nothing() -> None:
    cache = PrefixCache(blocks=2, block_size=16)
    cache.allocate("a", 20)
    cache.fork("a", "b")
    with pytest.raises(OutOfCache):
        cache.append("b")
    assert cache.table("a") == cache.table("b")
    with pytest.raises(OutOfCache):
        cache.allocate("c", 40, [cache.table("a")[0]])
    assert cache.pool.holders(cache.table("a")[0]) == 2


def test_blocks_of_one_name_hold_equal_tokens() -> None:
    plain = Request(7, 0, 64, 1)
    assert plain.block_names(16, 40) == [(-8, 0), (-8, 1)]
    # 24 tokens in common: the second block holds tokens of its own
    assert Request(1, 0, 64, 1, segments=((5, 24),)).block_names(16, 48) == [(5, 0), (-2, 1), (-2, 2)]
    hashed = Request(1, 0, 64, 1, segments=((50, 32), (51, 64)))
    assert hashed.block_names(16, 64) == [(50, 0), (50, 1), (51, 2), (51, 3)]
    # two turns of conversation 3
    assert Request(1, 0, 64, 9, content=3).block_names(16, 64) == Request(2, 0, 80, 9, content=3).block_names(16, 64)


def play(operations: int, seed: int) -> None:
    """Random operations on a small cache next to a plain account of who holds what."""
    random = Random(seed)
    blocks, size = 48, 16
    cache = PrefixCache(blocks, size)
    held: dict[int, int] = {}
    names: dict[int, list[tuple[int, int]]] = {}
    for number in range(operations):
        choice = random.random()
        if choice < 0.35:
            own = names[number] = [(random.randrange(3) if i < 2 else number, i) for i in range(8)]
            own[1] = (10 * own[0][0] + own[1][0] + 100, 1)  # a name says all tokens before its end
            tokens = random.randint(1, 100)
            shared = cache.hits(own[: (tokens - 1) // size])
            try:
                cache.allocate(number, tokens, shared)
            except OutOfCache:
                continue
            held[number] = tokens
            cache.remember(number, own[: tokens // size])
        elif held and choice < 0.75:
            request = random.choice(list(held))
            tokens = random.randint(0, 20)
            before = cache.table(request)
            try:
                copies = cache.append(request, tokens)
            except OutOfCache:
                assert cache.table(request) == before
                continue
            held[request] += tokens
            for source, target in copies:
                assert (before[-1], cache.pool.holders(target)) == (source, 1)
        elif held and choice < 0.8:
            parent = random.choice(list(held))
            cache.fork(parent, number)
            held[number] = held[parent]
        elif held:
            request = random.choice(list(held))
            cache.free(request)
            del held[request]
        if number % 97 == 0:
            account(cache, held)
    for request in list(held):
        cache.free(request)
    assert cache.free_blocks == blocks


def account(cache: PrefixCache, held: dict[int, int]) -> None:
    """Every block is free or held by exactly those whose tables have it; no block is written that another reads."""
    holders = [0] * cache.blocks
    for request, tokens in held.items():
        table = cache.table(request)
        assert len(table) == len(set(table)) == -(-tokens // cache.block_size)
        for block in table:
            holders[block] += 1
    assert holders == [cache.pool.holders(block) for block in range(cache.blocks)]
    assert cache.free_blocks == holders.count(0)


@pytest.mark.slow
def test_random_operations_lose_and_share_no_block_wrongly() -> None:
    play(100_000, seed=1)


@pytest.mark.study
def test_a_million_random_operations_lose_and_share_no_block_wrongly() -> None:
    play(1_000_000, seed=2)
