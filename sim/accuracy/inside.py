"""Kernels inside a measured step against those predicted for it: right totals may be sums of errors that cancel.

Stacks run the same part of a layer by different kernels (a norm as RmsNorm or as AddRmsNorm with a residual of zeros),
so kernels are compared by the part that they play, in total time. A part that the source did not time is left out, as
is what runs next to the kernels (prefetches, collectives).
"""

from __future__ import annotations

from collections.abc import Iterable

from scenarios.records import dataclass
from sim.accuracy.rows.files import StepKernels
from sim.step.plan import Launch

#: What a kernel is there for, by words that its profiler's name holds; the first that fits counts.
_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("fused QKV, norm and RoPE", ("qkv_rmsnorm_rope",)),
    ("cache writes", ("Scatter", "ReshapeAndCache", "KvRmsNormRopeCache", "ScatterPaKvCache")),
    ("attention", ("FlashAttention", "FusedInferAttention", "RINGMLA", "PagedAttention")),
    ("matrix products", ("MatMul", "Matmul", "GemmV3")),
    ("norms", ("RmsNorm", "LayerNorm")),
    ("RoPE", ("Rotary", "rope", "Rope")),
    ("activation", ("SwiGlu", "Swish", "Silu", "AutomaticBufferFusion")),
    ("expert routing", ("MoeInit", "MoeFinalize", "MoeGating", "MoeReRouting", "MoeToken")),
    ("sampling", ("ArgMax", "Sort", "TopK", "Softmax")),
)


@dataclass(frozen=True, slots=True)
class Part:
    """The kernels of a step that play one part: how many, and their total time, us."""

    name: str
    measured: int
    predicted: int
    measured_us: float
    predicted_us: float

    @property
    def error(self) -> float:
        return self.predicted_us / self.measured_us - 1


def part_of(op_type: str) -> str:
    """The part that a kernel plays, by its profiler's name; the name itself where none is known."""
    return next((part for part, words in _PARTS if any(word in op_type for word in words)), op_type)


def parts_inside(measured: Iterable[StepKernels], predicted: Iterable[Launch]) -> tuple[Part, ...]:
    """The parts that were measured, the longest first."""
    counts: dict[str, list[float]] = {}
    for item in measured:
        entry = counts.setdefault(part_of(item.op_type), [0, 0, 0.0, 0.0])
        entry[0] += item.count
        entry[2] += item.count * item.mean_us
    for launch in predicted:
        part = part_of(launch.op_type)
        if part in counts:
            counts[part][1] += 1
            counts[part][3] += launch.kernel.duration_ns / 1000
    parts = [Part(name, int(c[0]), int(c[1]), c[2], c[3]) for name, c in counts.items()]
    return tuple(sorted(parts, key=lambda part: -part.measured_us))


def weighted_error(parts: Iterable[Part]) -> float | None:
    """Absolute errors of the parts, weighted with their measured time; None where none was measured."""
    parts = tuple(parts)
    total = sum(part.measured_us for part in parts)
    return sum(abs(part.predicted_us - part.measured_us) for part in parts) / total if total else None
