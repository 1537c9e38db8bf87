"""Which stack issues the kernels of a step, and what it issues in place of others."""

from __future__ import annotations

from collections import Counter

import pytest

from scenarios.batches import decode_batch
from scenarios.build import build
from scenarios.lowering.stacks import KERNELS, stack_of
from scenarios.models.hf_config import load_model
from scenarios.ops.catalogue import CATALOGUE, work_of
from scenarios.ops.program import Op, Tensor
from scenarios.ops.work import RowsShape
from tests.scenarios.making import scenario

STATIC = {"optimizations__graph": "ge_graph", "optimizations__kv__layout": "contiguous"}


def norms(**settings: object) -> Counter[str]:
    """Op types of the norms of one layer of Qwen3-0.6B."""
    of = scenario(model="Qwen3-0.6B", **settings)
    program = build(of, load_model("Qwen3-0.6B"), decode_batch(of))
    layer = next(block for block in program.blocks if block.name == "layers")
    return Counter(op.op_type or CATALOGUE[op.kind].op_type for op in layer.ops if "norm" in op.kind)


@pytest.mark.parametrize(
    ("stack", "graph", "layout", "expected"),
    [
        ("auto", "eager", "contiguous", "torch"),
        ("auto", "aclgraph", "paged", "vllm_ascend"),
        ("auto", "ge_graph", "contiguous", "torchair"),
        ("auto", "ge_graph", "paged", "torch"),  # the seed's profile: RmsNorm on heads, 73 in 36 layers
        ("torchair", "ge_graph", "paged", "torchair"),
        ("torch", "ge_graph", "contiguous", "torch"),
    ],
)
def test_a_stack_is_named_or_follows_the_graph(stack: str, graph: str, layout: str, expected: str) -> None:
    assert stack_of(stack, graph, layout) == expected  # type: ignore[arg-type]


def test_torchair_norms_q_and_k_by_add_rms_norm() -> None:
    # Measured at Qwen3-0.6B: 113 InplaceAddRmsNorm in 28 layers, four a layer, and no RmsNorm in a layer.
    assert norms(**STATIC) == {"InplaceAddRmsNorm": 4}
    assert norms(**STATIC, engine__stack="torch") == {"InplaceAddRmsNorm": 2, "RmsNorm": 2}
    assert norms(optimizations__graph="eager", engine__stack="torchair") == norms(optimizations__graph="eager")


def test_without_the_fused_norm_there_is_nothing_to_norm_through() -> None:
    plain = norms(**STATIC, optimizations__fusion__add_rms_norm=False)
    assert plain == {"RmsNorm": 4}


def test_a_norm_through_add_reads_zeros_and_writes_their_sum() -> None:
    x, gamma = Tensor("x", (16, 128), "fp16"), Tensor("g", (128,), "fp16", "weight")
    norm = Op("rms_norm", "q_norm", (x, gamma), (Tensor("y", (16, 128), "fp16"),))
    plain, through = (
        work_of(norm),
        work_of(Op(norm.kind, norm.name, norm.inputs, norm.outputs, op_type="InplaceAddRmsNorm")),
    )
    assert (plain.program, through.program) == ("rms_norm", "add_rms_norm")
    assert through.shape == plain.shape == RowsShape(16, 128)
    assert through.warm_read_bytes - plain.warm_read_bytes == through.write_bytes - plain.write_bytes == 4096


def test_every_kernel_of_a_stack_has_a_work_of_its_own() -> None:
    from scenarios.ops.catalogue import VARIANTS

    issued = {("rms_norm", op_type) for kernels in KERNELS.values() for _, op_type in kernels.norms}
    assert issued | {("kv_cache_write", "Scatter")} == set(VARIANTS)


def layer(model: str = "Qwen3-0.6B", **settings: object) -> tuple[Op, ...]:
    of = scenario(model=model, **settings)
    return next(b for b in build(of, load_model(model), decode_batch(of)).blocks if b.name == "layers").ops


def types(ops: tuple[Op, ...]) -> list[str]:
    return [op.op_type or CATALOGUE[op.kind].op_type for op in ops]


def test_torchair_cuts_a_packed_product_by_one_kernel() -> None:
    # Profile of Qwen3-30B-A3B on two 910B2: SplitVD of 2560 to 2048, 256, 256 and of 768 to 384, 384 in each layer.
    apart = {"optimizations__fusion__swiglu": False}
    for batch in (1, 16):
        splits = [op for op in layer(**STATIC, **apart, workload__batch=batch) if op.kind == "split"]
        widths = [(op.inputs[0].shape[-1], [t.shape[-1] for t in op.outputs]) for op in splits]
        assert widths == [(4096, [2048, 1024, 1024]), (6144, [3072, 3072])]
        assert not [op for op in layer(**STATIC, **apart, workload__batch=batch) if op.kind == "slice"]
    # The seed's graph over a paged cache: three views of one row, and two StridedSliceD for gate and up.
    paged = types(layer(optimizations__graph="ge_graph", **apart))
    assert (paged.count("SplitVD"), paged.count("StridedSliceD")) == (0, 2)


def test_vllm_ascend_norms_and_turns_by_one_triton_kernel() -> None:
    # Profile of Qwen3-32B on 16 A3 dies: 63 of them in a forward of 64 layers; only the first layer norms by itself.
    for batch in (1, 16):
        ops = layer(optimizations__graph="aclgraph", workload__batch=batch)
        assert types(ops)[:3] == ["MatMulV2", "split_qkv_rmsnorm_rope_kernel", "ReshapeAndCache"]
        kernel = ops[1]
        assert [t.shape for t in kernel.outputs] == [(batch, 16, 128), (batch, 8, 128), (batch, 1024)]
        assert work_of(kernel).shape == RowsShape(batch, 4096)
        assert [part.kind for part in kernel.parts][-3:] == ["rms_norm", "rms_norm", "rope"]
    # One of the three not fused, or another stack: apart.
    for other in ({"optimizations__fusion__rope": False}, {"engine__stack": "torch"}):
        assert "split_qkv_rmsnorm_rope_kernel" not in types(layer(optimizations__graph="aclgraph", **other))


def test_a_static_cache_is_read_by_the_kernel_that_takes_a_mask() -> None:
    static = next(op for op in layer(**STATIC, engine__max_model_len=4096) if op.kind == "attention")
    assert (static.op_type, static.attr("static_tokens")) == ("IncreFlashAttention", 4096)
    paged = next(op for op in layer(optimizations__graph="ge_graph") if op.kind == "attention")
    assert (paged.op_type, paged.attr("static_tokens", 0)) == ("", 0)


def test_a_static_cache_is_prefetched_with_the_weights_of_torchair() -> None:
    def ahead(**settings: object) -> bool:
        ops = layer(**STATIC, **settings)
        return work_of(next(op for op in ops if op.kind == "attention")).shape.cache_prefetched  # type: ignore[union-attr]

    assert ahead(optimizations__overlap__prefetch=True)
    assert not ahead()
    assert not ahead(optimizations__overlap__prefetch=True, engine__stack="torch")
