"""The `serving` block of a `run` result: the contract's keys, with the intervals of means.

Intervals come from two more runs of the same requests, with the steps and the engine of both ends of the time between
two decode steps (`sim.engines.ends`).
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from scenarios.errors import ScenarioError
from scenarios.loader import Loaded, folder_of, located, problem
from scenarios.ops.program import Batch, Group
from scenarios.records import dataclass
from scenarios.serving.requests import Load
from scenarios.serving.traces import FILE_KEY
from scenarios.serving.traffic import load_of
from scenarios.settings import Workload
from sim.engines.costs import EngineCosts
from sim.engines.ends import End, ends
from sim.engines.profile import EngineProfile, engine_of
from sim.engines.workers import workers_on_a_host
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, interval_ns
from sim.serving.captures import Captures, captures_of
from sim.serving.metrics import ServingMetrics, metrics_of
from sim.serving.outcome import ServingOutcome
from sim.serving.prices import GridPrices
from sim.serving.rate import OPEN, HighestRate, highest_rate
from sim.serving.simulate import PrefillTier, prices_of, scheduled, simulate

#: Rates of a load, per second.
RATES = ("request_throughput", "output_throughput", "total_token_throughput")
SPREADS = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "queue_ms")
#: Below this a second card is said to buy nothing.
NEGLIGIBLE_GAIN = 0.05


@dataclass(frozen=True, slots=True)
class ServingResult:
    """The runs of a scenario's traffic: at nominal, fast and slow step times and host costs."""

    outcome: ServingOutcome
    metrics: ServingMetrics
    ends: tuple[ServingMetrics, ServingMetrics]
    engine: EngineProfile
    costs: EngineCosts
    highest: HighestRate | None
    captures: Captures | None


def serve_scenario(loaded: Loaded, case: Case, search: bool = True) -> ServingResult:
    """Serve the traffic of a scenario. Raises ScenarioError, with its place, where it cannot be served.

    search: whether the highest rate under the SLO is looked for, where arrivals have a rate that nothing else limits.
    """
    scenario = case.scenario
    engine = engine_of(loaded)
    ranks = workers_on_a_host(case.model.cards, case.hardware)
    costs = scheduled(case, engine.costs(ranks))
    folder = folder_of(loaded, FILE_KEY)
    seed = scenario.protocol.seed
    load = load_of(scenario.workload, seed, folder, f"{located(loaded, FILE_KEY)}: {FILE_KEY}")
    prices = prices_of(case, costs)
    front = _prefill_tier(loaded, engine)
    try:
        outcome = simulate(case, costs, load, prices, front)
    except ValueError as error:
        raise problem(loaded, "engine.gpu_memory_utilization", str(error)) from None
    if not len(outcome.ids):
        raise problem(loaded, "workload.traffic", f"all {outcome.rejected} requests are longer than the engine allows")
    metrics = metrics_of(outcome, costs, scenario.slo)
    bounds = [(scheduled(case, end.costs), end.factors[0]) for end in _ends(case, engine, ranks, outcome)]
    spread = [metrics_of(_at_end(case, load, prices, front, end, factor), end, scenario.slo) for end, factor in bounds]

    def run(workload: Workload) -> ServingMetrics:
        served = simulate(case, costs, load_of(workload, seed, folder), prices, front)
        return metrics_of(served, costs, scenario.slo)

    traffic = scenario.workload.traffic
    # With no more than `concurrency` requests in flight any rate meets the SLO: the client waits.
    open_rate = traffic is not None and traffic.arrival in OPEN and traffic.concurrency is None
    highest = highest_rate(scenario.workload, scenario.slo, run) if search and open_rate and scenario.slo else None
    captures = None if front else captures_of(case, outcome, prices)
    return ServingResult(outcome, metrics, (spread[0], spread[1]), engine, costs, highest=highest, captures=captures)


def _at_end(
    case: Case, load: Load, prices: GridPrices, front: PrefillTier | None, engine: EngineCosts, factor: float
) -> ServingOutcome:
    """The load on an engine at one end of its profile, steps `factor` as long."""
    scale = factor * engine.device_scale
    tier = front.scaled(scale, replace(engine, device_scale=1.0)) if front else None
    return simulate(case, engine, load, prices.scaled(scale), prefill=tier)


