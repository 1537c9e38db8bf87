"""One measured kernel as msprof prints it: its op type, the shapes and types of its inputs."""

from __future__ import annotations

from math import prod

from scenarios.ops.program import DTYPE_BITS, DType
from scenarios.records import dataclass

Shape = tuple[int, ...]

_DTYPES: dict[str, DType] = {
    "FLOAT": "fp32", "FLOAT32": "fp32", "BF16": "bf16", "BFLOAT16": "bf16", "FLOAT16": "fp16", "INT8": "int8",
    "UINT8": "int8", "BOOL": "bool", "INT32": "int32", "UINT32": "int32", "INT64": "int64", "UINT64": "int64",
    "INT4": "int4",
}  # fmt: skip

#: Rows at least this long are logits, which samplers hold in FP32.
_LOGITS = 100_000


class Unpriced(ValueError):
    """A measured row that cannot be priced, and why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured kernel.

    shapes: one tuple a tensor, () for a scalar or an absent one. dtypes: None where not printed. kv_tokens: keys of
    each request, 0 where unknown. outputs: shapes of the results, empty where not printed.
    """

    op_type: str
    shapes: tuple[Shape, ...]
    dtypes: tuple[DType | None, ...]
    kv_tokens: int = 0
    outputs: tuple[Shape, ...] = ()

    def shape(self, index: int) -> Shape:
        """The shape of tensor `index`, () where it is absent."""
        return self.shapes[index] if index < len(self.shapes) else ()

    def elements(self, index: int) -> int:
        """Elements of tensor `index`; 1 for a scalar."""
        return prod(self.shape(index))

    def written(self, default: int) -> int:
        """Elements of all results; `default` where they are not printed."""
        return sum(prod(shape) for shape in self.outputs if shape) or default

    def dtype(self, index: int) -> DType:
        """The type of tensor `index`; where it is not printed: FP32 for logits, else BF16."""
        kind = self.dtypes[index] if index < len(self.dtypes) else None
        if kind is not None:
            return kind
        shape = self.shape(index)
        return "fp32" if shape and shape[-1] >= _LOGITS else "bf16"

    def size(self, index: int) -> int:
        """Bytes of one element of tensor `index`."""
        return max(1, DTYPE_BITS[self.dtype(index)] // 8)

    def bytes(self, index: int) -> int:
        """Bytes of tensor `index`, 0 where it is absent."""
        return self.elements(index) * self.size(index) if index < len(self.shapes) else 0


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """`1,7168;66,448,16,32;;2112` -> ((1, 7168), (66, 448, 16, 32), (), (2112,)).

    Raises Unpriced where it is no such list.
    """
    shapes: list[Shape] = []
    for part in text.replace('"', "").replace("(ND decoded)", "").split(";"):
        digits = part.strip().replace("x", ",")
        if digits in ("", "N/A"):
            shapes.append(())
            continue
        try:
            shapes.append(tuple(int(d) for d in digits.split(",") if d.strip()))
        except ValueError:
            raise Unpriced(f"shapes not readable: {text[:60]}") from None
    if any(d < 0 for shape in shapes for d in shape):
        raise Unpriced(f"negative dimension: {text[:60]}")
    return tuple(shapes)


def parse_dtypes(text: str) -> tuple[DType | None, ...]:
    """`DT_BF16;INT8;` -> ("bf16", "int8", None); whatever is not a known type is None."""
    return tuple(_DTYPES.get(part.strip().upper().removeprefix("DT_")) for part in text.split(";"))


def rows_of(shape: Shape) -> tuple[int, int]:
    """(rows, columns): the last dimension against all others; one row where there is only one dimension."""
    return (prod(shape[:-1]), shape[-1]) if shape else (1, 1)
