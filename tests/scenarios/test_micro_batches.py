"""Parts of a batch that take turns: how a batch is cut, what each part reads, and that no stream outruns another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.batches import prefill_batches
from scenarios.build import problems_of
from scenarios.lowering.parallel import shard
from scenarios.models.model import Model
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Batch, Group
from scenarios.passes.micro_batches import STREAM, split
from tests.scenarios.making import EXPERTS, LATENT, TINY, program, races, scenario


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 300), st.integers(0, 300)), min_size=1, max_size=4),
    st.integers(2, 5),
)
def test_every_request_is_in_one_part(groups: list[tuple[int, int, int]], parts: int) -> None:
    batch = Batch("mixed", tuple(Group(*group) for group in groups))
    result = split(batch, parts)
    if len(result) == 1:
        assert result == [batch]
        return
    assert len(result) == parts
    assert sum(part.tokens for part in result) == batch.tokens
    if batch.requests >= parts:
        assert sum(part.requests for part in result) == batch.requests
        assert all(part.requests > 0 for part in result)


def test_parts_have_about_as_many_tokens_each() -> None:
    assert [part.groups for part in split(Batch("decode", (Group(7, 1, 90),)), 2)] == [
        (Group(4, 1, 90),),
        (Group(3, 1, 90),),
    ]
    assert [part.groups for part in split(Batch("prefill", (Group(1, 100, 8),)), 2)] == [
        (Group(1, 50, 8),),
        (Group(1, 50, 58),),
    ]
    assert len(split(Batch("decode", (Group(1, 1, 90),)), 2)) == 1


@pytest.mark.parametrize("model", [TINY, EXPERTS, LATENT], ids=lambda m: m.name)
@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_no_stream_outruns_another(model: Model, spread: bool, scattered: bool, phase: str) -> None:
    if spread and not model.experts:
        return
    local = shard(model, 2, expert_parallel=spread)
    for parts, chunks in ((1, 1), (2, 1), (3, 1), (1, 2)):
        result = scenario(
            workload__phase=phase, workload__batch=4, workload__input_tokens=600, engine__tensor_parallel_size=2,
            engine__enable_expert_parallel=spread, engine__sequence_parallel=scattered,
            optimizations__overlap__micro_batches=parts, optimizations__overlap__comm_chunks=chunks,
            optimizations__overlap__shared_expert_stream=model is LATENT, optimizations__overlap__streams=2,
        )  # fmt: skip
        assert problems_of(result, local) == []
        whole = program(result, local)
        assert races(whole) == []
        for block in whole.blocks:
            apart = [op.stream for op in block.ops if work_of(op).unit == "link"]
            if block.is_layer and parts > 1:
                assert set(apart) == {STREAM}
                assert len(apart) % parts == 0


@pytest.mark.parametrize("model", [EXPERTS, LATENT], ids=lambda m: m.name)
@pytest.mark.parametrize("parts", [2, 3])
def test_attention_of_a_part_is_on_another_stream_than_the_experts_that_it_sends_tokens_to(
    model: Model, parts: int
) -> None:
    """Without tensor parallelism a layer is cut once, before its router; only dispatch and combine have fewer cores."""
    local = shard(model, 1, replicas=2, expert_parallel=True)
    for apart in (False, True):
        result = scenario(
            workload__batch=6, workload__input_tokens=600, engine__data_parallel_size=2,
            engine__enable_expert_parallel=True, optimizations__overlap__micro_batches=parts,
            optimizations__overlap__shared_expert_stream=apart and model is LATENT,
        )  # fmt: skip
        assert problems_of(result, local) == []
        whole = program(result, local)
        assert races(whole) == []
        layer = whole.block("layers").ops
        stems = {stream: [op.stem for op in layer if op.stream == stream] for stream in (0, STREAM)}
        assert (stems[0].count("o_proj"), stems[STREAM].count("o_proj")) == (parts, 0)
        assert (stems[0].count("router"), stems[STREAM].count("router")) == (0, parts)
        limited = {op.stem for op in layer if op.attr("core_share", 1.0) != 1.0}
        assert limited == {"exchange.dispatch", "exchange.combine"}


def test_each_part_reads_the_weights() -> None:
    local = shard(TINY, 2)
    result = scenario(workload__batch=4, workload__input_tokens=9, engine__tensor_parallel_size=2)
    cut = result.model_copy(
        update={
            "optimizations": result.optimizations.model_copy(
                update={"overlap": result.optimizations.overlap.model_copy(update={"micro_batches": 2})}
            )
        }
    )

    def weights(which: object) -> int:
        layer = program(which, local).block("layers").ops  # type: ignore[arg-type]
        return sum(t.bytes for op in layer for t in op.inputs if t.role == "weight" and len(t.shape) == 2)

    assert weights(cut) == 2 * weights(result)


def test_a_step_of_too_few_requests_is_refused_and_a_short_chunk_stays_whole() -> None:
    local = shard(TINY, 2)
    one = scenario(engine__tensor_parallel_size=2, optimizations__overlap__micro_batches=2)
    assert problems_of(one, local) == [
        ("optimizations.overlap.micro_batches", "2 micro-batches need workload.batch of at least 2, got 1")
    ]
    alone = scenario(optimizations__overlap__micro_batches=2, workload__batch=4)
    assert problems_of(alone, TINY) == [
        ("optimizations.overlap.micro_batches", "has no effect here: a rank alone has no collectives to hide")
    ]
    chunked = scenario(
        workload__phase="prefill",
        workload__input_tokens=513,
        engine__max_num_batched_tokens=512,
        engine__tensor_parallel_size=2,
        optimizations__overlap__micro_batches=2,
    )
    first, last = (program(chunked, local, batch) for batch in prefill_batches(chunked))
    assert {op.stream for op in first.block("layers").ops} == {0, STREAM}
    assert {op.stream for op in last.block("layers").ops} == {0}
