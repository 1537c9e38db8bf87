"""A scenario's requests in time: its engine limits and its KV cache, then `serve` for each data-parallel replica."""

from __future__ import annotations

from dataclasses import replace

from scenarios.serving.deployment import cache_of, drafts_of, limits_of, longest_tokens
from scenarios.serving.requests import Load
from sim.engines.costs import EngineCosts
from sim.predict.memory import KvCapacity, memory_of
from sim.predict.predict import Case
from sim.serving.loop import serve
from sim.serving.outcome import ServingOutcome, merged
from sim.serving.player import player
from sim.serving.prices import GridPrices, StepPrices


def simulate(case: Case, engine: EngineCosts, load: Load, prices: StepPrices | None = None) -> ServingOutcome:
    """Serve `load` as `case` says; all times from its first arrival on.

    prices: of the device's steps; by default those of `prices_of(case)`, which may be given to share what was played.
    Replicas get the requests in turn (of conversations, all turns of one), and a client's concurrency in equal parts.
    Raises ValueError where the KV cache has no room at all.
    """
    scenario = case.scenario
    prices = prices or prices_of(case, engine)
    if scenario.engine.async_scheduling is False:
        engine = replace(engine, hidden_share=0.0)
    capacity = serving_capacity(case)
    longest = scenario.engine.max_model_len or longest_tokens(load)
    outcomes = [
        serve(
            part,
            limits_of(scenario),
            cache=cache_of(scenario, capacity.kv_tokens, longest),
            prices=prices,
            engine=engine,
            max_model_len=min(longest, case.model.max_position),
            kv_bytes_per_token=capacity.bytes_per_token,
            drafts=drafts_of(scenario, replica),
        )
        for replica, part in enumerate(shares(load, case.model.data_parallel))
    ]
    return merged(outcomes)


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
