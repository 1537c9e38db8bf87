"""A choice that was simulated: its step by the event simulation, or a client's requests by the serving simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scenarios.batches import decode_batch
from scenarios.records import dataclass
from sim.predict.predict import predict
from sim.predict.steps import sensitivity_of
from sim.predict.uncertainty import Sensitivity
from sim.sweep.evaluate import Point, Slo
from sim.sweep.serve import Served, served

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Finalist:
    """A choice decided on. point: by the recurrence; tokens_per_card, ttft_ms, tpot_ms: of the last simulation that it
    went through, decided_by it. meets: the SLO."""

    point: Point
    tokens_per_card: float
    ttft_ms: float
    tpot_ms: float
    decided_by: str
    meets: bool
    sensitivity: Sensitivity
    served: Served | None = None

    def score(self, slo: Slo, factor: float = 1.0) -> float:
        """Tokens/s a card, less where the SLO is missed: times limit / latency. factor: of all its times."""
        score = self.tokens_per_card / factor
        for limit, value in ((slo.ttft_ms, self.ttft_ms * factor), (slo.tpot_ms, self.tpot_ms * factor)):
            if limit is not None and value > limit:
                score *= limit / value
        return score


def by_events(point: Point, slo: Slo) -> Finalist:
    """The point decided on by the event simulation of its decode step."""
    decode_ms = predict(point.case).metrics["tpot_ms"].value
    tpot = decode_ms + point.batch * point.prefill_ms / point.output_tokens
    ttft = point.prefill_ms + decode_ms / 2
    exposed = sensitivity_of(point.case, decode_batch(point.case.scenario))
    return Finalist(
        point=point,
        tokens_per_card=point.batch * 1000 / tpot / point.choice.cards,
        ttft_ms=ttft,
        tpot_ms=tpot,
        decided_by="event simulation",
        meets=slo.met(ttft, tpot),
        sensitivity=exposed,
    )


def by_serving(finalist: Finalist, slo: Slo, say: Say) -> Finalist:
    """The finalist decided on by serving it to a client that keeps its requests in flight."""
    say(f"serving simulation: {finalist.point.choice.name}, {finalist.point.batch} requests")
    run = served(finalist.point)
    return replace(
        finalist,
        tokens_per_card=run.tokens_per_card,
        ttft_ms=run.ttft_ms,
        tpot_ms=run.tpot_ms,
        decided_by="serving simulation",
        meets=slo.met(run.ttft_ms, run.tpot_ms),
        served=run,
    )
