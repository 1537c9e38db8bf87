"""Attention over compressed rows, their choice and the streams of the residual: work by hand, and what a request
keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.build import build, problems_of
from scenarios.lowering.decoder import lower
from scenarios.lowering.parallel import shard
from scenarios.lowering.stages import split_depth
from scenarios.lowering.step import Step
from scenarios.models.hf_config import load_model
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Batch, Group, Op
from scenarios.ops.work import AttentionShape
from tests.scenarios.making import bare, switched

MODEL = load_model("DeepSeek-V4-Flash")
TOKENS = 131_072


def ops_of(batch: Batch) -> dict[str, dict[str, Op]]:
    """The ops of the first layer of each kind, by name."""
    program = lower(Step(MODEL, batch, "bf16", TOKENS + 8192, batch.tokens))
    layers = [block for block in program.blocks if block.is_layer]
    names = [one.kind for one, _ in MODEL.runs]
    return {kind: {op.name: op for op in layers[names.index(kind)].ops} for kind in ("window", "chosen", "compressed")}


DECODE = ops_of(Batch("decode", (Group(3, 1, TOKENS - 1),)))


@pytest.mark.parametrize(("kind", "keys"), [("window", 128), ("chosen", 128 + 512), ("compressed", 128 + 1024)])
def test_a_query_reads_its_window_and_its_compressed_rows(kind: str, keys: int) -> None:
    work = work_of(DECODE[kind]["attention"])
    assert work.cold_read_bytes == 3 * keys * 512 * 2
    assert work.cube_flops == 4 * 512 * 64 * 3 * keys
    assert isinstance(work.shape, AttentionShape)
    assert work.shape.groups == (Group(3, 1, keys - 1),)


def test_the_indexer_reads_a_key_of_each_four_tokens() -> None:
    work = work_of(DECODE["chosen"]["index"])
    assert work.cold_read_bytes == 3 * TOKENS // 4 * (128 + 2)
    assert work.cube_flops == 2 * 128 * 64 * 3 * TOKENS // 4


def test_queries_of_a_prompt_that_choose_are_priced_each_by_itself() -> None:
    groups = (Group(1, 4096, TOKENS - 4096),)
    prefill = ops_of(Batch("prefill", groups))
    work = work_of(prefill["chosen"]["attention"])
    assert isinstance(work.shape, AttentionShape)
    assert work.shape.groups == (Group(4096, 1, 128 + 512 - 1),)
    whole = work_of(prefill["compressed"]["attention"])
    assert isinstance(whole.shape, AttentionShape)
    assert sum(g.count * g.query for g in whole.shape.groups) == 4096
    assert whole.cold_read_bytes == (4096 + 127 + 1024) * 512 * 2  # once for all of them


def test_a_compressor_multiplies_all_tokens_and_leaves_few_rows() -> None:
    op = DECODE["compressed"]["compressed_compressor"]
    assert op.out.shape == (3, 512)  # room for one row of each request
    assert work_of(op).cube_flops == 2 * 3 * 4096 * 2 * 512
    overlapping = work_of(DECODE["chosen"]["compressed_compressor"])
    assert overlapping.cube_flops == 2 * 2 * 3 * 4096 * 2 * 512


def test_streams_are_read_and_written_whole() -> None:
    read, written = (work_of(DECODE["window"][name]) for name in ("hc_attention_pre", "hc_attention_post"))
    streams = 3 * 4 * 4096 * 2
    assert read.warm_read_bytes == streams
    assert read.cold_read_bytes == 4 * (24 * 4 * 4096 + 24 + 3)
    assert written.write_bytes == streams


def test_what_a_request_keeps() -> None:
    window = 43 * 128 * 512 * 2
    rows = 21 * TOKENS // 4 * (1024 + 130) + 20 * TOKENS // 128 * 1024
    states = 21 * (8 * 2048 * 4 + 8 * 512 * 4) + 20 * 128 * 1024 * 4
    assert MODEL.kept_bytes(TOKENS, lambda one: 2 * one.cached_elements) == window + rows + states
    assert [one.fixed_bytes for one in MODEL.kinds[:3]] == [0, 81_920, 524_288]


def test_ranks_share_groups_of_heads_and_stages_pass_the_streams() -> None:
    part = shard(MODEL, 4)
    assert part.shared_kv is not None
    assert (part.heads, part.shared_kv.groups, part.attended) == (16, 2, 2048)
    with pytest.raises(Exception, match=r"8 groups of heads \(o_groups\) do not divide by 16"):
        shard(MODEL, 16)
    scenario = bare(MODEL, workload__batch=2)
    staged = split_depth(MODEL, 2)
    first, last = (build(scenario, staged, Batch("decode", (Group(2, 1, 600),)), stage) for stage in (0, 1))
    assert [op.inputs[0].shape for op in first.block("send").ops] == [(2, 4 * 4096)]
    assert "repeat_streams" not in {op.name for op in last.block("embed").ops}


def test_what_is_not_modelled_of_it_is_said() -> None:
    drafted = switched(bare(MODEL), kv__dtype="int8", fusion__attention=True)
    assert any("no fused call reads it in INT8" in what for _, what in problems_of(drafted, MODEL))
    shared = switched(bare(MODEL), kv__layout="paged", kv__prefix_sharing=True)
    assert any("keep a state" in what for _, what in problems_of(shared, MODEL))
    engine = bare(MODEL).engine.model_copy(update={"sequence_parallel": True})
    problems = problems_of(bare(MODEL).model_copy(update={"engine": engine}), replace(MODEL, tensor_parallel=2))
    assert any("not modelled for the norms" in what for _, what in problems)
