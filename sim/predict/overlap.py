"""What running side by side gains: one after the other, at best, and as predicted.

At best the longer of two things hides the shorter: max(a, b), each at its time alone. What the prediction takes beyond
that is lost to the start-up of pieces, to waiting for one another, and to sharing HBM, cores and links. Waiting for
other ranks would be there anyway and is left out of all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from scenarios.ops.catalogue import kind_of, work_of
from scenarios.ops.program import Batch, Block, Op
from scenarios.ops.work import MatmulCollectiveShape
from scenarios.passes import branches, collectives, micro_batches, prefetch
from scenarios.passes.base import Pass, set_switch
from scenarios.records import dataclass
from scenarios.timeline import Span, intersect_ns, length_ns, union_ns
from sim.kernel.matmul_all_reduce import cut, product_of
from sim.kernel.price import params_of, price
from sim.predict.predict import Prediction
from sim.predict.steps import in_flight, program_of
from sim.step.priced import codes_of


@dataclass(frozen=True, slots=True)
class Overlap:
    """One overlap of the reported step, summed over all places where it happens; us.

    first_us, second_us: the two sides alone. ideal_us: the greater of the two, place by place. predicted_us: from the
    start of the first to the end of the last, without waiting for other ranks. lost_us: predicted minus ideal.
    """

    switch: str
    title: str
    places: int
    first: str
    first_us: float
    second: str
    second_us: float
    ideal_us: float
    predicted_us: float

    @property
    def lost_us(self) -> float:
        return self.predicted_us - self.ideal_us


@dataclass(frozen=True, slots=True)
class _Layers:
    """Layers of the step that are alike: their block, the number of its first op, and the batch that they run (the
    step's, or one micro-batch of a pipeline)."""

    block: Block
    at: int
    batch: Batch

    def __contains__(self, index: int) -> bool:
        return self.at <= index < self.at + len(self.block.ops) * self.block.repeat

    def layer_of(self, index: int) -> int:
        """Which of the layers op `index` of the step belongs to."""
        return (index - self.at) // len(self.block.ops)


@dataclass(frozen=True, slots=True)
class _Place:
    """Ops of a layer that overlap, by name, and the time alone of each side, ns."""

    names: frozenset[str]
    first_ns: float
    second_ns: float


#: Finds the places of one overlap in each of some layers.
_Places = Callable[[Prediction, Pass, _Layers], Iterator[_Place]]


def overlaps(prediction: Prediction) -> tuple[Overlap, ...]:
    """Each overlap that is on and takes place in the reported step."""
    pairs = []
    layers = _layers(prediction)
    kinds: tuple[tuple[Pass, str, str, _Places], ...] = (
        (prefetch.PREFETCH, "kernels beside", "prefetch", _fetches),
        (collectives.MATMUL_ALL_REDUCE, "matmul", "all-reduce", _fused),
        (collectives.COMM_CHUNKS, "matmul", "collective", _chunks),
        (branches.SHARED_EXPERT, "routed experts", "shared expert", _shared_expert),
        (branches.STREAMS, "query", "keys and values", _keys),
        (micro_batches.MICRO_BATCHES, "computing of all parts", "their collectives or experts", _parts),
    )
    for item, first, second, places_of in kinds:
        if item.is_on(prediction.case.scenario):
            places = [(some, list(places_of(prediction, item, some))) for some in layers]
            if any(inside for _, inside in places):
                pairs.append(_summed(prediction, item, (first, second), places))
    return tuple(pairs)


def _layers(prediction: Prediction) -> list[_Layers]:
    """The layers of the step, dense ones first where there are both; of a pipeline, those of rank 0's stage for each
    micro-batch in flight."""
    batches = in_flight(prediction.case, prediction.batch)
    blocks = prediction.program.blocks
    layers: list[_Layers] = []
    at = 0
    for number, block in enumerate(blocks):
        if block.is_layer:
            layers.append(_Layers(block, at, batches[number * len(batches) // len(blocks)]))
        at += len(block.ops) * block.repeat
    return layers


def _summed(
    prediction: Prediction, item: Pass, sides: tuple[str, str], places: list[tuple[_Layers, list[_Place]]]
) -> Overlap:
    alone = [(layers.block.repeat, place.first_ns, place.second_ns) for layers, inside in places for place in inside]
    return Overlap(
        switch=item.switch,
        title=item.title,
        places=sum(count for count, _, _ in alone),
        first=sides[0],
        first_us=sum(count * a for count, a, _ in alone) / 1000,
        second=sides[1],
        second_us=sum(count * b for count, _, b in alone) / 1000,
        ideal_us=sum(count * max(a, b) for count, a, b in alone) / 1000,
        predicted_us=_predicted_ns(prediction, places) / 1000,
    )


def _predicted_ns(prediction: Prediction, places: list[tuple[_Layers, list[_Place]]]) -> int:
    """From first start to last end of each place in each layer, without the time in which the rank only waits."""
    spans: dict[tuple[int, int, int], list[Span]] = {}
    shown = [s for s in prediction.timeline.spans if s.process in ("Ascend Hardware", "Communication")]
    for some, (layers, inside) in enumerate(places):
        place_of = {name: i for i, place in enumerate(inside) for name in place.names}
        for span in shown:
            if span.index in layers and span.name in place_of:
                spans.setdefault((some, place_of[span.name], layers.layer_of(span.index)), []).append(span)
    busy = union_ns((s.start_ns, s.end_ns) for s in prediction.timeline.device_spans)
    waits = union_ns((s.start_ns, s.end_ns) for s in prediction.timeline.spans if s.is_wait)
    total = through = 0
    windows = ((min(s.start_ns for s in members), max(s.end_ns for s in members)) for members in spans.values())
    for start, end in sorted(windows):
        window = [(max(start, through), max(end, through))]  # a layer may start before the one before it has ended
        through = window[0][1]
        waiting = union_ns(_common(window, waits))
        total += length_ns(window) - length_ns(waiting) + intersect_ns(waiting, busy)
    return total


def _common(window: list[tuple[int, int]], waits: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    ((start, end),) = window
    return ((max(start, a), min(end, b)) for a, b in waits if a < end and b > start)


def _alone_ns(prediction: Prediction, op: Op) -> int:
    program, hw = prediction.program, prediction.case.hardware
    codes = (codes_of(block, program, hw)[block.ops.index(op)] for block in program.blocks if op in block.ops)
    return price(work_of(op), hw, next(codes, "cold")).duration_ns


def _fused(prediction: Prediction, _: Pass, layers: _Layers) -> Iterator[_Place]:
    """Product and all-reduce of each fused kernel, uncut, moved by the same engine."""
    hw = prediction.case.hardware
    for op in layers.block.ops:
        work = work_of(op)
        if isinstance(work.shape, MatmulCollectiveShape):
            product = product_of(work, work.shape)
            whole = cut(product, work.shape, hw, params_of(product, hw), (work.shape.matmul.m,))
            yield _Place(frozenset({op.name}), whole.product_ns, whole.reduction_ns)


def _chunks(prediction: Prediction, item: Pass, layers: _Layers) -> Iterator[_Place]:
    """Product and collective of each pair as they are without the switch."""
    case = prediction.case
    scenario = set_switch(case.scenario, item.switch, item.off[0])
    whole = program_of(scenario, case.model, layers.batch).block(layers.block.name).ops
    pieces = [op for op in layers.block.ops if op.piece >= 0]
    for product, reduction in pairwise(whole):
        stems = product.name, reduction.name
        names = frozenset(op.name for op in pieces if op.whole in stems)
        if kind_of(product).dense and names:
            yield _Place(names, _alone_ns(prediction, product), _alone_ns(prediction, reduction))


def _fetches(prediction: Prediction, _: Pass, layers: _Layers) -> Iterator[_Place]:
    """The fetches of a layer, and the kernels of the main stream between them and the last product that waits."""
    ops = layers.block.ops
    fetches = [i for i, op in enumerate(ops) if kind_of(op).unit == "copy"]
    waiting = [i for i, op in enumerate(ops) if any(wait.startswith("prefetched ") for wait in op.waits)]
    if fetches and waiting:
        others = [op for op in ops[fetches[0] : waiting[-1]] if op.stream == 0]
        fetched = [ops[i] for i in fetches]
        times = [sum(_alone_ns(prediction, op) for op in side) for side in (others, fetched)]
        yield _Place(frozenset(op.name for op in (*others, *fetched)), *times)


def _shared_expert(prediction: Prediction, _: Pass, layers: _Layers) -> Iterator[_Place]:
    return _branch(prediction, layers, branches.SHARED_EXPERT_STREAM)


def _keys(prediction: Prediction, _: Pass, layers: _Layers) -> Iterator[_Place]:
    return _branch(prediction, layers, branches.KEYS_STREAM)


def _branch(prediction: Prediction, layers: _Layers, stream: int) -> Iterator[_Place]:
    """What is on `stream`, and what the other streams run until an op waits for it."""
    ops = layers.block.ops
    apart = [i for i, op in enumerate(ops) if op.stream == stream]
    if not apart:
        return
    joins = next((i for i, op in enumerate(ops) if set(ops[apart[-1]].records) & set(op.waits)), len(ops))
    sides = [op for op in ops[apart[0] : joins] if op.stream != stream], [ops[i] for i in apart]
    times = [sum(_alone_ns(prediction, op) for op in side) for side in sides]
    yield _Place(frozenset(op.name for side in sides for op in side), *times)


def _parts(prediction: Prediction, _: Pass, layers: _Layers) -> Iterator[_Place]:
    """What all parts of the batch compute, and what they communicate; where layers are cut before their routers,
    attention and experts."""
    ops = layers.block.ops
    sides = (
        [op for op in ops if op.stream != micro_batches.STREAM],
        [o for o in ops if o.stream == micro_batches.STREAM],
    )
    if sides[1]:
        times = [sum(_alone_ns(prediction, op) for op in side) for side in sides]
        yield _Place(frozenset(op.name for op in ops), *times)
