"""What a kernel that a profile does not have would take: priced on a hardware profile, or from the bytes it moves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from scenarios.records import dataclass
from scenarios.timeline import Span
from sim.accuracy.rows.op_types import work_of_row
from sim.accuracy.rows.row import Row, Shape, Unpriced, parse_dtypes, parse_shapes
from sim.compare.kernels import shapes_of
from sim.hardware.profile import HardwareProfile
from sim.kernel.price import price

#: A price is off by as much as those of the reference set are: nine of ten kernels within this share.
PRICE_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class Times:
    """A time in ns: what is expected, and the ends of what is possible."""

    ns: int
    low_ns: int
    high_ns: int


def dtypes_of(span: Span) -> str:
    """Data types of the inputs as the profiler prints them, or in our own names; empty where unknown."""
    return _spelt(next((str(value) for key, value in span.args if key == "Input Data Types"), ""))


@lru_cache(maxsize=4096)
def _spelt(text: str) -> str:
    names = {"bf16": "DT_BF16", "fp16": "FLOAT16", "fp32": "FLOAT", "int8": "INT8", "int32": "INT32", "int64": "INT64"}
    return ";".join(names.get(part.strip(), part) for part in text.split(";"))


def input_of(span: Span, index: int = 0) -> Shape:
    """The shape of an input, () where it is unknown."""
    shapes = _parsed(shapes_of(span))
    return shapes[index] if index < len(shapes) else ()


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Shape, ...]:
    try:
        return parse_shapes(text)
    except Unpriced:
        return ()


def priced_ns(hardware: HardwareProfile, op_type: str, shapes: Sequence[Shape], dtypes: str) -> int | None:
    """A kernel on `hardware`, ns; None where it cannot be priced."""
    return _priced_ns(hardware, op_type, ";".join(",".join(map(str, shape)) for shape in shapes), dtypes)


@lru_cache(maxsize=4096)
def _priced_ns(hardware: HardwareProfile, op_type: str, shapes: str, dtypes: str) -> int | None:
    try:
        return price(work_of_row(op_type, shapes, dtypes), hardware).duration_ns
    except (Unpriced, ValueError, KeyError, ZeroDivisionError):
        return None


def call_ns(hardware: HardwareProfile, form: Literal["aten", "matmul", "npu"]) -> int:
    """What the Python thread takes for one eager call, ns, with the launch on a thread of its own."""
    host = hardware.host
    dispatch_us = {"aten": host.aten_python_us, "matmul": host.matmul_python_us, "npu": host.fused_op_python_us}[form]
    return round(1000 * (dispatch_us + host.tiling_us + host.enqueue_us))


def moved_bytes(span: Span) -> int:
    """Bytes that a kernel reads and writes, the output taken as large as the largest input; 0 where unknown."""
    return _moved_bytes(shapes_of(span), dtypes_of(span))


@lru_cache(maxsize=4096)
def _moved_bytes(shapes_text: str, dtypes: str) -> int:
    shapes = _parsed(shapes_text)
    row = Row("", shapes, parse_dtypes(dtypes))
    each = [row.bytes(n) for n in range(len(shapes))]
    return sum(each) + max(each, default=0)


def fused_by_bytes(spans: Sequence[Span], fused_bytes: int) -> Times:
    """A fused kernel from its primitives: its bytes at the rate of the one that moves bytes fastest, but no less than
    the shortest of them, since a kernel does not start faster for being fused. Without shapes as long as the longest.

    Between the shortest of them and twice the longest (at most all of them together).
    """
    lengths = [span.duration_ns for span in spans]
    shortest, longest = min(lengths), max(lengths)
    high = max(longest, min(2 * longest, sum(lengths)))
    rates = [moved_bytes(span) / span.duration_ns for span in spans if span.duration_ns and moved_bytes(span)]
    if not rates or not fused_bytes:
        return Times(longest, shortest, high)
    expected = max(shortest, round(fused_bytes / max(rates)))
    return Times(min(expected, sum(lengths)), min(shortest, expected), max(high, expected))
