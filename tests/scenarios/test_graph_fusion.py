"""Which calls a graph compiler joins, against the kernel counts of a compiled graph."""

from __future__ import annotations

from collections import Counter

from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.lowering.primitives import activation
from scenarios.models.hf_config import load_model
from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.ops.program import Op, Program
from scenarios.passes.graph_fusion import SHORT_ROW, fuse_elementwise, reads
from tests.scenarios.making import scenario

#: RMSNorm and RoPE written out, products packed, attention one call: as the profiled text tower has them.
WRITTEN_OUT = {
    "optimizations__graph": "ge_graph",
    "optimizations__graph_prefill": True,
    "optimizations__kv__layout": "contiguous",
    "optimizations__fusion__rms_norm": False,
    "optimizations__fusion__add_rms_norm": False,
    "optimizations__fusion__rope": False,
    "optimizations__fusion__swiglu": False,
}


def compiled(model: str, **settings: object) -> Program:
    of = scenario(model=model, **{**WRITTEN_OUT, **settings})
    return build(of, load_model(model), reported_batch(of))


def test_a_compiled_text_tower_has_the_kernels_of_its_profile() -> None:
    # 36 layers, 1,274 tokens: 73 Cast, 145 Square, 290 Mul, 72 Add of the residual, 253 of the compiler's own, 72 Neg.
    program = compiled("Qwen3-4B", workload__phase="prefill", workload__batch=1, workload__input_tokens=1274)
    first_norm = [op for op in program.block("embed").ops if op.name.startswith("input_norm")]
    counts = Counter(op_type_of(op) for op in first_norm)
    for op in program.block("layers").ops:
        counts[op_type_of(op)] += program.block("layers").repeat
    measured = {"Cast": 73, "Square": 145, "Mul": 290, "Add": 72, "AutomaticBufferFusionOp": 253, "Neg": 72}
    assert {name: counts[name] for name in measured} == measured
    assert not {"ReduceMean", "ReduceMeanD"} & set(counts)


def test_a_norm_over_heads_is_three_kernels_and_one_over_the_hidden_size_five() -> None:
    ops = compiled("Qwen3-8B", workload__batch=2).block("layers").ops
    parts = {
        name: [o.name.removeprefix(name) for o in ops if o.name.startswith(name)] for name in ("q_norm", "next_norm")
    }
    assert parts == {
        "q_norm": [".cast+pow+mean", ".add_eps+rsqrt", ".mul+cast_back+mul_gamma"],
        "next_norm": [".cast", ".pow+mean", ".add_eps+rsqrt", ".mul+cast_back", ".mul_gamma"],
    }
    squares = next(o for o in ops if o.name == "q_norm.cast+pow+mean")
    assert [t.name for t in squares.outputs] == ["q_norm.x32", "q_norm.mean"]  # the product reads x32 again
    assert work_of(squares).vector_ops == 2 * 32 * 128 * (1 + 2 + 1)


def test_a_reduction_of_what_no_run_makes_is_a_kernel_of_its_own() -> None:
    ops = compiled("Qwen3-30B-A3B", optimizations__fusion__moe_routing=True, workload__batch=1).block("layers").ops
    named = {op.name: op_type_of(op) for op in ops if op.name.startswith("router")}
    # A profile of the model in a graph has 48 ReduceSumD and 48 RealDiv in as many layers.
    assert named["router.sum"] == "ReduceSumD"
    assert named["router.normalise+cast_weights"] == "RealDiv"


def test_a_joined_kernel_stretches_its_smaller_operand() -> None:
    ops = {o.name: o for o in compiled("Qwen3-8B", workload__batch=2).block("layers").ops}
    assert work_of(ops["next_norm.mul+cast_back"]).program == "broadcast"  # a root for each row
    assert work_of(ops["next_norm.mul_gamma"]).program == "broadcast_row"
    assert work_of(ops["silu+mul_up"]).program == "fused_elementwise"
    alone = {o.name: o for o in compiled("Qwen3-8B", workload__batch=1).block("layers").ops}
    assert work_of(alone["next_norm.mul+cast_back+mul_gamma"]).program == "fused_elementwise"  # one root is a scalar


def test_rows_of_heads_are_joined_through_a_value_that_others_read() -> None:
    def joined(columns: int) -> list[str]:
        x, y, z, r = (activation(name, (4, columns), "fp32") for name in "xyzr")
        ops = (
            Op("cast", "a", (activation("x16", (4, columns), "fp16"),), (x,)),
            Op("neg", "b", (x,), (y,)),
            Op("sort", "c", (x,), (z,)),
            Op("neg", "d", (y,), (r,)),
        )
        return [op.name for op in fuse_elementwise(reads(ops), ops)]

    assert joined(SHORT_ROW) == ["a+b", "c", "d"]
    assert joined(SHORT_ROW + 1) == ["a", "b", "c", "d"]
