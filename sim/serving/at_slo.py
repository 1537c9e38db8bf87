"""Every optimisation at equal SLO: the highest rate with it over the highest rate without it, per card.

A step that is 5 % shorter may carry 20 % more requests, or none more: what a deployment is worth is the rate at which
it still meets its SLO. Each variant has its own step prices and its own bisection on the same requests; rates are exact
to 2 %, so smaller differences are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from scenarios.errors import ScenarioError
from scenarios.loader import Loaded, folder_of
from scenarios.passes.base import set_switch
from scenarios.passes.switches import on_value, passes_for, with_needs, without
from scenarios.records import dataclass
from scenarios.schema import Scenario
from scenarios.serving.traffic import load_of
from scenarios.settings import Workload
from sim.engines.profile import EngineProfile, engine_of
from sim.engines.workers import workers_on_a_host
from sim.predict.predict import check
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case
from sim.serving.metrics import ServingMetrics, metrics_of
from sim.serving.rate import OPEN, PRECISION, HighestRate, highest_rate
from sim.serving.simulate import prices_of, scheduled, simulate

#: Requests of a run of the search at most: many variants are searched.
MAX_REQUESTS = 400


@dataclass(frozen=True, slots=True)
class AtSlo:
    """One optimisation or setting at equal SLO. setting: as `--set` takes it. state: whether the scenario has it.
    rate: the highest with it (of a scenario that has it: without it), requests/s; cards: of that variant. gain: highest
    rate per card with it over that without it."""

    setting: str
    title: str
    state: Literal["on", "off"]
    rate: float
    cards: int
    gain: float
    limit: str
    missed: str
    verdict: Literal["gain", "loss", "not distinguishable", "not applicable"]
    reason: str


@dataclass(frozen=True, slots=True)
class Compared:
    """The scenario's own highest rate and what each optimisation does to it, the best first."""

    rate: float
    cards: int
    rows: tuple[AtSlo, ...]


@dataclass(frozen=True, slots=True)
class _Variant:
    setting: str
    title: str
    state: Literal["on", "off"]
    case: Case | None
    reason: str = ""


def compare_at_slo(loaded: Loaded, case: Case) -> Compared | None:
    """All optimisations of a served scenario at its SLO. None where it has no SLO, where its arrivals have no rate, and
    with prefill instances of their own."""
    scenario = case.scenario
    traffic = scenario.workload.traffic
    if scenario.slo is None or traffic is None or traffic.arrival not in OPEN or scenario.engine.disaggregated_prefill:
        return None
    engine, folder = engine_of(loaded), folder_of(loaded, "workload.traffic.trace.file")
    own = _highest(case, engine, folder)
    rows = [_row(variant, own, case, engine, folder) for variant in _variants(loaded, case)]
    ranks = {"gain": 0, "not distinguishable": 1, "loss": 2, "not applicable": 3}
    rows.sort(key=lambda row: (ranks[row.verdict], -row.gain, row.setting))
    return Compared(own.rate, case.model.cards, tuple(rows))


def _highest(case: Case, engine: EngineProfile, folder: Path) -> HighestRate:
    scenario, costs = case.scenario, scheduled(case, engine.costs(workers_on_a_host(case.model.cards, case.hardware)))
    assert scenario.slo is not None
    assert scenario.workload.traffic is not None
    prices = prices_of(case, costs)

    def run(workload: Workload) -> ServingMetrics:
        load = load_of(workload, scenario.protocol.seed, folder)
        return metrics_of(simulate(case, costs, load, prices), costs, scenario.slo)

    traffic = scenario.workload.traffic
    few = traffic.model_copy(
        update={"requests": min(MAX_REQUESTS, traffic.requests or MAX_REQUESTS), "duration_s": None}
    )
    return highest_rate(scenario.workload.model_copy(update={"traffic": few}), scenario.slo, run)


def _row(variant: _Variant, own: HighestRate, case: Case, engine: EngineProfile, folder: Path) -> AtSlo:
    if variant.case is None:
        return AtSlo(
            variant.setting,
            variant.title,
            variant.state,
            rate=0.0,
            cards=0,
            gain=1.0,
            limit="",
            missed="",
            verdict="not applicable",
            reason=variant.reason,
        )
    cards = variant.case.model.cards
    try:
        highest = _highest(variant.case, engine, folder)
    except ValueError as error:
        highest, reason = HighestRate(0.0, "kv", "", 0.0), str(error)
    else:
        reason = ""
    other, mine = highest.rate / cards, own.rate / case.model.cards
    over, under = (other, mine) if variant.state == "off" else (mine, other)
    gain = over / under if under else 1.0 if not over else float("inf")
    verdict: Literal["gain", "loss", "not distinguishable"] = "not distinguishable"
    if abs(gain - 1) > PRECISION:
        verdict = "gain" if gain > 1 else "loss"
    return AtSlo(
        variant.setting,
        variant.title,
        variant.state,
        rate=highest.rate,
        cards=cards,
        gain=gain,
        limit=highest.limit,
        missed=highest.missed,
        verdict=verdict,
        reason=reason,
    )


def _variants(loaded: Loaded, case: Case) -> Iterator[_Variant]:
    """The scenario with one optimisation more or one fewer, and with other settings of its engine."""
    scenario, model = case.scenario, case.model
    for item in passes_for(model):
        value = on_value(item, scenario)
        setting = f"optimizations.{item.switch}={item.shown(value)}"
        if item.is_on(scenario):
            yield _switched(setting, item.title, "on", case, without(item, scenario, model))
        else:
            changed = set_switch(with_needs(item, scenario), item.switch, value)
            yield _switched(setting, item.title, "off", case, changed)
    for name, given, title in _settings(case):
        engine = scenario.engine.model_copy(update={name: given})
        changed = scenario.model_copy(update={"engine": engine})
        setting = f"engine.{name}={str(given).lower() if isinstance(given, bool) else given}"
        if name == "tensor_parallel_size":
            yield _rebuilt(setting, title, loaded, changed)
        else:
            yield _switched(setting, title, "off", case, changed)


def _settings(case: Case) -> Iterator[tuple[str, object, str]]:
    """(field of the engine, value, what it is) worth a try."""
    engine = case.scenario.engine
    yield "tensor_parallel_size", 2 * engine.tensor_parallel_size, "twice the cards for each replica"
    tokens = engine.max_num_batched_tokens
    for size in (tokens // 4, 2 * tokens):
        if size >= engine.max_num_seqs * engine.query_tokens:
            yield "max_num_batched_tokens", size, "prefill chunks of another size"
    if case.scenario.optimizations.graph == "aclgraph" and engine.cudagraph_mode != "FULL_AND_PIECEWISE":
        yield "cudagraph_mode", "FULL_AND_PIECEWISE", "steps with prefills replayed in pieces"
    if engine.async_scheduling is False:
        yield "async_scheduling", True, "the next step prepared while the device works"


def _switched(setting: str, title: str, state: Literal["on", "off"], case: Case, scenario: Scenario) -> _Variant:
    changed = case.with_scenario(scenario)
    wrong = check(changed)
    if wrong:
        where, what = wrong[0]
        return _Variant(setting, title, state, None, f"{where.removeprefix('optimizations.')} {what}")
    return _Variant(setting, title, state, changed)


def _rebuilt(setting: str, title: str, loaded: Loaded, scenario: Scenario) -> _Variant:
    """A variant whose ranks hold other parts of the model."""
    try:
        return _Variant(setting, title, "off", case_of(replace(loaded, scenario=scenario)))
    except ScenarioError as error:
        return _Variant(setting, title, "off", None, error.messages[0].split(": ", 2)[-1])