def _prefill_tier(loaded: Loaded, engine: EngineProfile) -> PrefillTier | None:
    """The prefill instances of a scenario. Raises ScenarioError, with its place, where one cannot be."""
    case = prefill_case(loaded)
    if case is None:
        return None
    costs = engine.costs(case.model.cards)
    return PrefillTier(case, prices_of(case, costs), costs)


def prefill_case(loaded: Loaded) -> Case | None:
    """A prefill instance of a scenario. Raises ScenarioError, with its place, where one cannot be."""
    config = loaded.scenario.engine.disaggregated_prefill
    if config is None:
        return None
    own = {
        name: value
        for name in ("tensor_parallel_size", "max_num_seqs", "max_num_batched_tokens")
        if (value := getattr(config, name)) is not None
    }
    alone = {"data_parallel_size": 1, "disaggregated_prefill": None, "router": None, "speculative_config": None}
    instance = loaded.scenario.engine.model_copy(update={**alone, **own})
    try:
        return case_of(replace(loaded, scenario=loaded.scenario.model_copy(update={"engine": instance})))
    except ScenarioError as error:
        lines = [line.split(": ", 2)[-1] for line in error.messages]
        raise problem(loaded, "engine.disaggregated_prefill", f"a prefill instance: {'; '.join(lines)}") from None


