"""Served benchmarks: predicted against measured, with shipped engine profiles or fitted on a deployment's first row.

A row becomes the scenario that it describes and a load; its engine is the one that its settings name, or the shipped
profile of the engine as the source names it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from scenarios.errors import ScenarioError
from scenarios.loader import Loaded, load_text
from scenarios.records import dataclass
from scenarios.serving.requests import Load
from scenarios.serving.traffic import load_of
from sim.accuracy.rows.serving import ServingRow
from sim.engines.graphs import sizes_in_pieces
from sim.engines.profile import BY_STREAMS, MAX_MODEL_LEN, EngineProfile, engine_of, load_engine, shipped_engine_of
from sim.predict.memory import DoesNotFit
from sim.predict.scenario_result import case_of, looked_up
from sim.predict.steps import Case
from sim.serving.expected import Bench, BenchLoad, Expected
from sim.serving.result import prefill_case

#: Requests that a closed load is served with where its row does not say: so many for each client, and at least so many.
WAVES = 4
#: max_num_batched_tokens of an API server on a device of less than 70 GiB (vLLM, EngineArgs.get_batch_defaults).
MIN_BATCHED_TOKENS = 2048
MIN_REQUESTS = 8
#: Settings of a scheduler that engines have defaults of.
_SCHEDULED = (
    "engine.max_num_batched_tokens",
    "engine.max_num_seqs",
    "optimizations.kv.prefix_sharing",
    "engine.scheduler_reserve_full_isl",
    "engine.prefill_first",
)


@dataclass(frozen=True, slots=True)
class Deployed:
    """A row that can be priced: its benchmark, its requests, the engine profile that it is priced with, and an instance
    that prefills for it where its prompts are prefilled apart."""

    row: ServingRow
    bench: Bench
    load: Load
    engine: EngineProfile
    front: Case | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A priced row: the value, its fastest and slowest end, and the name of the engine."""

    deployed: Deployed
    value: Expected
    low: Expected
    high: Expected
    engine: str


def deployed_of(row: ServingRow) -> Deployed | str:
    """The row as a benchmark of a case, or the reason why there is none."""
    base = {
        "model": row.model,
        "hardware": row.hardware,
        "workload": {
            "input_tokens": row.input_tokens,
            "output_tokens": row.output_tokens,
            "sampling": "top_k_top_p" if row.samples else "greedy",
            "traffic": _traffic(row),
        },
        "engine": {"allow_long_max_model_len": True},  # what was measured was run
    }
    try:
        loaded = load_text(json.dumps(base), row.id, row.settings)
        named = loaded.scenario.engine.profile
        engine = engine_of(loaded) if named else load_engine(shipped_engine_of(row.engine))
        loaded = _with_defaults(loaded, json.dumps(base), row, engine)
        case, front = case_of(loaded), prefill_case(loaded)
    except ScenarioError as error:
        return error.messages[0]
    if front and row.prefix_cache_hit:
        return "prefill instances with a share of prompts in the prefix cache: which prompts it held is not known"
    try:
        return Deployed(row, Bench(case, _load(row)), load_of(loaded.scenario.workload, 0), engine, front)
    except (DoesNotFit, ScenarioError, ValueError) as error:
        return str(error)


