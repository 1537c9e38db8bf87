"""A finalist of a plan in the serving simulation: a client that keeps its requests in flight, on the engine named."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scenarios.serving.traffic import load_of
from scenarios.traffic_settings import Traffic
from sim.engines.profile import DEFAULT, load_engine
from sim.serving.metrics import metrics_of
from sim.serving.simulate import prices_of, simulate
from sim.sweep.evaluate import Point

#: Rounds in which every request in flight is served once; the first of them, which come at once, are not counted.
ROUNDS, WARMUP = 4, 1


@dataclass(frozen=True, slots=True)
class Served:
    """What a client sees. requests: that were served and counted; engine: whose host costs they had."""

    requests: int
    tokens_per_card: float
    ttft_ms: float
    tpot_ms: float
    engine: str


def served(point: Point) -> Served:
    """Serve `point` as one replica with as many requests in flight as its batch has; the mean latencies."""
    scenario = point.case.scenario
    traffic = Traffic(
        arrival="closed", concurrency=point.batch, requests=ROUNDS * point.batch, warmup_requests=WARMUP * point.batch
    )
    workload = scenario.workload.model_copy(update={"traffic": traffic})
    case = point.case.with_scenario(scenario.model_copy(update={"workload": workload}))
    name = scenario.engine.profile or DEFAULT
    costs = load_engine(name).costs(case.model.cards)
    load = load_of(workload, scenario.protocol.seed)
    one = replace(case, model=replace(case.model, data_parallel=1))  # its prices are those of all replicas together
    outcome = simulate(one, costs, load, prices_of(point.case, costs))
    metrics = metrics_of(outcome, costs, None)
    return Served(
        requests=metrics.completed,
        tokens_per_card=metrics.output_throughput / point.choice.cards,
        ttft_ms=metrics.ttft_ms.mean,
        tpot_ms=metrics.tpot_ms.mean,
        engine=name,
    )
