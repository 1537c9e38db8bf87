"""Stories of a few requests, step by step: who runs with whom, who waits, who loses its blocks."""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.serving.admission import KvCache
from scenarios.serving.kv_cache import ContiguousCache, PagedCache
from scenarios.serving.prefix_cache import PrefixCache
from scenarios.serving.requests import Request
from scenarios.serving.scheduler import Limits, Scheduler, Step


def scheduler(requests: list[Request], limits: Limits, cache: KvCache) -> Scheduler:
    queue = Scheduler(limits, cache)
    for request in requests:
        entry = queue.entry(request)
        assert entry is not None
        queue.add(entry)
    return queue


def steps(queue: Scheduler, number: int) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
    """(decoding, context, [(request, start, tokens)]) of the next steps."""
    for _ in range(number):
        step = queue.plan()
        yield step.decoding, step.context_tokens, [(c.entry.request.id, c.start, c.tokens) for c in step.chunks]
        queue.commit(step)


def test_a_long_prompt_is_cut_and_decodes_go_first() -> None:
    # Budget of 8 tokens a step: request 0 is prefilled whole, request 1 gets what is left.
    queue = scheduler([Request(0, 0, 3, 4), Request(1, 0, 12, 2)], Limits(4, 8), PagedCache(10, 16))
    assert list(steps(queue, 5)) == [
        (0, 0, [(0, 0, 3), (1, 0, 5)]),
        (1, 3, [(1, 5, 7)]),  # one token of the 8 is request 0's
        (2, 4 + 12, []),
        (1, 5, []),  # request 1 had two tokens to give: it ended with the step before
        (0, 0, []),
    ]


def test_prompts_that_go_first_are_never_cut() -> None:
    requests = [Request(0, 0, 3, 3), Request(1, 0, 4, 2), Request(2, 0, 12, 2)]
    queue = scheduler(requests, Limits(4, 8, prefill_first=True), PagedCache(10, 16))
    assert list(steps(queue, 5)) == [
        (0, 0, [(0, 0, 3), (1, 0, 4)]),  # 8 tokens a step: the third prompt is not cut to one token
        (0, 0, [(2, 0, 12)]),  # longer than the budget, so in a step of its own; the first two stand still
        (3, 3 + 4 + 12, []),
        (1, 4, []),
        (0, 0, []),
    ]
    assert queue.kv.free_blocks == 10


def test_prompts_that_go_first_leave_blocks_to_those_that_decode() -> None:
    """A hundred blocks of 16, of which one stays free of prompts (vLLM-Ascend's watermark, a hundredth), and none where
    nobody decodes."""
    alone = scheduler([Request(0, 0, 1600, 1)], Limits(4, 4000, prefill_first=True), PagedCache(100, 16))
    assert list(steps(alone, 1)) == [(0, 0, [(0, 0, 1600)])]
    requests = [Request(0, 0, 800, 2), Request(1, 0, 784, 2), Request(2, 0, 16, 2)]
    queue = scheduler(requests, Limits(4, 4000, prefill_first=True), PagedCache(100, 16))
    assert list(steps(queue, 3)) == [
        (0, 0, [(0, 0, 800), (1, 0, 784)]),  # 50 and 49 blocks; the last one waits
        (1, 800, []),  # it has taken the last block, and the second request lost its own
        (0, 0, [(1, 0, 785), (2, 0, 16)]),
    ]
    assert queue.preemptions == 1


def test_slots_are_given_in_the_order_of_arrival() -> None:
    queue = scheduler([Request(n, 0, 2, 2) for n in range(3)], Limits(2, 100), PagedCache(10, 16))
    assert list(steps(queue, 4)) == [
        (0, 0, [(0, 0, 2), (1, 0, 2)]),
        (2, 4, []),
        (0, 0, [(2, 0, 2)]),
        (1, 2, []),
    ]
    assert queue.kv.free_blocks == 10


def test_priorities_come_first() -> None:
    requests = [Request(n, n, 2, 1, priority=priority) for n, priority in enumerate((1, 1, 0))]
    queue = scheduler(requests, Limits(1, 100, by_priority=True), PagedCache(10, 16))
    assert [chunks[0][0] for _, _, chunks in steps(queue, 3)] == [2, 0, 1]


def test_who_came_last_loses_its_blocks_and_is_computed_again() -> None:
    # Two blocks of 16: both prompts fill one each, and there is none for a seventeenth token.
    queue = scheduler([Request(0, 0, 16, 3), Request(1, 0, 16, 3)], Limits(4, 100), PagedCache(2, 16))
    assert list(steps(queue, 5)) == [
        (0, 0, [(0, 0, 16), (1, 0, 16)]),
        (1, 16, []),  # request 1 was preempted: request 0 took its block
        (1, 17, []),
        (0, 0, [(1, 0, 17)]),  # its prompt and the token it had produced
        (1, 17, []),
    ]
    assert queue.preemptions == 1


