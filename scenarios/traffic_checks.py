"""What a scenario's traffic cannot be, and what of it would change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.schema import Scenario
from scenarios.traffic_settings import Lengths, Slo, Traffic

#: (dotted field, what is wrong with it).
Wrong = tuple[str, str]

#: Arrivals that have a rate.
WITH_RATE = ("constant", "poisson", "gamma")
_WHERE = "workload.traffic"
#: Fields of the engine that say how requests are served in time.
ONLY_WITH_TRAFFIC = (
    "scheduling_policy",
    "preemption",
    "scheduler_reserve_full_isl",
    "prefill_first",
    "router",
    "disaggregated_prefill",
    "kv_pool",
)


def traffic_problems(scenario: Scenario) -> Iterator[Wrong]:
    """All that is wrong with `workload.traffic`, or with what only matters with it."""
    traffic, engine = scenario.workload.traffic, scenario.engine
    if traffic is None:
        given = [f"engine.{name}" for name in ONLY_WITH_TRAFFIC if getattr(engine, name) is not None]
        for where in [*given, *(["slo"] if scenario.slo is not None else [])]:
            yield where, "has no effect without workload.traffic"
        return
    yield from _arrival(traffic)
    for name, lengths in (("input", traffic.input), ("output", traffic.output)):
        if lengths is not None:
            yield from _lengths(f"{_WHERE}.{name}", lengths)
    yield from _contents(scenario, traffic)
    yield from _fleet(scenario)
    if scenario.slo is not None and scenario.slo == Slo():
        yield "slo", "must have ttft_ms, tpot_ms or e2el_ms"
    if engine.max_num_seqs > engine.max_num_batched_tokens:
        what = f"must be at least engine.max_num_seqs {engine.max_num_seqs}, got {engine.max_num_batched_tokens}"
        yield "engine.max_num_batched_tokens", what


def _arrival(traffic: Traffic) -> Iterator[Wrong]:
    arrival = traffic.arrival
    if arrival in WITH_RATE and traffic.rate is None:
        yield f"{_WHERE}.rate", f"is needed with arrival {arrival}: requests/s"
    if arrival not in WITH_RATE and traffic.rate is not None:
        yield f"{_WHERE}.rate", f"has no effect with arrival {arrival}"
    if arrival == "closed" and traffic.concurrency is None:
        yield f"{_WHERE}.concurrency", "is needed with arrival closed: requests in flight"
    if arrival != "gamma" and traffic.burstiness != 1.0:
        yield f"{_WHERE}.burstiness", f"has no effect with arrival {arrival}, only with gamma"
    if arrival in ("closed", "burst") and traffic.duration_s is not None:
        yield f"{_WHERE}.duration_s", f"has no effect with arrival {arrival}: give requests"
    if arrival == "trace" and traffic.trace is None:
        yield f"{_WHERE}.trace", "is needed with arrival trace"
    if traffic.trace is not None:
        if arrival == "trace" and traffic.trace.form == "sharegpt":
            yield f"{_WHERE}.trace.form", "sharegpt has lengths and no times: take another arrival"
        if arrival != "trace" and traffic.trace.speed != 1.0:
            yield f"{_WHERE}.trace.speed", f"has no effect with arrival {arrival}, only with trace"
        if traffic.input is not None and traffic.output is not None and arrival != "trace":
            yield f"{_WHERE}.trace", "has no effect: input and output lengths and arrivals are given"
    if traffic.requests is not None and traffic.warmup_requests >= traffic.requests:
        yield f"{_WHERE}.warmup_requests", f"must be less than requests, {traffic.requests}"


def _lengths(where: str, lengths: Lengths) -> Iterator[Wrong]:
    needed = {"fixed": ("tokens",), "uniform": ("low", "high"), "lognormal": ("tokens", "sigma")}[lengths.distribution]
    allowed = {*needed, *(("low", "high") if lengths.distribution == "lognormal" else ())}
    for name in ("tokens", "low", "high", "sigma"):
        if name in needed and getattr(lengths, name) is None:
            yield f"{where}.{name}", f"is needed with distribution {lengths.distribution}"
        if name not in allowed and getattr(lengths, name) is not None:
            yield f"{where}.{name}", f"has no effect with distribution {lengths.distribution}"
    if lengths.low is not None and lengths.high is not None and lengths.low > lengths.high:
        yield f"{where}.low", f"must be at most high, {lengths.high}, got {lengths.low}"


def _fleet(scenario: Scenario) -> Iterator[Wrong]:
    engine, sharing = scenario.engine, scenario.optimizations.kv.prefix_sharing
    prefill = engine.disaggregated_prefill
    instances = max(engine.data_parallel_size, prefill.instances if prefill else 1)
    if engine.router is not None and instances == 1:
        yield "engine.router", "has no effect with one instance: give engine.data_parallel_size"
    if engine.router == "prefix_aware" and not sharing:
        yield "engine.router", "prefix_aware needs optimizations.kv.prefix_sharing: true"
    if engine.kv_pool is not None and not sharing:
        yield "engine.kv_pool", "has no effect without optimizations.kv.prefix_sharing: true"


def _contents(scenario: Scenario, traffic: Traffic) -> Iterator[Wrong]:
    sharing = scenario.optimizations.kv.prefix_sharing
    if traffic.prefix_tokens and not sharing:
        yield f"{_WHERE}.prefix_tokens", "has no effect without optimizations.kv.prefix_sharing: true"
    if traffic.prefix_groups > 1 and not traffic.prefix_tokens:
        yield f"{_WHERE}.prefix_groups", "has no effect without prefix_tokens"
    if traffic.think_time_s and traffic.turns == 1:
        yield f"{_WHERE}.think_time_s", "has no effect with one turn"
    by_priority = scenario.engine.scheduling_policy == "priority"
    if traffic.urgent_share and not by_priority:
        yield f"{_WHERE}.urgent_share", "has no effect without engine.scheduling_policy priority"
    if by_priority and not traffic.urgent_share:
        yield (
            "engine.scheduling_policy",
            "has no effect where all requests have one priority: give traffic.urgent_share",
        )
