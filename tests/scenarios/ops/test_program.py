"""The intermediate form: tensors, ops, blocks that repeat, batches."""

from __future__ import annotations

import pytest

from scenarios.ops.program import Batch, Block, Group, Op, Program, Tensor

X = Tensor("x", (2, 8), "bf16")
W = Tensor("w", (4, 8), "bf16", "weight")
Y = Tensor("y", (2, 4), "bf16")
MATMUL = Op("matmul", "proj", (X, W), (Y,), (("alpha", 2),))
ADD = Op("add", "plus", (Y, Y), (Tensor("x", (2, 4), "bf16"),))


def test_bytes_of_a_tensor_are_whole() -> None:
    sizes = {"fp32": 24, "bf16": 12, "fp16": 12, "int8": 6, "int4": 3, "int32": 24, "int64": 48, "bool": 6}
    assert {dtype: Tensor("t", (2, 3), dtype).bytes for dtype in sizes} == sizes  # type: ignore[arg-type]
    assert Tensor("t", (3,), "int4").bytes == 2  # three halves of a byte
    assert Tensor("t", (), "fp32").bytes == 4
    assert Tensor("t", (2, 0), "fp32").elements == 0


def test_an_attribute_is_found_defaulted_or_missed_by_name() -> None:
    assert MATMUL.attr("alpha") == 2
    assert MATMUL.attr("beta", 7) == 7
    with pytest.raises(KeyError, match="matmul proj has no attribute beta"):
        MATMUL.attr("beta")


def test_the_signature_holds_what_a_kernel_depends_on_and_no_name() -> None:
    renamed = Op(
        "matmul",
        "other",
        (Tensor("a", (2, 8), "bf16"), Tensor("b", (4, 8), "bf16", "weight")),
        (Tensor("c", (2, 4), "bf16"),),
        (("alpha", 2),),
        op_type="MatMul",
        stream=3,
    )
    assert renamed.signature == MATMUL.signature
    different = [
        Op("batch_matmul", "proj", (X, W), (Y,), MATMUL.attrs),
        Op("matmul", "proj", (Tensor("x", (3, 8), "bf16"), W), (Y,), MATMUL.attrs),
        Op("matmul", "proj", (Tensor("x", (2, 8), "fp16"), W), (Y,), MATMUL.attrs),
        Op("matmul", "proj", (X, Tensor("w", (4, 8), "bf16", "weight", "nz")), (Y,), MATMUL.attrs),
        Op("matmul", "proj", (X, Tensor("w", (4, 8), "bf16")), (Y,), MATMUL.attrs),
        Op("matmul", "proj", (X, W), (Tensor("y", (2, 4), "fp32"),), MATMUL.attrs),
        Op("matmul", "proj", (X, W), (Y,)),
    ]
    assert MATMUL.signature not in [op.signature for op in different]


def test_a_program_repeats_its_blocks_and_counts_on() -> None:
    one = Group(1, 1, 0)
    program = Program((Block("embed", (MATMUL,)), Block("layers", (MATMUL, ADD), repeat=2)), Batch("decode", (one,)))
    assert len(program) == 5
    assert [(i.index, i.layer, i.block.name, i.op.name) for i in program] == [
        (0, 0, "embed", "proj"),
        (1, 0, "layers", "proj"),
        (2, 0, "layers", "plus"),
        (3, 1, "layers", "proj"),
        (4, 1, "layers", "plus"),
    ]
    assert program.block("layers").repeat == 2
    with pytest.raises(KeyError, match=r"no block 'head'; there are \['embed', 'layers'\]"):
        program.block("head")


def test_a_program_remembers_which_passes_made_it() -> None:
    program = Program((Block("layers", (MATMUL,)),), Batch("decode", (Group(1, 1, 0),)))
    silent = program.with_blocks(program.blocks)
    named = silent.with_blocks((Block("layers", (ADD,)),), "fusion.rope")
    assert (program.applied, silent.applied, named.applied) == ((), (), ("fusion.rope",))
    assert [op.kind for op in program.blocks[0].ops] == ["matmul"]  # the one it was made from is as it was


def test_a_batch_counts_new_tokens_and_requests() -> None:
    batch = Batch("mixed", (Group(7, 1, 100), Group(1, 50, 0)))
    assert (batch.tokens, batch.requests) == (57, 8)
    assert [group.kv_len for group in batch.groups] == [101, 50]
