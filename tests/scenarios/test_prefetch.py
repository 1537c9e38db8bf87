"""Weight prefetch as a rewrite: what is fetched when, who waits for whom, and what no byte may do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.batches import decode_batch
from scenarios.errors import ScenarioError
from scenarios.loader import load_text
from scenarios.ops.catalogue import kind_of, op_type_of, work_of
from sim.predict.scenario_result import case_of
from sim.predict.steps import program_of
from tests.scenarios.making import bare, cube_flops, faults, kinds, op, program, switched, weight_bytes

#: One decoding request; products o [16, 16], gate and up [24, 16] and down [16, 24] follow attention.
OFF = bare(workload__batch=1, workload__input_tokens=9, workload__output_tokens=1)
ON = switched(OFF, overlap__prefetch=True)
LATER = ("o_proj", "gate_proj", "up_proj", "down_proj")
BYTES = (2 * 16 * 16, 2 * 24 * 16, 2 * 24 * 16, 2 * 16 * 24)


def test_fetches_follow_the_last_product_before_attention_on_a_stream_of_their_own() -> None:
    after = program(ON)
    ops = after.block("layers").ops
    at = next(i for i, o in enumerate(ops) if o.name == "v_proj")
    assert [o.name for o in ops[at + 1 : at + 5]] == [f"prefetch.{name}" for name in LATER]
    assert {(o.stream, o.waits, op_type_of(o)) for o in ops if o.kind == "prefetch"} == {(1, ("prefetch",), "CMO")}
    assert op(after, "v_proj").records == ("prefetch",)
    assert [o.name for o in ops if o.kind != "prefetch"] == [o.name for o in program(OFF).block("layers").ops]


def test_each_product_waits_for_its_own_weights_and_no_other_call_does() -> None:
    after = program(ON)
    waits = {o.name: o.waits for o in after.block("layers").ops if o.waits and o.stream == 0}
    assert waits == {name: (f"prefetched {name}",) for name in LATER}
    assert [op(after, f"prefetch.{name}").records for name in LATER] == [(f"prefetched {name}",) for name in LATER]


def test_a_product_says_what_was_fetched_for_it_and_with_how_much_else() -> None:
    after = program(ON)
    for name, size in zip(LATER, BYTES, strict=True):
        work = work_of(op(after, name))
        assert (work.prefetched_bytes, work.prefetched_together_bytes) == (size, sum(BYTES))
        assert work.cold_read_bytes == size  # where they come from is for the hardware to say
        assert work_of(op(after, f"prefetch.{name}")).cold_read_bytes == size
    assert work_of(op(after, "q_proj")).prefetched_bytes == 0


def test_packed_and_quantised_weights_are_fetched_as_they_are() -> None:
    result = switched(ON, fusion__qkv=True, fusion__gate_up=True, weights="w8a8")
    after = program(result)
    fetched = {o.inputs[0].name: o.inputs[0].bytes for o in after.block("layers").ops if o.kind == "prefetch"}
    assert fetched == {"o_proj.weight": 16 * 16, "gate_up_proj.weight": 48 * 16, "down_proj.weight": 16 * 24}


@pytest.mark.parametrize("graph", ["eager", "aclgraph", "ge_graph"])
@pytest.mark.parametrize("phase", ["decode", "prefill", "mixed"])
def test_nothing_else_changes(graph: str, phase: str) -> None:
    sizes = {"workload__batch": 2, "workload__phase": phase, "workload__input_tokens": 9}
    off = switched(bare(**sizes), graph=graph)
    before, after = program(off), program(switched(off, overlap__prefetch=True))
    assert faults(after) == []
    assert (cube_flops(before), weight_bytes(before)) == (cube_flops(after), weight_bytes(after))
    assert [k for k in kinds(after) if k != "prefetch"] == kinds(before)
    for block in before.blocks:
        if block.name != "layers":
            assert block == after.block(block.name)


def test_only_products_of_weights_are_fetched_for() -> None:
    after = program(ON)
    marked = [o for o in after.block("layers").ops if o.attr("prefetched_bytes", 0)]
    assert all(kind_of(op).dense for op in marked)
    assert all(replace(o, attrs=(), waits=()) == op(program(OFF), o.name) for o in marked)


def test_how_far_ahead_weights_are_fetched_is_the_stack_s_choice_unless_asked_for() -> None:
    layer = ("q_proj", "k_proj", "v_proj", *LATER)
    whole = 2 * 16 * 16 + 2 * 2 * 8 * 16 + sum(BYTES)
    for ahead, names, together in ((0, LATER, sum(BYTES)), (1, layer, whole), (2, layer, 2 * whole)):
        after = program(switched(ON, overlap__prefetch_layers=ahead))
        marked = {o.name: work_of(o).prefetched_together_bytes for o in after.block("layers").ops if kind_of(o).dense}
        assert {name for name, size in marked.items() if size} == set(names)
        assert {marked[name] for name in names} == {together}
        assert faults(after) == []
    assert program(switched(ON, overlap__prefetch_layers=0)) == program(ON)


def test_vllm_ascend_fetches_next_to_the_vector_kernels_and_no_more_than_its_limit() -> None:
    """weight_prefetch.py of v0.18.0 and v0.23.0: 18 MiB of gate and up once attention's output is summed, of down once
    gate and up have ended; each product waits for its own. A stack's own choice: others fetch next to attention."""
    sets = ("model=Qwen3-32B", "hardware=atlas_a3_die", "engine.tensor_parallel_size=4", "workload.batch=8",
            "optimizations.graph=aclgraph", "optimizations.overlap.prefetch=true")  # fmt: skip

    def fetched(*more: str) -> list[str]:
        case = case_of(load_text("{}", "prefetch", (*sets, *more)))
        ops = program_of(case.scenario, case.model, decode_batch(case.scenario)).block("layers").ops
        return [o.name for o in ops if o.kind == "prefetch"]

    # Gate and up are sent for by a row-parallel product of vLLM-Ascend's own, which stands there with FlashComm1 alone.
    assert fetched() == ["prefetch.down_proj"]
    case = case_of(load_text("{}", "prefetch", (*sets, "engine.sequence_parallel=true")))
    ops = program_of(case.scenario, case.model, decode_batch(case.scenario)).block("layers").ops
    at = {o.name: i for i, o in enumerate(ops)}
    fetches = {o.name: work_of(o).cold_read_bytes for o in ops if o.kind == "prefetch"}
    assert fetches == dict.fromkeys(("prefetch.gate_up_proj", "prefetch.down_proj"), 18 << 20)
    assert at["prefetch.gate_up_proj"] == at["o_proj.all_reduce"] + 1
    assert at["prefetch.down_proj"] == at["gate_up_proj"] + 1
    for name in ("gate_up_proj", "down_proj"):
        product = ops[at[name]]
        assert f"prefetched {name}" in product.waits
        assert (work_of(product).prefetched_bytes, work_of(product).cold_read_bytes > 18 << 20) == (18 << 20, True)
    assert work_of(ops[at["o_proj"]]).prefetched_bytes == 0


def test_vllm_ascend_fetches_experts_in_large_steps_and_says_so_of_small_ones() -> None:
    """From 96 tokens on, 0.8 of the first weights of all experts of a rank, from the router's end on."""
    sets = ("model=Qwen3-235B-A22B", "hardware=atlas_a3_die", "engine.data_parallel_size=16",
            "engine.enable_expert_parallel=true", "optimizations.weights=w8a8", "optimizations.graph=aclgraph",
            "workload.input_tokens=512",
            "optimizations.overlap.prefetch=true")  # fmt: skip
    case = case_of(load_text("{}", "prefetch", (*sets, "workload.batch=128")))
    ops = program_of(case.scenario, case.model, decode_batch(case.scenario)).block("layers").ops
    (fetch,) = (o for o in ops if o.kind == "prefetch")
    assert fetch.name == "prefetch.experts.gate_up_proj"
    assert work_of(fetch).cold_read_bytes == int(0.8 * 8 * 3072 * 4096)
    assert [o.name for o in ops][[o.name for o in ops].index(fetch.name) - 1] == "router"
    with pytest.raises(ScenarioError, match="prefetches experts from 96 tokens a step on, got 32"):
        case_of(load_text("{}", "prefetch", (*sets, "workload.batch=32")))
