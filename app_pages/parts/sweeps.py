"""What the sweep page asks of the model, remembered point by point: `sim.sweep` predicts each, as the command does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

from app_pages.parts import answers
from app_pages.parts.answers import Remembered
from app_pages.parts.state import Question
from scenarios.errors import ScenarioError
from sim.sweep.point import Result, result_of
from sim.sweep.space import Point

Axis = Literal["batch", "context", "cards"]
SCENARIO = "qwen3_8b_decode"
FIELDS: dict[Axis, tuple[str, ...]] = {
    "batch": ("workload.batch",),
    "context": ("workload.input_tokens", "workload.context_tokens"),
    "cards": ("engine.tensor_parallel_size",),
}
VALUES: dict[Axis, tuple[int, ...]] = {
    "batch": (1, 4, 16, 32, 64, 128, 256),
    "context": (512, 2048, 8192, 32768),
    "cards": (1, 2, 4, 8),
}
#: The largest value of each axis that can be typed.
LARGEST: dict[Axis, int] = {"batch": 4096, "context": 1_000_000, "cards": 64}
OUTPUT_TOKENS = 256

_POINTS: Remembered[Result] = Remembered(4000)


@dataclass(frozen=True, slots=True)
class Spot:
    """One predicted point: its place on the axes, the question that opens it in the Lab, and what it comes to. why: why
    it cannot run, "" where it can."""

    batch: int
    context: int
    cards: int
    question: Question
    metrics: Mapping[str, float | int | str]
    why: str

    @property
    def tpot_ms(self) -> float:
        return float(self.metrics["tpot_ms"])

    @property
    def per_card(self) -> float:
        """Output tokens/s of one card."""
        return float(self.metrics["output_throughput"]) / int(self.metrics["cards"])


def grid(
    fixed: Mapping[str, str], axes: Mapping[Axis, tuple[int, ...]], progress: Callable[[float], None]
) -> list[Spot]:
    """Every combination of `axes` (batch, context, cards; each with its values) over the settings `fixed`. progress:
    told the share that is done; what it raises stops the sweep."""
    places = list(product(axes["batch"], axes["context"], axes["cards"]))
    spots = []
    for done, (batch, context, cards) in enumerate(places):
        progress(done / len(places))
        spots.append(_spot(fixed, batch=batch, context=context, cards=cards))
    return spots


def _spot(fixed: Mapping[str, str], batch: int, context: int, cards: int) -> Spot:
    values = {**fixed, "workload.output_tokens": str(OUTPUT_TOKENS)}
    places: tuple[tuple[Axis, int], ...] = (("batch", batch), ("context", context), ("cards", cards))
    for axis, value in places:
        values |= dict.fromkeys(FIELDS[axis], str(value))
    question = Question(SCENARIO, tuple(sorted(values.items())))
    try:
        key = answers.key_of(answers.loaded(question))
    except ScenarioError as error:
        return Spot(batch, context, cards, question, {}, error.messages[0])
    point = Point(0, {}, question.pairs)
    _, status, reason, metrics = _POINTS.get(key, lambda: result_of(SCENARIO, point))
    return Spot(batch, context, cards, question, metrics, "" if status == "done" else reason)


def front(spots: list[Spot]) -> list[Spot]:
    """The points that no other beats in both TPOT and throughput per card, the fastest first."""
    ordered = sorted((s for s in spots if not s.why), key=lambda s: (s.tpot_ms, -s.per_card))
    kept: list[Spot] = []
    for spot in ordered:
        if not kept or spot.per_card > kept[-1].per_card:
            kept.append(spot)
    return kept
