"""Every step of the scheduler against the rules of vLLM V1, over random loads."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.serving.admission import KvCache
from scenarios.serving.kv_cache import PagedCache
from scenarios.serving.prefix_cache import PrefixCache
from scenarios.serving.requests import Request
from scenarios.serving.scheduler import Limits, Scheduler
from tests.scenarios.serving.vllm_rules import Rules


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[int, Request]]:
    """(step before which it comes, request); those of a group have their first tokens in common."""
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(1, 70), st.integers(1, 40), st.integers(0, 2), st.integers(0, 60)),
            min_size=1,
            max_size=25,
        )
    )
    at, result = 0, []
    for number, (later, prompt, output, group, common) in enumerate(rows):
        at += later
        segments = ((group, min(common, prompt)),) if common else ()
        result.append((at, Request(number, at, prompt, output, segments=segments, priority=group % 2)))
    return result


def steps_of_rules(load: list[tuple[int, Request]], rules: Rules) -> list[list[tuple[int, int, int]]]:
    steps, coming, clock = [], list(load), 0
    while coming or rules.running or rules.waiting:
        while coming and coming[0][0] <= clock:
            rules.add(coming.pop(0)[1])
        steps.append(sorted(rules.step()))
        clock += 1
    return steps


def steps_of_scheduler(load: list[tuple[int, Request]], queue: Scheduler) -> list[list[tuple[int, int, int]]]:
    steps, coming, clock = [], list(load), 0
    while coming or queue.running or queue.waiting:
        while coming and coming[0][0] <= clock:
            entry = queue.entry(coming.pop(0)[1])
            assert entry is not None
            queue.add(entry)
        step = queue.plan()
        decoding = [(e.request.id, e.target + queue._clock - e.joined) for e in queue.running.values() if e.decoding]
        assert (len(decoding), sum(held for _, held in decoding)) == (step.decoding, step.context_tokens)
        chunks = [(chunk.entry.request.id, chunk.start, chunk.tokens) for chunk in step.chunks]
        steps.append(sorted([*((number, held, 1) for number, held in decoding), *chunks]))
        queue.commit(step)
        clock += 1
    return steps


@settings(max_examples=300, deadline=None)
@given(
    load=requests(),
    slots=st.sampled_from((1, 3, 8)),
    budget=st.sampled_from((8, 24, 200)),
    blocks=st.sampled_from((28, 32, 400)),
    size=st.sampled_from((4, 8)),
    by_priority=st.booleans(),
    reserves_all=st.booleans(),
)
def test_each_step_is_that_of_vllms_rules(
    load: list[tuple[int, Request]],
    slots: int,
    budget: int,
    blocks: int,
    size: int,
    by_priority: bool,
    reserves_all: bool,
) -> None:
    caches = blocks > 40  # with few, the order within a step decides whose blocks are forgotten
    limits = Limits(slots, budget, by_priority, reserves_all=reserves_all)
    cache: KvCache = (PrefixCache if caches else PagedCache)(blocks, size)
    rules = Rules(limits, blocks, size, caches, skips=False)
    queue = Scheduler(limits, cache)
    assert steps_of_scheduler(load, queue) == steps_of_rules(load, rules)
    assert queue.kv.hit_tokens == rules.hit_tokens


def test_requests_of_one_step_share_what_it_computes() -> None:
    # Two whole blocks in common: the second computes its own four tokens, in the very step that computes the prefix.
    load = [(0, Request(n, 0, 36, 1, segments=((9, 32),))) for n in range(2)]
    queue = Scheduler(Limits(4, 100), PrefixCache(8, 16))
    assert steps_of_scheduler(load, queue) == [[(0, 0, 36), (1, 32, 4)]]
    assert (queue.kv.hit_tokens, queue.kv.free_blocks) == (32, 8)
