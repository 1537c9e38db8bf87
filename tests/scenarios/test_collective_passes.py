"""Products and their collectives side by side as rewrites: fused into one kernel, or cut into pieces on two streams."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.batches import decode_batch
from scenarios.build import problems_of
from scenarios.lowering.parallel import shard
from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.ops.program import Op, Program, Tensor
from scenarios.ops.work import CollectiveShape, MatmulCollectiveShape, MatmulShape
from scenarios.passes.collectives import COMM_CHUNKS, MATMUL_ALL_REDUCE, STREAM, cut_pair
from scenarios.schema import Scenario
from tests.scenarios.making import EXPERTS, TINY, bare, cube_flops, faults, kinds, op, program, switched, weight_bytes

#: A rank that holds half of everything, o [16, 8] and down [16, 12]; two prompts of 20 tokens.
HALF = shard(TINY, 2)
OFF = bare(
    engine__tensor_parallel_size=2,
    workload__phase="prefill",
    workload__batch=2,
    workload__input_tokens=20,
    workload__output_tokens=1,
)
FUSED = switched(OFF, fusion__matmul_all_reduce=True)
CUT = switched(OFF, overlap__comm_chunks=2)
PAIRS = ("o_proj", "down_proj")


def half(scenario: Scenario) -> Program:
    return program(scenario, HALF)


def scattered(scenario: Scenario, tokens: int = 2048) -> Scenario:
    """With sequence parallelism, in a step long enough for it."""
    engine = scenario.engine.model_copy(update={"sequence_parallel": True, "max_num_batched_tokens": 8192})
    workload = scenario.workload.model_copy(update={"input_tokens": tokens // scenario.workload.batch})
    return scenario.model_copy(update={"engine": engine, "workload": workload})


def reason(scenario: Scenario) -> str:
    return "; ".join(what for _, what in problems_of(scenario, shard(TINY, scenario.engine.tensor_parallel_size)))


# ---- one kernel ----


def test_product_and_all_reduce_become_one_kernel_and_nothing_else_changes() -> None:
    before, after = half(OFF), half(FUSED)
    expected = [o.name for o in before.block("layers").ops if not o.name.endswith(".all_reduce")]
    assert [o.name for o in after.block("layers").ops] == expected
    for name in PAIRS:
        one, product = op(after, name), op(before, name)
        assert (one.kind, op_type_of(one)) == ("matmul_all_reduce", "MatmulAllReduce")
        assert (one.inputs, one.outputs, one.attr("ranks")) == (product.inputs, product.outputs, 2)
    assert "embed_tokens.all_reduce" in [o.name for o in after.block("embed").ops]
    assert faults(after) == []
    assert (cube_flops(before), weight_bytes(before)) == (cube_flops(after), weight_bytes(after))
    assert after.applied[-1] == "fusion.matmul_all_reduce"


def test_its_work_is_that_of_both() -> None:
    apart, work = half(OFF), work_of(op(half(FUSED), "down_proj"))
    product, reduction = work_of(op(apart, "down_proj")), work_of(op(apart, "down_proj.all_reduce"))
    assert work.shape == MatmulCollectiveShape(
        MatmulShape(1, 40, 12, 16, "bf16", "bf16", "nd"), CollectiveShape("all_reduce", 40 * 16 * 2, 2)
    )
    assert (work.cube_flops, work.cold_read_bytes) == (product.cube_flops, product.cold_read_bytes)
    assert work.gm_bytes == product.gm_bytes + reduction.gm_bytes
    assert (work.program, work.unit) == ("matmul", "cube")


@pytest.mark.parametrize(
    ("weights", "inner", "unit"), [("w8a8", "quant_matmul", "mix"), ("w8a16", "weight_quant_matmul", "mix")]
)
def test_quantised_products_are_fused_too(weights: str, inner: str, unit: str) -> None:
    after = half(switched(FUSED, weights=weights))
    work = work_of(op(after, "o_proj"))
    assert (work.program, work.unit) == (inner, unit)
    assert [o.kind for o in after.block("layers").ops].count("matmul_all_reduce") == 2
    assert faults(after) == []


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (switched(bare(), fusion__matmul_all_reduce=True), "needs engine.tensor_parallel_size above 1"),
        (scattered(FUSED), "needs engine.sequence_parallel false"),
        (switched(FUSED, weights="w4a8"), "no INT4 weights with INT8 activations"),
        (switched(bare(), overlap__comm_chunks=2), "needs engine.tensor_parallel_size above 1"),
        (switched(FUSED, overlap__comm_chunks=2), "fusion.matmul_all_reduce has the collectives inside"),
        (switched(OFF, overlap__comm_chunks=41), "the reported step has 40 tokens, too few for 41 pieces"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(scenario: Scenario, words: str) -> None:
    assert words in reason(scenario)


def test_groups_that_the_kernel_does_not_take_are_refused() -> None:
    wide = replace(TINY, heads=6, kv_heads=6, intermediate=24)
    model_copy = FUSED.model_copy(update={"engine": FUSED.engine.model_copy(update={"tensor_parallel_size": 3})})
    assert "takes groups of 2, 4, 8, 16, 32, 64 ranks, not 3" in problems_of(model_copy, shard(wide, 3))[0][1]


# ---- pieces ----


def lines(ops: tuple[Op, ...], *stems: str) -> list[tuple[str, int, tuple[str, ...], tuple[str, ...], int]]:
    """(name, stream, waits, records, rows read) of the ops whose names start with one of `stems`."""
    return [(o.name, o.stream, o.waits, o.records, o.inputs[0].shape[0]) for o in ops if o.name.startswith(stems)]


def test_a_piece_is_reduced_on_a_second_stream_beside_the_next_product() -> None:
    after = half(CUT)
    # 40 rows: three blocks of 16, so 32 and 8.
    assert lines(after.block("layers").ops, "o_proj", "add_attention") == [
        ("o_proj.0", 0, (), ("made o_proj 0",), 32),
        ("o_proj.all_reduce.0", STREAM, ("made o_proj 0",), (), 32),
        ("o_proj.1", 0, (), ("made o_proj 1",), 8),
        ("o_proj.all_reduce.1", STREAM, ("made o_proj 1",), ("reduced o_proj",), 8),
        ("add_attention", 0, ("reduced o_proj",), (), 40),
    ]
    assert op(after, "add_mlp").waits == ("reduced down_proj",)
    assert faults(after) == []


@pytest.mark.parametrize("weights", ["bf16", "w8a8", "w8a16"])
@pytest.mark.parametrize("pieces", [2, 3, 40])
def test_flops_and_reduced_bytes_are_conserved(weights: str, pieces: int) -> None:
    base = switched(OFF, weights=weights)
    before, after = half(base), half(switched(base, overlap__comm_chunks=pieces))
    assert (cube_flops(before), weight_bytes(before)) == (cube_flops(after), weight_bytes(after))

    def reduced(result: Program) -> int:
        return sum(o.out.bytes for o in result.block("layers").ops if o.kind == "all_reduce")

    assert reduced(before) == reduced(after)
    assert faults(after) == []


def test_only_the_first_piece_reads_its_weights_from_hbm() -> None:
    first, second = (op(half(CUT), f"down_proj.{i}") for i in (0, 1))
    weight = 16 * 12 * 2
    assert work_of(first).prefetched_bytes == 0
    assert work_of(second).prefetched_bytes == weight
    # Next to the weights, 8 rows of 12 come in and 8 of 16 go out.
    assert work_of(second).prefetched_together_bytes == weight + 2 * 8 * (12 + 16)


def test_with_prefetched_weights_the_first_piece_waits_for_them() -> None:
    after = half(switched(CUT, overlap__prefetch=True))
    assert [op(after, f"o_proj.{i}").waits for i in (0, 1)] == [("prefetched o_proj",), ()]
    assert work_of(op(after, "o_proj.0")).prefetched_bytes == work_of(op(after, "o_proj.1")).prefetched_bytes
    assert [o.name for o in after.block("layers").ops].count("prefetch.o_proj") == 1
    assert faults(after) == []


def test_what_waits_for_the_whole_product_waits_for_its_last_piece() -> None:
    x, w = Tensor("x", (64, 16), "bf16"), Tensor("w", (16, 16), "bf16", "weight")
    product = Op("matmul", "mm", (x, w), (Tensor("y", (64, 16), "bf16"),), waits=("go",), records=("done",))
    reduction = Op("all_reduce", "ar", product.outputs, product.outputs, (("ranks", 2),))
    first, _, last, _ = cut_pair(product, reduction, (32, 32))
    assert (first.waits, first.records) == (("go",), ("made mm 0",))
    assert (last.waits, last.records) == ((), ("done", "made mm 1"))


def test_a_reduce_scatter_is_cut_and_the_gathers_follow_the_ranks_shares() -> None:
    result = scattered(CUT)
    before, after = half(switched(result, overlap__comm_chunks=1)), half(result)
    assert lines(after.block("layers").ops, "o_proj", "add_attention") == [
        ("o_proj.0", 0, (), ("made o_proj 0",), 1024),
        ("o_proj.reduce_scatter.0", STREAM, ("made o_proj 0",), (), 1024),
        ("o_proj.1", 0, (), ("made o_proj 1",), 1024),
        ("o_proj.reduce_scatter.1", STREAM, ("made o_proj 1",), ("reduced o_proj",), 1024),
        ("add_attention", 0, ("reduced o_proj",), (), 1024),
    ]
    gathers = [o for b in after.blocks for o in b.ops if o.kind == "all_gather" and o.name != "logits_all_gather"]
    assert {(o.stream, o.inputs[0].shape[0], o.out.shape[0]) for o in gathers} == {(0, 512, 1024)}
    assert len(gathers) == 2 * sum(
        o.kind == "all_gather" and o.name != "logits_all_gather" for b in before.blocks for o in b.ops
    )
    assert [o.name for o in after.block("embed").ops if o.kind == "reduce_scatter"] == [
        "embed_tokens.reduce_scatter.0",
        "embed_tokens.reduce_scatter.1",
    ]
    assert faults(after) == []


def test_a_step_of_fewer_tokens_than_pieces_stays_whole() -> None:
    base, result = OFF, switched(OFF, overlap__comm_chunks=8)
    batch = decode_batch(result)
    assert program(result, HALF, batch).blocks == program(base, HALF, batch).blocks


@pytest.mark.parametrize("graph", ["eager", "aclgraph", "npugraph_ex", "ge_graph"])
def test_graphs_keep_streams_and_events(graph: str) -> None:
    decode = OFF.workload.model_copy(update={"phase": "decode", "input_tokens": 9})
    result = switched(CUT.model_copy(update={"workload": decode}), graph=graph)
    ops = half(result).block("layers").ops
    recorded = {event for o in ops for event in o.records}
    assert {event for o in ops for event in o.waits} == recorded
    # Where the compiler merges the reader with its neighbours, the merged kernel waits.
    (reader,) = (o for o in ops if "reduced o_proj" in o.waits)
    assert {t.name for t in reader.inputs} >= {"attention_out", "residual"}
    assert bool(reader.parts) == (graph == "ge_graph")


def test_what_is_off_changes_nothing() -> None:
    for item in (MATMUL_ALL_REDUCE, COMM_CHUNKS):
        assert not item.is_on(OFF)
        assert item.switch not in half(OFF).applied


def test_dense_layers_before_those_of_experts_are_rewritten_too() -> None:
    off = switched(
        bare(
            EXPERTS,
            workload__batch=8,
            workload__phase="prefill",
            workload__input_tokens=64,
            engine__tensor_parallel_size=2,
        )
    )
    model = shard(EXPERTS, 2)
    for switches in ({"fusion__matmul_all_reduce": True}, {"overlap__comm_chunks": 2}):
        before, after = (kinds(program(item, model), "dense_layers") for item in (off, switched(off, **switches)))
        assert before.count("all_reduce") == 2
        if "overlap__comm_chunks" in switches:
            assert after.count("all_reduce") == 4
        else:
            assert (after.count("all_reduce"), after.count("matmul_all_reduce")) == (0, 2)