def _ends(case: Case, engine: EngineProfile, ranks: int, outcome: ServingOutcome) -> tuple[End, End]:
    """The engine and the factor on its steps at both ends of the time between two decode steps, at the mean batch and
    length."""
    steps = outcome.steps
    decoding = steps.decoding[steps.decoding > 0]
    requests = max(1, round(float(decoding.mean()))) if len(decoding) else 1
    context = int((outcome.input_tokens + outcome.output_tokens // 2).mean())
    query = case.scenario.engine.query_tokens
    value, low, high = interval_ns(case, Batch("decode", (Group(requests, query, max(1, context)),)))

    def period_ns(costs: EngineCosts, factors: tuple[float, ...]) -> float:
        return scheduled(case, costs).step_ns(value * factors[0], requests)

    return ends(engine, ranks, period_ns, [(low / value, high / value)])


def serving_block(served: ServingResult) -> dict[str, Any]:
    """The `serving` block: times in ms, rates per second, shares as fractions."""
    outcome, metrics, costs = served.outcome, served.metrics, served.costs
    ends = served.ends
    return {
        **counts_and_rates(outcome, metrics),
        **{name: _spread(name, metrics, ends) for name in SPREADS},
        "kv": kv_use(outcome),
        **_instances(outcome),
        "steps": outcome.step_count,
        "mean_running": metrics.mean_running,
        "engine": {
            "profile": served.engine.name,
            "source": served.engine.profile.worst_source(),
            "per_step_us": costs.per_step_ns / 1000,
            "per_request_us": costs.per_request_ns / 1000,
            "per_chunk_us": costs.per_chunk_ns / 1000,
            "hidden_us": metrics.hidden_us,
        },
        "gap": gap_parts(metrics),
        "evidence": evidence(metrics),
        "highest_rate": asdict(served.highest) if served.highest else None,
        "captures": asdict(served.captures) if served.captures else None,
    }


def counts_and_rates(outcome: ServingOutcome, metrics: ServingMetrics) -> dict[str, Any]:
    """How many requests there were and what came of them: s, rates per second."""
    return {
        "requests": metrics.completed + outcome.rejected,
        "completed": metrics.completed,
        "rejected": outcome.rejected,
        "preemptions": outcome.preemptions,
        "duration_s": metrics.duration_s,
        **{name: getattr(metrics, name) for name in RATES},
        "request_goodput": metrics.request_goodput,
        "saturated": metrics.saturated,
        "limit": metrics.limit,
    }


def serving_columns(served: ServingResult) -> dict[str, float | int | str]:
    """The `serving` block as one flat row: counts, rates per second, latencies in ms, intervals of their means."""
    outcome, metrics = served.outcome, served.metrics
    row = {f"serving_{name}": value for name, value in counts_and_rates(outcome, metrics).items()}
    row["serving_saturated"] = int(metrics.saturated)
    for name in SPREADS:
        row |= {f"serving_{name}_{part}": value for part, value in _spread(name, metrics, served.ends).items()}
    row |= {f"serving_kv_{name}": value for name, value in kv_use(outcome).items()}
    return row


def kv_use(outcome: ServingOutcome) -> dict[str, float]:
    """Shares of the cache that was in use, and of the prompts' tokens that lay in it or in a pool, 0 to 1."""
    asked = outcome.asked_tokens
    return {
        "usage_peak": outcome.usage_peak,
        "hit_rate": outcome.hit_tokens / asked if asked else 0.0,
        "pool_hit_rate": outcome.loaded_tokens / asked if asked else 0.0,
    }


def gap_parts(metrics: ServingMetrics) -> dict[str, float]:
    """What the mean gap between two tokens is made of, ms, and what a device without time would gain."""
    return {
        "device_ms": metrics.gap_device_ms,
        "prefill_ms": metrics.gap_prefill_ms,
        "engine_ms": metrics.gap_engine_ms,
        "preempted_ms": metrics.gap_preempted_ms,
        "faster_device_gain": metrics.faster_device_gain,
    }


def _instances(outcome: ServingOutcome) -> dict[str, Any]:
    """What each of several engines did, and how unequally: the busiest one's time in steps over the mean, by role."""
    if not outcome.instances:
        return {}
    duration = max(1, int(outcome.last_ns.max()) - int(outcome.arrived_ns.min()))
    listed = [
        {
            "role": use.role,
            "requests": use.requests,
            "input_tokens": use.input_tokens,
            "output_tokens": use.output_tokens,
            "busy_share": use.busy_ns / duration,
        }
        for use in outcome.instances
    ]
    imbalance = {}
    for role in dict.fromkeys(use.role for use in outcome.instances):
        busy = [use.busy_ns for use in outcome.instances if use.role == role]
        imbalance[role] = max(busy) * len(busy) / sum(busy) if sum(busy) else 1.0
    transfer = {"transfer_wait_ms": outcome.transfer_wait_ns / 1e6} if "prefill" in imbalance else {}
    return {"instances": listed, "imbalance": imbalance, **transfer}


def _spread(name: str, metrics: ServingMetrics, ends: tuple[ServingMetrics, ServingMetrics]) -> dict[str, float]:
    means = [getattr(m, name).mean for m in (metrics, *ends)]
    return {**asdict(getattr(metrics, name)), "low": min(means), "high": max(means)}


def evidence(metrics: ServingMetrics) -> str:
    """Why `limit` is what it is."""
    gap = metrics.gap_device_ms + metrics.gap_prefill_ms + metrics.gap_engine_ms + metrics.gap_preempted_ms
    if metrics.saturated:
        lacking = {
            "slots": "engine.max_num_seqs requests run, and others wait for a slot",
            "kv": "requests wait for KV blocks",
            "prefill": "prompts take all tokens of a step, and others wait",
        }.get(metrics.limit, "requests come faster than they are served")
        return f"saturated: {lacking}; {metrics.queue_ms.mean:,.0f} ms in the queue on average"
    if not gap:
        return "no request has a second token"
    parts = (
        f"a token takes {gap:.1f} ms: {metrics.gap_device_ms:.1f} the decode step, {metrics.gap_prefill_ms:.1f} "
        f"prefills in the same step, {metrics.gap_engine_ms:.1f} the engine's host"
    )
    if metrics.gap_preempted_ms:
        parts += f", {metrics.gap_preempted_ms:.1f} gaps in which a request lost its blocks"
    nothing = ", so a second card would buy little" if metrics.faster_device_gain < NEGLIGIBLE_GAIN else ""
    return f"{parts}; a decode step half as long would save {metrics.faster_device_gain:.0%} of it{nothing}"