def _with_defaults(loaded: Loaded, base: str, row: ServingRow, engine: EngineProfile) -> Loaded:
    """The row's scenario with the engine's defaults where its settings leave them open; as it is where they do not go
    with its settings.

    A row that names aclgraph and no mode replays decode steps whole, as a scenario does, unless it says that its mode
    is unstated.
    """
    said = {setting.partition("=")[0].strip(): setting.partition("=")[2].strip() for setting in row.settings}
    values: dict[str, str] = {name: str(default.value) for name, default in engine.profile.defaults.items()}
    sets: list[tuple[str, str]] = []
    graph = said.get("optimizations.graph", values.get("graph", ""))
    if "optimizations.graph" not in said and graph:
        sets.append(("optimizations.graph", graph))
    unstated = row.graph_mode_unstated or "optimizations.graph" not in said
    if graph == "aclgraph" and unstated and "engine.cudagraph_mode" not in said:
        sets += [("engine.cudagraph_mode", values.get("cudagraph_mode", ""))]
        sets += [("protocol.synchronize", values.get("synchronize", ""))]
    model = looked_up(loaded).model
    if "prefill_first" in values:
        values["prefill_first"] = str(engine.profile.is_on("prefill_first", model.latent is not None)).lower()
    if values.get("max_num_batched_tokens") == MAX_MODEL_LEN:  # and never fewer than vLLM's own default
        longest = int(said.get("engine.max_model_len", model.max_position))
        values["max_num_batched_tokens"] = str(max(longest, MIN_BATCHED_TOKENS))
    sets += [(key, values.get(key.rpartition(".")[2], "")) for key in _SCHEDULED]
    pairs: list[str] = []
    for key, value in sets:
        if not value or key in said:
            continue
        try:
            loaded = load_text(base, row.id, (*row.settings, *pairs, f"{key}={value}"))
        except ScenarioError:
            continue  # does not go with what the row says
        pairs.append(f"{key}={value}")
    if values.get("cudagraph_capture_sizes") == BY_STREAMS and "engine.cudagraph_capture_sizes" not in said:
        scenario = loaded.scenario
        if scenario.optimizations.graph == "aclgraph" and scenario.engine.cudagraph_mode == "PIECEWISE":
            sizes = list(sizes_in_pieces(scenario, model))
            loaded = load_text(base, row.id, (*row.settings, *pairs, f"engine.cudagraph_capture_sizes={sizes}"))
    return loaded


def _traffic(row: ServingRow) -> dict[str, Any]:
    """The row's `workload.traffic`."""
    traffic: dict[str, Any] = {"arrival": row.arrival, "requests": row.prompts}
    if row.arrival in ("constant", "poisson"):
        traffic |= {"rate": row.rate, "duration_s": row.duration_s}
    elif row.arrival == "closed":
        clients = row.concurrency or 1
        traffic |= {"concurrency": clients, "requests": row.prompts or max(MIN_REQUESTS, WAVES * clients)}
    else:
        traffic |= {"requests": row.prompts or row.concurrency}
    return {key: value for key, value in traffic.items() if value is not None}


def _load(row: ServingRow) -> BenchLoad:
    clients = row.concurrency or 0
    if row.arrival == "burst":
        clients = row.prompts or clients
    return BenchLoad(
        arrival=cast(Any, row.arrival),
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        rate=row.rate or 0.0,
        clients=clients,
        window_s=row.duration_s,
        prefix_hit=row.prefix_cache_hit,
        requests=row.prompts,
    )


def priced(deployed: Deployed, engine: EngineProfile) -> Answer:
    """The row's answer with `engine`: requests served in time, and ends as far from it as the closed form's are.

    Which prompts a prefix cache held is not known of a row that states a share: it is answered in closed form.
    """
    middle, low, high = deployed.bench.interval(engine)
    if deployed.row.prefix_cache_hit:
        return Answer(deployed, middle, low, high, engine.name)
    value = deployed.bench.simulate(engine.costs(deployed.bench.ranks), deployed.load, deployed.front)
    return Answer(deployed, value, _moved(low, middle, value), _moved(high, middle, value), engine.name)


def _moved(end: Expected, middle: Expected, value: Expected) -> Expected:
    """`end` in proportion to `value` as it is to `middle`."""
    names = ("ttft_ms", "tpot_ms", "output_throughput")
    return replace(end, **{n: getattr(value, n) * getattr(end, n) / max(getattr(middle, n), 1e-9) for n in names})


def split(rows: Sequence[ServingRow]) -> tuple[list[Deployed], list[dict[str, str]]]:
    """(rows that can be priced, {id, reason} of those that cannot)."""
    good: list[Deployed] = []
    bad: list[dict[str, str]] = []
    for row in rows:
        deployed = deployed_of(row)
        if isinstance(deployed, str):
            bad.append({"id": row.id, "reason": deployed})
        else:
            good.append(deployed)
    return good, bad


def by_deployment(rows: Sequence[Deployed]) -> dict[str, list[Deployed]]:
    """The rows of each deployment, in their order."""
    groups: dict[str, list[Deployed]] = {}
    for deployed in rows:
        groups.setdefault(deployed.row.deployment, []).append(deployed)
    return groups


def first_unsaturated(rows: Sequence[Deployed]) -> Deployed | None:
    """The row that a deployment is calibrated on: its first that states TPOT and lies below saturation."""
    return next((d for d in rows if not d.row.saturated and d.row.tpot_ms is not None), None)
