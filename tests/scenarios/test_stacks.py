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
    from scenarios.ops.op_work import VARIANTS

    issued = {(kind, op_type) for kernels in KERNELS.values() for (kind, _), op_type in kernels.items()}
    assert issued == set(VARIANTS)