def test_swapped_blocks_come_back_without_a_prefill() -> None:
    requests = [Request(0, 0, 16, 3), Request(1, 0, 16, 3)]
    queue = scheduler(requests, Limits(4, 100, swap=True), PagedCache(2, 16))
    seen: list[Step] = []
    for _ in range(5):
        seen.append(queue.plan())
        queue.commit(seen[-1])
    assert [(s.decoding, s.context_tokens, len(s.chunks), s.swapped_tokens) for s in seen] == [
        (0, 0, 2, 0),
        (1, 16, 0, 16),  # out
        (1, 17, 0, 0),
        (1, 16, 0, 16),  # in
        (1, 17, 0, 0),
    ]
    assert queue.plan().is_empty


def test_a_found_prefix_is_not_computed_but_for_the_last_token() -> None:
    same = [Request(n, 0, 32, 2, segments=((9, 32),)) for n in range(2)]
    queue = scheduler(same, Limits(1, 100), PrefixCache(8, 16))
    assert list(steps(queue, 4)) == [
        (0, 0, [(0, 0, 32)]),
        (1, 32, []),
        (0, 0, [(1, 16, 16)]),  # one whole block of 31 tokens
        (1, 32, []),
    ]
    assert (queue.kv.hit_tokens, queue.kv.asked_tokens) == (16, 64)


def test_a_contiguous_row_takes_the_longest_request() -> None:
    queue = scheduler([Request(n, 0, 4, 2) for n in range(3)], Limits(9, 100), ContiguousCache(2, 64))
    assert list(steps(queue, 3)) == [(0, 0, [(0, 0, 4), (1, 0, 4)]), (2, 8, []), (0, 0, [(2, 0, 4)])]
    assert queue.entry(Request(9, 0, 60, 6)) is None


def ends(at_once: bool) -> list[tuple[int, int, int]]:
    """(step, request, preemptions) of each end, with runs of decodes committed at once or one by one."""
    queue = scheduler([Request(n, 0, 10 + 7 * n, 40 + 11 * n) for n in range(5)], Limits(4, 30), PagedCache(11, 16))
    ended: list[tuple[int, int, int]] = []
    clock = 0
    while not (step := queue.plan()).is_empty:
        times = queue.steady() if at_once and not step.chunks else 1
        _, done = queue.commit(step, times)
        clock += times
        ended += [(clock, entry.request.id, entry.preemptions) for entry in done]
    assert (queue.kv.free_blocks, queue.running, queue.waiting) == (11, {}, 0)
    return ended


def test_a_run_of_decodes_is_the_same_as_one_after_the_other() -> None:
    assert ends(at_once=True) == ends(at_once=False)
    assert sorted(request for _, request, _ in ends(at_once=True)) == [0, 1, 2, 3, 4]
    assert any(preemptions for _, _, preemptions in ends(at_once=True))


def test_a_prompt_waits_for_room_for_all_of_it() -> None:
    # Four blocks of 4, budget 8: request 1 needs three blocks, and request 0 holds two to its end.
    requests = [Request(0, 0, 7, 3), Request(1, 0, 12, 1)]
    queue = scheduler(requests, Limits(4, 8), PagedCache(4, 4))
    assert list(steps(queue, 4)) == [
        (0, 0, [(0, 0, 7)]),  # two blocks are left, enough for the first chunk alone
        (1, 7, []),
        (1, 8, []),
        (0, 0, [(1, 0, 8)]),
    ]
    assert queue.preemptions == 0


def test_without_that_a_full_cache_starts_prefills_again() -> None:
    # As above, but let in for its first chunk: request 0's third block takes it back.
    requests = [Request(0, 0, 7, 3), Request(1, 0, 12, 1)]
    queue = scheduler(requests, Limits(4, 8, reserves_all=False), PagedCache(4, 4))
    assert list(steps(queue, 5)) == [
        (0, 0, [(0, 0, 7), (1, 0, 1)]),
        (1, 7, [(1, 1, 7)]),
        (1, 8, []),  # request 1 has lost its two blocks
        (0, 0, [(1, 0, 8)]),
        (0, 0, [(1, 8, 4)]),
    ]
    assert queue.preemptions == 1


def test_who_lost_its_blocks_finds_those_that_nobody_took() -> None:
    # Five blocks of 4: request 1 is preempted with two whole blocks, of which request 0 takes the later one.
    requests = [Request(0, 0, 8, 8), Request(1, 0, 8, 8)]
    queue = scheduler(requests, Limits(4, 100), PrefixCache(5, 4))
    seen = list(steps(queue, 12))
    again = [chunk for _, _, chunks in seen[1:] for chunk in chunks]
    assert queue.preemptions == 1
    assert again == [(1, 4, 5)]
