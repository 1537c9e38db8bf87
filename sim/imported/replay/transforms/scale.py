"""scale, quantise: kernels of a family become shorter or longer, by a factor or as priced."""

from __future__ import annotations

from math import prod

from scenarios.timeline import Span
from sim.accuracy.rows.row import Shape
from sim.compare.classes import MATMUL, family_of, op_type_of, operation_of
from sim.hardware.profile import HardwareProfile
from sim.imported.replay.change import Change
from sim.imported.replay.graph import Graph
from sim.imported.replay.price import PRICE_SPREAD, call_ns, input_of, priced_ns
from sim.imported.replay.transforms.base import Asked, Bound, Changed, bound_of

#: A product with so many columns makes logits; it is not quantised.
_VOCABULARY = 30_000
#: Weights of half the bytes: a product that only reads weights takes half; one that computes, less of a gain.
QUANTISED, QUANTISED_BETTER, QUANTISED_WORSE = 0.6, 0.5, 0.9


def scale(graph: Graph, asked: Asked, end: Bound) -> Changed:
    """Multiply the length of all kernels of a family (or of one op type) by `factor`."""
    factor = asked.number("factor", 0.5)
    change = Change(graph)
    for number, task in change.kernels():
        assert task.span is not None
        if of_subject(task.span, asked.subject):
            change.set_duration(number, round(task.duration_ns * factor))
            change.places += 1
    assumed = (f"{change.places:,} kernels of {asked.subject or 'all families'} take {factor:g} times as long, alike",)
    return Changed(change.finished(), change.places, assumed)


def quantise(graph: Graph, asked: Asked, end: Bound) -> Changed:
    """INT8 products (w8a8): each product times the ratio of its two prices on the hardware named, else by `factor`;
    and the quantisation of its input, shared by products in a row that read the same shape."""
    change = Change(graph)
    priced = calls = 0
    factor = asked.options.get("factor") or bound_of(end, QUANTISED, QUANTISED_BETTER, QUANTISED_WORSE)
    read: dict[tuple[int, str], Shape] = {}  # what the product before read, where nothing came between
    for number, task in list(change.kernels()):
        assert task.span is not None
        lane, reads = (task.rank, task.lane), input_of(task.span)
        if not _quantisable(task.span):
            read.pop(lane, None)
            continue
        quantises = not reads or read.get(lane) != reads
        read[lane] = reads
        ratio, quantisation_ns = _priced(asked.hardware, task.span) if asked.hardware else (0.0, 0)
        if ratio:
            ratio *= bound_of(end, 1.0, 1 - PRICE_SPREAD, 1 + PRICE_SPREAD)
            change.set_duration(number, round(task.duration_ns * ratio) + (quantisation_ns if quantises else 0))
            priced += 1
        else:
            change.set_duration(number, round(task.duration_ns * factor))
        calls += _calls(change, number, asked.hardware, quantises)
        change.places += 1
    return Changed(change.finished(), change.places, tuple(_assumed(change.places, priced, calls, factor, asked)))


def _assumed(scaled: int, priced: int, calls: int, factor: float, asked: Asked) -> list[str]:
    assumed = []
    if priced and asked.hardware is not None:
        assumed.append(
            f"{priced:,} products times the ratio of their INT8 and 16-bit prices on {asked.hardware.name} (within "
            f"{PRICE_SPREAD:.0%}), a dynamic quantisation in front, shared by products in a row that read one shape"
        )
    if scaled > priced:
        assumed.append(
            f"{scaled - priced:,} products take {factor:g} times as long (a half where only weights are read), "
            "quantising of inputs included; name a hardware profile to price them"
        )
    if calls:
        whose = f"as on {asked.hardware.name}" if asked.hardware else "as long as the product's own"
        assumed.append(f"{calls:,} calls more on the host, one for each quantisation, {whose}")
    assumed.append("the product with the vocabulary stays as it is")
    return assumed


def _quantisable(span: Span) -> bool:
    """A product in 16 bits, but not the one that makes logits."""
    name = op_type_of(span).lower()
    if family_of(span) != MATMUL or "quant" in name or not ("matmul" in name or "gemm" in name):
        return False
    return max(input_of(span, 1), default=0) < _VOCABULARY


def _calls(change: Change, number: int, hardware: HardwareProfile | None, quantises: bool) -> int:
    """Lengthen the call of a product by that of the quantisation in front of it; how many calls that makes."""
    call = change.root(number)
    if call is None or change.tasks[call].removed or len(change.launched(call)) != 1:
        return 0  # no call known, or one that launches many: a graph
    ns = change.tasks[call].duration_ns
    if hardware is not None:
        more = max(0, call_ns(hardware, "npu") - call_ns(hardware, "matmul")) + quantises * call_ns(hardware, "npu")
    else:
        more = quantises * (ns + sum(e.lag_ns for e in change.tasks[call].after if e.why == "thread"))
    change.call_lasts(call, ns + more)
    return int(quantises)


def of_subject(span: Span, subject: str) -> bool:
    """Whether a kernel is of the family or of the op type named (of a collective, what it does); all are where none is
    named."""
    op_type = op_type_of(span)
    return subject in ("", family_of(span)) or subject.lower() in (op_type.lower(), operation_of(op_type))


def _priced(hardware: HardwareProfile, span: Span) -> tuple[float, int]:
    """(INT8 over 16-bit time, ns of the quantisation in front); (0, 0) where a price is missing."""
    x, w = input_of(span, 0), input_of(span, 1)
    if len(w) != 2 or not x:
        return 0.0, 0
    rows = prod(x[:-1])
    as_is = priced_ns(hardware, op_type_of(span), [x, w], "DT_BF16;DT_BF16")
    int8 = priced_ns(hardware, "QuantBatchMatmulV3", [(rows, x[-1]), w], "INT8;INT8")
    quantisation = priced_ns(hardware, "DynamicQuant", [(rows, x[-1])], "DT_BF16")
    if not as_is or not int8 or not quantisation:
        return 0.0, 0
    return int8 / as_is, quantisation
