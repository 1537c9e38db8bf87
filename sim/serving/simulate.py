"""A scenario's requests in time: its engine limits and its KV cache, then `serve` for each data-parallel replica."""

from __future__ import annotations

from dataclasses import replace

from scenarios.fleet_settings import DisaggregatedPrefill
from scenarios.records import dataclass
from scenarios.serving.deployment import cache_of, drafts_of, limits_of, longest_tokens, pool_of
from scenarios.serving.requests import Load
from scenarios.serving.scheduler import Scheduler
from sim.engines.costs import EngineCosts
from sim.predict.memory import KvCapacity, memory_of
from sim.predict.steps import Case
from sim.serving.fleet import Fleet, Instance, Transfer
from sim.serving.loop import PooledKv
from sim.serving.outcome import ServingOutcome, merged
from sim.serving.player import issuing, player
from sim.serving.prices import TICKS_PER_NS, GridPrices, StepPrices
from sim.serving.serve import serve


@dataclass(frozen=True, slots=True)
class PrefillTier:
    """Instances that prefill for `case`'s decode instances: what one of them is, its step prices, its engine."""

    case: Case
    prices: StepPrices
    engine: EngineCosts

    def scaled(self, factor: float, engine: EngineCosts) -> PrefillTier:
        """With steps `factor` as long, on another engine."""
        prices = self.prices.scaled(factor) if isinstance(self.prices, GridPrices) else self.prices
        return PrefillTier(self.case, prices, engine)


def simulate(
    case: Case,
    engine: EngineCosts,
    load: Load,
    prices: StepPrices | None = None,
    prefill: PrefillTier | None = None,
) -> ServingOutcome:
    """Serve `load` as `case` says; all times from its first arrival on.

    prices: of the device's steps; by default those of `prices_of(case)`, which may be given to share what was played.
    Replicas get the requests in turn (of conversations, all turns of one), and a client's concurrency in equal parts;
    or a router sends them. prefill: instances that prefill in place of `case`'s.
    Raises ValueError where the KV cache has no room at all.
    """
    scenario = case.scenario
    prices = prices or prices_of(case, engine)
    longest = scenario.engine.max_model_len or longest_tokens(load)
    router = scenario.engine.router or "round_robin"
    if prefill is not None or (router != "round_robin" and case.model.data_parallel > 1):
        most = min(longest, scenario.engine.positions(case.model.max_position, longest))
        replicas = [_instance(case, prices, engine, longest, n) for n in range(case.model.data_parallel)]
        if prefill is None:
            return Fleet(load, replicas, router, most).run()
        config = scenario.engine.disaggregated_prefill or DisaggregatedPrefill()
        front = [_instance(prefill.case, prefill.prices, prefill.engine, longest, n) for n in range(config.instances)]
        return Fleet(load, replicas, router, most, front, transfer_of(prefill.case, case)).run()
    capacity = serving_capacity(case)
    outcomes = [
        serve(
            part,
            limits_of(scenario),
            cache=cache_of(scenario, capacity.kv_tokens, longest),
            prices=prices,
            engine=scheduled(case, engine),
            max_model_len=min(longest, scenario.engine.positions(case.model.max_position, longest)),
            kv_bytes_per_token=capacity.bytes_per_token,
            drafts=drafts_of(scenario, replica),
            pool=pooled_kv(case, capacity),
        )
        for replica, part in enumerate(shares(load, case.model.data_parallel))
    ]
    return merged(outcomes)


def scheduled(case: Case, engine: EngineCosts) -> EngineCosts:
    """The engine's costs as the scenario has it schedule, and with what issuing its steps takes."""
    if case.scenario.engine.async_scheduling is False:
        engine = replace(engine, hidden_share=0.0)
    return issuing(without_traffic(case), engine)


def _instance(case: Case, prices: StepPrices, engine: EngineCosts, longest: int, number: int) -> Instance:
    """An idle engine of `case`."""
    scenario, capacity = case.scenario, serving_capacity(case)
    pooled = pooled_kv(case, capacity)
    cache = cache_of(scenario, capacity.kv_tokens, longest)
    scheduler = Scheduler(limits_of(scenario), cache, drafts_of(scenario, number), pooled.pool if pooled else None)
    return Instance.of(scheduler, prices, scheduled(case, engine), capacity.bytes_per_token, pooled)


def pooled_kv(case: Case, capacity: KvCapacity) -> PooledKv | None:
    """An empty pool of KV beyond one replica's cache."""
    config, pool = case.scenario.engine.kv_pool, pool_of(case.scenario, capacity.bytes_per_token)
    if config is None or pool is None:
        return None
    return PooledKv(pool, round(capacity.bytes_per_token * TICKS_PER_NS / config.load_gbps), config.layerwise)


def transfer_of(prefill: Case, decode: Case) -> Transfer:
    """KV from cards of one instance to those of another. Each decode card needs its part (its KV heads, or all of a
    latent), and the prefill cards share what is sent: the busier side sets the time."""
    config = decode.scenario.engine.disaggregated_prefill or DisaggregatedPrefill()
    needed = serving_capacity(decode).bytes_per_token
    received = needed * max(1.0, decode.model.tensor_parallel / prefill.model.tensor_parallel)
    layers = decode.model.layers if config.transfer == "layerwise" else 1
    return Transfer(received, config.link_gbps, round(1000 * config.latency_us), layers)


def prices_of(case: Case, engine: EngineCosts) -> GridPrices:
    """Step prices of `case` in this deployment."""
    return GridPrices(without_traffic(case), engine.device_scale, player(engine.dispatch_scale))


def without_traffic(case: Case) -> Case:
    """`case` as a scenario of steps alone."""
    workload = case.scenario.workload.model_copy(update={"traffic": None})
    return case.with_scenario(case.scenario.model_copy(update={"workload": workload, "slo": None}))


def serving_capacity(case: Case) -> KvCapacity:
    """The KV cache that is left next to weights and the largest step that the engine may run, as vLLM's profile run
    finds it."""
    scenario = case.scenario
    engine, workload = scenario.engine, scenario.workload
    batch = engine.max_num_seqs
    largest = max(workload.input_tokens, -(-engine.max_num_batched_tokens // batch))
    full = workload.model_copy(update={"batch": batch, "input_tokens": largest, "traffic": None})
    return memory_of(scenario.model_copy(update={"workload": full}), case.model, case.hardware).capacity


def shares(load: Load, replicas: int) -> list[Load]:
    """The load of each replica."""
    if replicas == 1:
        return [load]
    parts: list[list[int]] = [[] for _ in range(replicas)]
    place: dict[int, int] = {}
    openings = 0
    for number, request in enumerate(load.requests):
        if request.after >= 0:
            place[request.id] = place[request.after]
        else:
            place[request.id] = openings % replicas
            openings += 1
        parts[place[request.id]].append(number)
    clients = [None] * replicas if load.concurrency is None else _parts(load.concurrency, replicas)
    return [
        Load(tuple(load.requests[n] for n in part), concurrency, sum(n < load.warmup for n in part))
        for part, concurrency in zip(parts, clients, strict=True)
        if part and concurrency != 0
    ]


def _parts(number: int, parts: int) -> list[int | None]:
    return [number // parts + (part < number % parts) for part in range(parts)]
