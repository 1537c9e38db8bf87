"""A finalist of a plan, or a split, in the serving simulation: a client that keeps its requests in flight."""

from __future__ import annotations

from dataclasses import replace

from scenarios.records import dataclass
from scenarios.schema import Scenario
from scenarios.serving.requests import Load
from scenarios.serving.traffic import load_of
from scenarios.traffic_settings import Traffic
from sim.engines.profile import DEFAULT, load_engine
from sim.predict.steps import Case
from sim.serving.metrics import ServingMetrics, metrics_of
from sim.serving.simulate import PrefillTier, prices_of, simulate
from sim.sweep.disaggregate import Split
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
    case = _with_clients(point.case, point.case.scenario, point.batch)
    name = case.scenario.engine.profile or DEFAULT
    costs = load_engine(name).costs(case.model.cards)
    one = replace(case, model=replace(case.model, data_parallel=1))  # its prices are those of all replicas together
    outcome = simulate(one, costs, _load(case), prices_of(point.case, costs))
    return _served(metrics_of(outcome, costs, None), point.choice.cards, name)


def served_apart(split: Split, cards: int) -> Served:
    """Serve `split` with as many requests in flight as its decode instances have room for; tokens/s of each of `cards`,
    whether an instance uses it or not."""
    clients = split.decode_instances * split.decode.batch
    case = _with_clients(split.decode.case, split.scenario(), clients)
    case = replace(case, model=replace(case.model, data_parallel=split.decode_instances))
    name = case.scenario.engine.profile or DEFAULT
    engine = load_engine(name)
    costs = engine.costs(case.model.cards)
    one = split.prefill.case
    first = one.scenario.engine.model_copy(update={"data_parallel_size": 1, "speculative_config": None})
    front = replace(
        one,
        scenario=one.scenario.model_copy(update={"engine": first}),
        model=replace(one.model, data_parallel=1),
    )
    front_costs = engine.costs(front.model.cards)
    tier = PrefillTier(front, prices_of(front, front_costs), front_costs)
    outcome = simulate(case, costs, _load(case), prices_of(case, costs), tier)
    return _served(metrics_of(outcome, costs, None), cards, name)


def _with_clients(case: Case, scenario: Scenario, clients: int) -> Case:
    """`case` with a client that keeps `clients` requests in flight."""
    traffic = Traffic(
        arrival="closed", concurrency=clients, requests=ROUNDS * clients, warmup_requests=WARMUP * clients
    )
    workload = scenario.workload.model_copy(update={"traffic": traffic})
    return case.with_scenario(scenario.model_copy(update={"workload": workload}))


def _load(case: Case) -> Load:
    return load_of(case.scenario.workload, case.scenario.protocol.seed)


def _served(metrics: ServingMetrics, cards: int, engine: str) -> Served:
    return Served(
        requests=metrics.completed,
        tokens_per_card=metrics.output_throughput / cards,
        ttft_ms=metrics.ttft_ms.mean,
        tpot_ms=metrics.tpot_ms.mean,
        engine=engine,
    )
