"""What runs together: decode steps, prefill chunks, mixed steps, capture sizes."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from scenarios.batches import (
    capture_sizes,
    captured_size,
    decode_batch,
    finished_requests,
    largest_chunk_tokens,
    micro_batches,
    mixed_batch,
    prefill_batches,
    prefill_tokens,
    reported_batch,
)
from scenarios.build import effective_graph
from scenarios.ops.program import Batch, Group
from scenarios.schema import Engine
from tests.scenarios.making import scenario


def prefills(batch: int, prompt: int, budget: int, **settings: object) -> list[tuple[Group, ...]]:
    result = scenario(
        workload__batch=batch, workload__input_tokens=prompt, engine__max_num_batched_tokens=budget, **settings
    )
    chunks = prefill_batches(result)
    assert {chunk.phase for chunk in chunks} == {"prefill"}
    return [chunk.groups for chunk in chunks]


def test_a_decode_step_has_one_token_for_each_request() -> None:
    result = scenario(workload__batch=5, workload__input_tokens=100, workload__output_tokens=64)
    assert decode_batch(result) == Batch("decode", (Group(5, 1, 132),))  # the middle of the generation
    given_context = result.model_copy(update={"workload": result.workload.model_copy(update={"context_tokens": 7})})
    assert decode_batch(given_context) == Batch("decode", (Group(5, 1, 7),))


def test_prompts_that_fit_are_prefilled_together() -> None:
    assert prefills(4, 100, 1000) == [(Group(4, 100, 0),)]


def test_a_chunk_takes_whole_prompts_and_a_part_of_the_next() -> None:
    # 250 tokens of room: two prompts and a half; then its other half, one more, and half of the last.
    assert prefills(5, 100, 250) == [
        (Group(2, 100, 0), Group(1, 50, 0)),
        (Group(1, 50, 50), Group(2, 100, 0)),
    ]


def test_a_long_prompt_is_cut_and_sees_what_came_before() -> None:
    assert prefills(1, 1000, 300) == [
        (Group(1, 300, 0),),
        (Group(1, 300, 300),),
        (Group(1, 300, 600),),
        (Group(1, 100, 900),),
    ]


def test_a_prefill_can_start_on_a_cached_prefix() -> None:
    on_prefix = prefills(1, 500, 300, workload__phase="prefill", workload__context_tokens=64)
    assert on_prefix == [(Group(1, 300, 64),), (Group(1, 200, 364),)]
    # In a decode scenario context_tokens speaks of the decode step; its prefill starts from nothing.
    assert prefills(1, 500, 300, workload__context_tokens=64)[0] == (Group(1, 300, 0),)


SHARING = {"optimizations__kv__prefix_sharing": True, "optimizations__kv__block_size": 16}


def test_requests_that_share_a_prefix_start_behind_it() -> None:
    # 100 common tokens are 6 whole blocks of 16; the first request computes them for all.
    shared = prefills(4, 150, 1000, **SHARING, optimizations__kv__shared_prefix_tokens=100)
    assert shared == [(Group(1, 150, 0), Group(3, 54, 96))]


def test_the_last_token_of_a_shared_prompt_is_computed_all_the_same() -> None:
    assert prefills(3, 32, 1000, **SHARING, optimizations__kv__shared_prefix_tokens=32) == [
        (Group(1, 32, 0), Group(2, 1, 31))
    ]


@given(st.integers(1, 40), st.integers(1, 300), st.integers(1, 400), st.integers(0, 300))
def test_the_largest_chunk_and_the_finished_requests(batch: int, prompt: int, budget: int, shared: int) -> None:
    sharing = {**SHARING, "optimizations__kv__shared_prefix_tokens": min(shared, prompt)} if shared else {}
    result = scenario(
        workload__batch=batch, workload__input_tokens=prompt, engine__max_num_batched_tokens=budget, **sharing
    )
    chunks = prefill_batches(result)
    assert max(chunk.tokens for chunk in chunks) == largest_chunk_tokens(result)
    assert sum(chunk.tokens for chunk in chunks) == prefill_tokens(result)
    assert len(chunks) == -(-prefill_tokens(result) // budget)  # what the check of too many chunks counts on
    assert sum(finished_requests(result, chunk) for chunk in chunks) == batch


@given(st.integers(1, 40), st.integers(1, 300), st.integers(1, 400), st.sampled_from([0, 17]))
def test_prefill_conserves_requests_and_tokens(batch: int, prompt: int, budget: int, before: int) -> None:
    chunks = prefills(batch, prompt, budget, workload__phase="prefill", workload__context_tokens=before)
    assert sum(g.count * g.query for groups in chunks for g in groups) == batch * prompt
    # Each request ends exactly once, and every piece stands on all tokens before it.
    ended = sum(g.count for groups in chunks for g in groups if g.kv_len == before + prompt)
    assert ended == batch
    pieces: dict[int, int] = defaultdict(int)
    for groups in chunks:
        for group in groups:
            assert group.query >= 1
            assert before <= group.context < group.kv_len <= before + prompt
            for position in (group.context, group.kv_len):
                pieces[position] += group.count if position == group.kv_len else -group.count
    assert {position: count for position, count in pieces.items() if count} == {before: -batch, before + prompt: batch}


@given(st.integers(1, 40), st.integers(1, 300), st.integers(1, 400))
def test_every_chunk_but_the_last_is_full(batch: int, prompt: int, budget: int) -> None:
    sizes = [sum(g.count * g.query for g in groups) for groups in prefills(batch, prompt, budget)]
    assert all(size == budget for size in sizes[:-1])
    assert 1 <= sizes[-1] <= budget


@given(st.integers(1, 40), st.integers(1, 300), st.integers(1, 400))
def test_a_request_that_was_cut_goes_on_before_a_new_one_starts(batch: int, prompt: int, budget: int) -> None:
    for groups in prefills(batch, prompt, budget):
        assert all(group.context == 0 for group in groups[1:])
        assert all(group.kv_len == prompt for group in groups[:-1])


def test_a_mixed_step_prefills_one_request_beside_the_decoding_ones() -> None:
    result = scenario(
        workload__phase="mixed", workload__batch=8, workload__input_tokens=1000, workload__output_tokens=64
    )
    assert mixed_batch(result) == Batch("mixed", (Group(7, 1, 1032), Group(1, 1000, 0)))


def test_the_prefill_of_a_mixed_step_takes_what_is_left_of_the_budget() -> None:
    result = scenario(
        workload__phase="mixed", workload__batch=8, workload__input_tokens=1000, engine__max_num_batched_tokens=512
    )
    assert mixed_batch(result).groups[1] == Group(1, 505, 0)
    assert mixed_batch(result).tokens == 512


def test_the_reported_step_follows_the_phase() -> None:
    def reported(phase: str) -> Batch:
        return reported_batch(scenario(workload__phase=phase, workload__batch=4, engine__max_num_batched_tokens=2048))

    assert reported("decode") == Batch("decode", (Group(4, 1, 1088),))
    assert reported("prefill") == Batch("prefill", (Group(2, 1024, 0),))
    assert reported("mixed") == Batch("mixed", (Group(3, 1, 1088), Group(1, 1024, 0)))


def test_default_capture_sizes() -> None:
    assert capture_sizes(Engine(max_num_seqs=40)) == (1, 2, 4, 8, 16, 24, 32, 40)
    assert capture_sizes(Engine(max_num_seqs=30)) == (1, 2, 4, 8, 16, 24)
    assert capture_sizes(Engine(max_num_seqs=3)) == (1, 2)
    assert capture_sizes(Engine(max_num_seqs=1)) == (1,)
    assert capture_sizes(Engine(cudagraph_capture_sizes=(3, 9))) == (3, 9)


def test_a_batch_is_padded_to_the_next_captured_size_or_runs_eager() -> None:
    result = scenario(engine__max_num_seqs=64, engine__cudagraph_capture_sizes=(4, 16))
    sizes = {requests: captured_size(result, requests) for requests in (1, 4, 5, 16, 17)}
    assert sizes == {1: 4, 4: 4, 5: 16, 16: 16, 17: None}


def test_who_runs_as_a_graph_and_with_how_many_rows() -> None:
    def runs(graph: str, batch: int, phase: str = "decode", graph_prefill: bool = False) -> tuple[str, int]:
        sizes = (4, 16) if graph in ("aclgraph", "npugraph_ex") else None
        result = scenario(
            workload__phase=phase,
            workload__batch=batch,
            workload__input_tokens=8,
            optimizations__graph=graph,
            engine__cudagraph_capture_sizes=sizes,
            optimizations__graph_prefill=graph_prefill,
        )
        return effective_graph(result, reported_batch(result))

    assert runs("eager", 5) == ("eager", 5)
    assert runs("aclgraph", 5) == ("aclgraph", 16)
    assert runs("npugraph_ex", 4) == ("npugraph_ex", 4)
    assert runs("npugraph_ex", 17) == ("eager", 17)  # off the grid
    assert runs("ge_graph", 17) == ("ge_graph", 17)  # compiled for exactly this batch
    assert runs("ge_graph", 5, "prefill") == ("eager", 40)
    assert runs("aclgraph", 5, "mixed") == ("eager", 12)
    assert runs("ge_graph", 5, "prefill", graph_prefill=True) == ("ge_graph", 40)  # compiled for exactly this chunk
    assert runs("ge_graph", 5, "mixed", graph_prefill=True) == ("eager", 12)


def test_micro_batches_are_even_whatever_the_groups() -> None:
    """Remainders of one group after the other go on where the last one ended, so no part has two of them."""
    groups = (Group(2, 1, 100), Group(1, 1, 200), Group(2, 1, 300), Group(4, 1, 400))
    parts = micro_batches(Batch("decode", groups), 3)
    assert [part.requests for part in parts] == [3, 3, 3]
    assert [part.phase for part in parts] == ["decode"] * 3
    two = micro_batches(Batch("decode", (Group(2, 1, 100), Group(1, 1, 200))), 3)
    assert [part.requests for part in two] == [1, 1, 1]


def test_the_phase_of_a_part_is_that_of_its_requests() -> None:
    parts = micro_batches(Batch("mixed", (Group(1, 50, 0), Group(3, 1, 100))), 2)
    assert [part.phase for part in parts] == ["mixed", "decode"]
    alone = micro_batches(Batch("mixed", (Group(1, 50, 0), Group(1, 1, 100))), 2)
    assert [part.phase for part in alone] == ["prefill", "decode"]
