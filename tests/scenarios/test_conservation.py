"""What no optimisation may change: flops, weight bytes, KV bytes of a token; and what a fusion may add to it."""

from __future__ import annotations

import pytest
from hypothesis import assume, given

from scenarios.build import problems_of
from scenarios.models.model import Model
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Program
from scenarios.schema import Fusion
from tests.examples import examples
from tests.scenarios.making import (
    BIASED,
    PLAIN,
    TINY,
    Drawn,
    bare,
    cases,
    cube_flops,
    gm_bytes,
    op,
    program,
    stages,
    switched,
    weight_bytes,
    works,
)

#: Two decoding requests on 9 cached tokens, of a model of two layers; everything off.
OFF = bare(workload__batch=2, workload__input_tokens=9, workload__output_tokens=1)

#: Scenarios in which every pass is on for one that can be.
EVERYTHING = switched(
    bare(workload__batch=2, workload__input_tokens=9, workload__output_tokens=1),
    **{
        f"fusion__{name}": True
        for name in Fusion.model_fields
        if name not in ("matmul_all_reduce", "qkv_norm_rope_cache", "ffn")
    },
    kv__layout="paged",
    kv__dtype="int8",
    weights="w8a8",
    weight_format="nz",
    graph="ge_graph",
)


def masked_pairs_flops(before: Program, model: Model) -> int:
    """What unfused attention computes beyond the pairs that causality lets through: all queries x all keys."""
    groups = before.batch.groups
    pairs = sum(g.count * (g.query * g.context + g.query * (g.query + 1) // 2) for g in groups)
    scored = before.batch.requests * max(g.query for g in groups) * max(g.kv_len for g in groups)
    return 4 * model.head_dim * model.heads * (scored - pairs) * model.layers


@examples(150)
@given(cases())
def test_cube_flops_are_conserved(drawn: Drawn) -> None:
    result, model = drawn
    assume(not problems_of(result, model))
    for item, before, after in stages(result, model):
        dropped = masked_pairs_flops(before, model) if item.switch == "fusion.attention" else 0
        assert cube_flops(before) - cube_flops(after) == dropped, item.switch


def test_fused_attention_of_a_decode_step_drops_no_flop() -> None:
    assert masked_pairs_flops(program(OFF), TINY) == 0
    assert cube_flops(program(OFF)) == cube_flops(program(EVERYTHING))


@examples(150)
@given(cases())
def test_only_quantisation_changes_the_weight_bytes(drawn: Drawn) -> None:
    result, model = drawn
    assume(not problems_of(result, model))
    for item, before, after in stages(result, model):
        if item.switch == "fusion.grouped_matmul":  # it holds all experts and reads those that are chosen
            assert cold_bytes(before) == cold_bytes(after)
        elif item.switch != "weights":
            assert weight_bytes(before) == weight_bytes(after), item.switch


def cold_bytes(result: Program) -> int:
    """What a layer reads from HBM."""
    return sum(work_of(one).cold_read_bytes for one in result.block("layers").ops)


@pytest.mark.parametrize("model", [TINY, PLAIN, BIASED], ids=lambda m: m.name)
@pytest.mark.parametrize(("weights", "parts"), [("w8a16", 2), ("w8a8", 2), ("w4a16", 4), ("w4a8", 4)])
def test_quantised_weights_are_halved_or_quartered_but_for_their_scales(weights: str, parts: int, model: Model) -> None:
    before, after = program(OFF, model), program(switched(OFF, weights=weights), model)
    linear_bytes = model.linear_weights * 2
    outputs = 16 + 8 + 8 + 16 + 24 + 24 + 16  # q, k, v, o, gate, up, down: one fp32 scale for each
    assert weight_bytes(before) - weight_bytes(after) == linear_bytes - linear_bytes // parts - 2 * 4 * outputs


@pytest.mark.parametrize("model", [TINY, PLAIN, BIASED], ids=lambda m: m.name)
def test_the_program_reads_every_weight_of_the_model(model: Model) -> None:
    assert weight_bytes(program(OFF, model)) == 2 * (model.linear_weights + model.other_weights)


def declared_bytes(switch: str, before: Program, after: Program) -> int:
    """What a fusion may add to the traffic: the copies that its `costs` name, and small outputs of the fused kernel."""
    old = {id(o) for b in before.blocks for o in b.ops}
    new = [(o, w) for o, w in works(after) if id(o) not in old]
    if switch in ("fusion.qkv", "fusion.gate_up"):
        return sum(w.gm_bytes for o, w in new if o.kind == "slice")
    if switch == "fusion.swiglu":
        return sum(w.gm_bytes for o, w in new if o.kind == "concat")
    if switch == "fusion.rms_norm":
        return sum(o.outputs[1].bytes for o, w in new)  # rstd
    if switch == "fusion.swiglu_quant":  # sums of 32 bits instead of 16, written and read; a dense product's scales
        fused = [o.inputs[:2] for o, _ in new if o.kind == "dequant_swiglu_quant"]
        return sum(2 * 2 * sums.elements + scale.bytes for sums, scale in fused)
    return 0


@examples(150)
@given(cases())
def test_a_fusion_adds_no_bytes_beyond_its_declared_outputs(drawn: Drawn) -> None:
    result, model = drawn
    assume(not problems_of(result, model))
    for item, before, after in stages(result, model):
        if item.switch.startswith("fusion."):
            assert gm_bytes(after) - gm_bytes(before) <= declared_bytes(item.switch, before, after), item.switch


@examples(100)
@given(cases(("decode",)))
def test_the_graph_engine_adds_no_bytes_but_its_parameters(drawn: Drawn) -> None:
    result, model = drawn
    assume(not problems_of(result, model))
    for item, before, after in stages(result, model):
        if item.switch == "graph":
            update = next((work_of(o) for o in after.block("embed").ops if o.kind == "graph_parameters"), None)
            assert gm_bytes(after) - gm_bytes(before) <= (update.gm_bytes if update else 0)


def cache_bytes(result: Program) -> int:
    """K and V that attention reads, without tables and scales."""
    attention = op(result, "attention")
    tables = sum(t.bytes for t in attention.inputs[3:])
    return work_of(attention).cold_read_bytes - tables


def test_paging_changes_no_byte_of_a_token_and_int8_halves_them() -> None:
    for phase in ("decode", "prefill", "mixed"):
        result = bare(workload__batch=3, workload__phase=phase, workload__input_tokens=33, workload__output_tokens=8)
        contiguous = switched(result, fusion__attention=True)
        paged = switched(contiguous, kv__layout="paged")
        halved = switched(paged, kv__dtype="int8")
        sizes = [cache_bytes(program(s)) for s in (contiguous, paged, halved)]
        assert sizes[0] == sizes[1] == 2 * sizes[2] > 0
        written = [
            sum(work_of(o).write_bytes for o in program(s).block("layers").ops if o.kind == "kv_cache_write")
            for s in (contiguous, paged, halved)
        ]
        assert written[0] == written[1] == 2 * written[2] == program(result).batch.tokens * 2 * 8 * 2


@examples(100)
@given(cases())
def test_only_paging_changes_the_preamble(drawn: Drawn) -> None:
    result, model = drawn
    assume(not problems_of(result, model))
    for item, before, after in stages(result, model):
        assert item.switch == "kv.layout" or before.block("prepare").ops == after.block("prepare").ops
