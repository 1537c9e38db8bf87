"""Lesson: computing alongside communication moves a + b towards max(a, b), and what keeps it from getting there.

A prefill over tensor-parallel ranks: each row-parallel product and its all-reduce one after the other, cut into pieces
on two streams, or in one kernel; and what spoils it: too many pieces, few tokens, a host that waits after every op, two
streams that depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from app_pages.learn.cases import case
from scenarios.timeline import Timeline
from sim.predict.overlap import overlaps
from sim.predict.predict import Prediction, predict
from sim.predict.ratios import StepRatio, step_ratio
from sim.predict.steps import Case

CHUNKS = "optimizations.overlap.comm_chunks"
FUSED = "optimizations.fusion.matmul_all_reduce=true"


@dataclass(frozen=True, slots=True)
class Side:
    """One way to run products and their collectives in a step, ms. products a, collectives b: each side alone, summed
    over the places where both run; serial = a + b; ideal: the longer of the two, place by place; found: what the
    simulator predicts for the same places. All None where nothing overlaps."""

    name: str
    step_ms: float
    communication_ms: float
    not_overlapped_ms: float
    products_ms: float | None
    collectives_ms: float | None
    serial_ms: float | None
    ideal_ms: float | None
    found_ms: float | None


def prefill(model: str, hardware: str, ranks: int, tokens: int, *sets: str) -> Case:
    """A prefill of `tokens` tokens. Raises ScenarioError where it is refused."""
    return case(
        f"model={model}",
        f"hardware={hardware}",
        f"engine.tensor_parallel_size={ranks}",
        "workload.phase=prefill",
        f"workload.input_tokens={tokens}",
        "workload.output_tokens=1",
        f"engine.max_num_batched_tokens={tokens}",
        *sets,
    )


def chunked(model: str, hardware: str, ranks: int, tokens: int, pieces: int, *sets: str) -> Side:
    """Products and collectives in `pieces` pieces on two streams; one after the other for one piece."""
    return side(f"{pieces}", predict(prefill(model, hardware, ranks, tokens, f"{CHUNKS}={pieces}", *sets)))


@lru_cache(maxsize=128)
def gain(without: Case, with_it: Case) -> StepRatio:
    """The step without overlap over the step with it."""
    return step_ratio(without, with_it)


def two_streams(model: str, hardware: str, batch: int, streams: int) -> Case:
    """A decode step of one card whose keys and values are prepared alongside the query: two streams that both want
    HBM."""
    return case(
        f"model={model}",
        f"hardware={hardware}",
        f"workload.batch={batch}",
        "optimizations.graph=ge_graph",
        f"optimizations.overlap.streams={streams}",
        "optimizations.fusion.qkv=false",
    )


def side(name: str, prediction: Prediction) -> Side:
    """The step of `prediction`, and its overlaps summed."""
    step, overlapped = prediction.step, overlaps(prediction)
    sums: tuple[float | None, ...] = (None,) * 5
    if overlapped:
        sums = (
            sum(o.first_us for o in overlapped) / 1000,
            sum(o.second_us for o in overlapped) / 1000,
            sum(o.first_us + o.second_us for o in overlapped) / 1000,
            sum(o.ideal_us for o in overlapped) / 1000,
            sum(o.predicted_us for o in overlapped) / 1000,
        )
    return Side(
        name, step.total_ns / 1e6, step.communication_ns / 1e6, step.communication_not_overlapped_ns / 1e6, *sums
    )


def window(case: Case, layer: int = 2) -> Timeline:
    """The kernels and transfers of one layer of the step, and the waits in between, cut to it."""
    timeline = predict(case).timeline
    inside = [s for s in timeline.device_spans if s.layer == layer and s.index >= 0]
    start, end = min(s.start_ns for s in inside), max(s.end_ns for s in inside)
    shown = [
        replace(s, start_ns=max(s.start_ns, start), end_ns=min(s.end_ns, end), launched_by=-1)
        for s in timeline.spans
        if s.process not in ("Python", "CANN") and s.start_ns < end and s.end_ns > start
    ]
    return Timeline(tuple(shown), start, end, timeline.label, device=timeline.device)
