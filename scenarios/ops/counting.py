"""What the works of all kinds are counted from: bytes of operands, the elements of a flat shape, an op's attributes."""

from __future__ import annotations

from scenarios.ops.program import DTYPE_BITS, DType, Op, Tensor
from scenarios.ops.work import FlatShape


def split_reads(tensors: tuple[Tensor, ...]) -> tuple[int, int]:
    """(cold, warm) bytes of inputs read in full: weights, tables and caches are cold, activations warm."""
    cold = sum(t.bytes for t in tensors if t.role != "activation")
    return cold, sum(t.bytes for t in tensors if t.role == "activation")


def total_bytes(tensors: tuple[Tensor, ...]) -> int:
    """Bytes of all of them."""
    return sum(t.bytes for t in tensors)


def flat_shape(elements: int, cols: int, tensors: tuple[Tensor, ...]) -> FlatShape:
    """`elements` of rows of `cols`, computed in the widest of the tensors' types."""
    return FlatShape(elements, cols, max(computed_bytes(t.dtype) for t in tensors))


def computed_bytes(dtype: DType) -> int:
    """Bytes of an element while a vector core computes with it: BF16 is computed in FP32, booleans in FP16."""
    return {"bf16": 4, "bool": 2}.get(dtype, max(1, DTYPE_BITS[dtype] // 8))


def whole_number(op: Op, attr: str, default: int | None = None) -> int:
    """An attribute that is a whole number, such as heads or ranks."""
    value = op.attr(attr, default)
    assert isinstance(value, int)
    return value
