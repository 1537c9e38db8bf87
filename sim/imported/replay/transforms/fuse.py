"""fuse: runs of primitive kernels become the one kernel that does them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from scenarios.timeline import Span
from sim.accuracy.rows.row import Row, Shape, parse_dtypes
from sim.hardware.profile import HardwareProfile
from sim.imported.replay.change import Change, op_types
from sim.imported.replay.graph import Graph
from sim.imported.replay.patterns import BY_NAME, PATTERNS, Pattern, runs
from sim.imported.replay.price import PRICE_SPREAD, Times, call_ns, dtypes_of, fused_by_bytes, input_of, priced_ns
from sim.imported.replay.transforms.base import Asked, Bound, Changed


def fuse(graph: Graph, asked: Asked, end: Bound) -> Changed:
    """Fuse one pattern, or all of them. The fused kernel stands where the last of the run stood, and the calls of the
    others are saved."""
    change = Change(graph)
    patterns = (BY_NAME[asked.subject],) if asked.subject else PATTERNS
    counts: dict[str, int] = {}
    priced = by_bytes = 0
    for pattern in patterns:
        for numbers in list(change.lanes().values()):
            for run in list(runs(pattern, op_types(change, numbers))):
                known = _fuse(change, pattern, numbers[run.start : run.stop], asked.hardware, end)
                priced, by_bytes = priced + known, by_bytes + (not known)
                counts[pattern.name] = counts.get(pattern.name, 0) + 1
    change.places = sum(counts.values())
    assumed = [
        f"{count:,} runs of {BY_NAME[name].title} become {BY_NAME[name].fused}" for name, count in counts.items()
    ]
    if priced:
        assert asked.hardware is not None
        assumed.append(f"{priced:,} of the fused kernels priced on {asked.hardware.name}, within {PRICE_SPREAD:.0%}")
    if by_bytes:
        assumed.append(
            f"{by_bytes:,} of the fused kernels by their bytes at the best rate of their primitives, as long as the "
            "shortest of them to twice the longest; name a hardware profile to price them"
        )
    if change.saved_calls:
        of_fused = (
            f"as on {asked.hardware.name}" if asked.hardware else "that of the last primitive, at worst twice that"
        )
        assumed.append(
            f"{change.saved_calls:,} calls of the host are saved, each with the host's work in front of it; that of a "
            f"fused kernel costs {of_fused}"
        )
    return Changed(change.finished(), change.places, tuple(assumed))


def _fuse(change: Change, pattern: Pattern, run: Sequence[int], hardware: HardwareProfile | None, end: Bound) -> bool:
    """Fuse one run; whether its kernel could be priced."""
    spans = [span for n in run if (span := change.tasks[n].span) is not None]
    inputs = _inputs(pattern, spans)
    types = _types(spans[0], len(inputs))
    length = priced_ns(hardware, pattern.fused, inputs, types) if hardware and inputs else None
    known = length is not None
    times = Times(length, round(length * (1 - PRICE_SPREAD)), round(length * (1 + PRICE_SPREAD))) if length else None
    times = times or fused_by_bytes(spans, _bytes(inputs, types))
    ns = {"value": times.ns, "better": times.low_ns, "worse": times.high_ns}[end]
    last = run[-1]
    change.remove(run[:-1])
    _call_costs(change, last, hardware, end)
    shapes = (("Input Shapes", ";".join(",".join(map(str, s)) for s in inputs)),) if inputs else ()
    kept = tuple((key, value) for key, value in spans[-1].args if key in ("Task Type", "Output Shapes"))
    fused = replace(
        spans[-1], name=f"fused {pattern.name}", op_type=pattern.fused, kind=pattern.name, args=(*shapes, *kept)
    )
    change.tasks[last] = change.tasks[last]._replace(duration_ns=ns, span=fused)
    return known


def _call_costs(change: Change, number: int, hardware: HardwareProfile | None, end: Bound) -> None:
    """The call of a fused kernel: torch_npu's own calls cost more than ATen's by what the hardware profile says;
    without one as much as the call that is kept, at worst twice that."""
    call = change.root(number)
    if call is None or change.tasks[call].removed or len(change.launched(call)) != 1:
        return
    ns = change.tasks[call].duration_ns
    if hardware is not None:
        ns += max(0, call_ns(hardware, "npu") - call_ns(hardware, "aten"))
    elif end == "worse":
        ns *= 2
    change.call_lasts(call, ns)


def _inputs(pattern: Pattern, spans: Sequence[Span]) -> list[Shape]:
    """The shapes of the fused kernel's inputs, from those of its primitives; [] where they are unknown."""
    first = input_of(spans[0])
    if not first:
        return []
    if pattern.name == "add_rms_norm":
        return [first, first, first[-1:]]
    if pattern.name == "rms_norm":
        return [first, first[-1:]]
    if pattern.name == "swiglu":
        return [(*first[:-1], 2 * first[-1])]
    largest = [
        max((input_of(span) for span in half), key=prod, default=())
        for half in (spans[: len(spans) // 2], spans[len(spans) // 2 :])
    ]
    return [*largest, first[:1] + first[-1:], first[:1] + first[-1:]]


def _types(span: Span, count: int) -> str:
    """The data type of the run's first kernel for all inputs."""
    first = dtypes_of(span).split(";")[0]
    return ";".join([first] * count) if first else ""


def _bytes(inputs: Sequence[Shape], types: str) -> int:
    """Inputs read once, and as much as the largest of them written."""
    row = Row("", tuple(inputs), parse_dtypes(types))
    each = [row.bytes(n) for n in range(len(inputs))]
    return sum(each) + max(each, default=0)
