"""Pipeline stages in the Program: who holds which layers, where the cut lies, what crosses it, what is conserved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scenarios.batches import decode_batch, micro_batches, mixed_batch, reported_batch
from scenarios.build import build, problems_of
from scenarios.errors import ScenarioError
from scenarios.lowering.parallel import shard
from scenarios.lowering.stages import layers_of_stages, split_depth, stage_model
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Batch, Group, Program
from scenarios.schema import Scenario
from tests.examples import examples
from tests.scenarios.making import PLAIN, TINY, faults, kinds, names, scenario, scenarios, switched

DEEP = replace(TINY, name="deep", layers=5)
QWEN3_32B = load_model("Qwen3-32B")


def parts(result: Scenario, model: Model, stages: int, batch: Batch | None = None) -> list[Program]:
    deep = split_depth(model, stages)
    return [build(result, deep, batch or reported_batch(result), stage) for stage in range(stages)]


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        (80, 2, (40, 40)),
        (5, 2, (3, 2)),
        (61, 4, (15, 15, 16, 15)),  # the last stage has the LM head, the first the embedding
        (62, 4, (15, 16, 16, 15)),
        (63, 4, (16, 16, 16, 15)),
        (3, 3, (1, 1, 1)),
        (7, 1, (7,)),
    ],
)
def test_layers_of_a_stage_are_vllms(layers: int, stages: int, expected: tuple[int, ...]) -> None:
    assert layers_of_stages(layers, stages) == expected


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ScenarioError, match="deep: 5 layers cannot fill 6 stages"):
        split_depth(DEEP, 6)


def test_what_a_stage_holds() -> None:
    held = [stage_model(split_depth(DEEP, 3), stage) for stage in range(3)]
    assert [m.layers for m in held] == [2, 2, 1]
    assert [(m.has_embedding, m.has_head) for m in held] == [(True, False), (False, False), (False, True)]
    assert sum(m.linear_weights for m in held) == DEEP.linear_weights
    assert sum(m.other_weights for m in held) == DEEP.other_weights
    assert sum(m.kv_bytes_per_token(16) for m in held) == DEEP.kv_bytes_per_token(16)


def test_tied_embeddings_are_held_twice() -> None:
    tied = replace(DEEP, tied_embeddings=True)
    held = [stage_model(split_depth(tied, 2), stage) for stage in range(2)]
    assert sum(m.other_weights for m in held) == tied.other_weights + tied.vocab * tied.hidden


def test_the_cut_before_the_fused_norm() -> None:
    first, last = parts(scenario(workload__batch=4), DEEP, 2)
    assert [(b.name, b.repeat) for b in first.blocks] == [
        ("prepare", 1),
        ("embed", 1),
        ("layers", 2),
        ("layers", 1),
        ("send", 1),
    ]
    assert [(b.name, b.repeat) for b in last.blocks] == [
        ("receive", 1), ("prepare", 1), ("embed", 1), ("carry", 1), ("layers", 2), ("head", 1), ("sample", 1),
    ]  # fmt: skip
    assert names(first, "send") == ["send.mlp_out", "send.residual_mid"]
    assert names(last, "receive") == ["receive.mlp_out", "receive.residual_mid"]
    assert kinds(last, "carry") == ["add_rms_norm"]
    assert first.blocks[3].ops == first.blocks[2].ops[:-1]


def test_the_cut_between_add_and_norm() -> None:
    first, last = parts(switched(scenario(workload__batch=4), fusion__add_rms_norm=False), DEEP, 2)
    assert names(first, "send") == ["send.residual"]
    assert first.blocks[3].ops[-1].name == "add_mlp"
    assert kinds(last, "carry") == ["rms_norm"]


def test_only_the_first_stage_looks_tokens_up_and_all_know_their_angles() -> None:
    first, last = parts(scenario(workload__batch=4), DEEP, 2)
    assert "embed_tokens" in names(first, "embed")
    left = [name for name in names(first, "embed") if name.split(".")[0] not in ("embed_tokens", "input_norm")]
    assert names(last, "embed") == left
    assert all(name.startswith("rotary.") for name in left)


def test_ranks_send_shares_to_their_neighbour_and_gather_them_again() -> None:
    model, result = shard(QWEN3_32B, 4), scenario(workload__batch=16)
    _, second, _ = parts(result, model, 3)
    receive = [(op.kind, op.out.shape) for op in second.block("receive").ops]
    assert receive == [("send_recv", (16, 1280))] * 2 + [("all_gather", (16, 5120))] * 2
    assert [op.inputs[0].shape for op in second.block("send").ops] == [(16, 1280)] * 2
    transfers = [dict(op.attrs) for block in ("receive", "send") for op in second.block(block).ops if len(op.attrs) > 1]
    assert transfers == [{"ranks": 2, "first": 0, "stride": 4}] * 2 + [{"ranks": 2, "first": 4, "stride": 4}] * 2
    assert {op.op_type for op in second.block("send").ops} == {"hcom_send_"}


def test_scattered_tokens_cross_as_they_are() -> None:
    result = scenario(workload__phase="prefill", workload__input_tokens=2000, engine__sequence_parallel=True)
    _, second = parts(result, shard(QWEN3_32B, 4), 2)
    receive = [(op.kind, op.out.shape) for op in second.block("receive").ops]
    assert receive == [("send_recv", (500, 5120))] * 2


#: Blocks and ops that stages have next to their part of the whole.
OWN = ("prepare", "receive", "send")


def counted(programs: list[Program]) -> Counter[str]:
    """Ops that exist once in the whole model, however it is cut."""
    result: Counter[str] = Counter()
    for program in programs:
        for block in program.blocks:
            for op in block.ops if block.name not in OWN else ():
                if not op.name.startswith(("rotary.", "update_parameters")):
                    result[op.name] += block.repeat
    return result


@examples(60)
@given(scenarios(), st.sampled_from([DEEP, replace(PLAIN, layers=4)]), st.integers(2, 4))
def test_stages_together_do_what_the_whole_does(made: Scenario, model: Model, stages: int) -> None:
    assume(not problems_of(made, model))
    batch = reported_batch(made)
    cut, whole = parts(made, model, stages), build(made, model, batch)
    assert counted(cut) == counted([whole])
    for part in cut:
        assert faults(part) == []
    # What one sends the next receives, byte for byte.
    for before, after in pairwise(cut):
        sent = [work_of(op).shape for op in before.block("send").ops]
        assert sent == [work_of(op).shape for op in after.block("receive").ops]


def test_micro_batches_share_the_requests_out() -> None:
    batch = decode_batch(scenario(workload__batch=10))
    assert [part.requests for part in micro_batches(batch, 4)] == [3, 3, 2, 2]
    assert [part.requests for part in micro_batches(decode_batch(scenario(workload__batch=2)), 4)] == [1, 1]
    assert {part.phase for part in micro_batches(batch, 4)} == {"decode"}


def test_a_prefill_goes_with_the_first_micro_batch() -> None:
    batch = mixed_batch(scenario(workload__phase="mixed", workload__batch=6, workload__input_tokens=100))
    result = micro_batches(batch, 2)
    assert [part.phase for part in result] == ["mixed", "decode"]
    assert [part.requests for part in result] == [3, 3]
    assert Group(1, 100, 0) in result[0].groups
