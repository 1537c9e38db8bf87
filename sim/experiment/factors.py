"""What is tried: every optimisation switch of the scenario, each as two scenarios that differ in it alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from scenarios.batches import decode_batch, mixed_batch, prefill_batches
from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.exchange.bench import Part
from scenarios.ops.program import Batch
from scenarios.passes import PASSES, Pass
from scenarios.passes.base import set_switch
from scenarios.passes.switches import on_value, pass_of, passes_for, with_needs, without
from scenarios.records import dataclass
from scenarios.schema import Graph, Scenario
from sim.predict.memory import memory_of
from sim.predict.predict import forbidden, predict
from sim.predict.steps import Case, sensitivity_of
from sim.predict.uncertainty import ratio_interval

#: The part that a scenario's report is about, by its phase.
HEADLINE: dict[str, Part] = {"decode": "tpot", "prefill": "ttft", "mixed": "step"}

#: Switches of which a backend may have one value and not another: each is tried until one is there.
ALTERNATIVES: dict[str, tuple[str, ...]] = {"graph": tuple(g for g in get_args(Graph) if g != "eager")}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A gain: without / with, above 1 where it helps, and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Factor:
    """One switch. state: whether the scenario has it on. without, with_it: the two sides, all else alike. given: what
    both have on because the switch needs it. why_not: why there is nothing to measure, or empty."""

    switch: str
    title: str
    value: str
    state: Literal["on", "off"]
    without: Scenario
    with_it: Scenario
    given: tuple[str, ...] = ()
    for_capacity: bool = False
    why_not: str = ""

    @property
    def name(self) -> str:
        """`fusion.rope`, or `graph=aclgraph`."""
        return self.switch if self.value == "true" else f"{self.switch}={self.value}"

    @property
    def setting(self) -> str:
        """The `--set` that switches it on."""
        return f"optimizations.{self.switch}={self.value}"


def factors_of(case: Case, wanted: Sequence[str] = ()) -> list[Factor]:
    """Every optimisation that has something to say about the model, or those `wanted`, in the order of the passes.

    wanted: switches, or switch=value where another value than the pass's own is meant. Raises ScenarioError for a name
    that is none.
    """
    known = passes_for(case.model)
    if not wanted:
        return [_factor(case, item, on_value(item, case.scenario)) for item in known]
    factors, problems = [], []
    for name in wanted:
        switch, _, value = name.strip().removeprefix("optimizations.").partition("=")
        item = pass_of(switch)
        if item is None:
            names = [p.switch for p in PASSES]
            problems.append(f"--factors: {quoted(switch)} is no optimisation switch{did_you_mean(switch, names)}")
        elif item not in known:
            problems.append(f"--factors: {switch} has no effect here: {item.idle(case.model)}")
        else:
            try:
                factors.append(_factor(case, item, _parsed(item, value) if value else on_value(item, case.scenario)))
            except ScenarioError as error:
                problems += error.messages
    if problems:
        raise ScenarioError(problems)
    return list(dict.fromkeys(factors))


def _parsed(item: Pass, value: str) -> object:
    """`value` as the switch takes it, validated by the schema. Raises ScenarioError."""
    from pydantic import ValidationError

    from scenarios.files.yaml12 import load_value

    plain = load_value(value, f"--factors {item.switch}").data()
    tree: dict[str, Any] = {}
    head, _, rest = item.switch.partition(".")
    tree[head] = {rest: plain} if rest else plain
    try:
        Scenario.model_validate({"optimizations": tree})
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        raise ScenarioError([f"--factors: {item.switch}={value}: {what}"]) from None
    if plain in item.off:
        raise ScenarioError([f"--factors: {item.switch}={value}: that is the switch off; name the value to try"])
    return plain


def alternatives(case: Case, factor: Factor) -> list[Factor]:
    """The same switch with the other values that it has."""
    item = pass_of(factor.switch)
    if item is None or factor.state == "on":
        return []
    return [_factor(case, item, value) for value in ALTERNATIVES.get(factor.switch, ()) if value != factor.value]


def _factor(case: Case, item: Pass, value: object) -> Factor:
    scenario, model = case.scenario, case.model
    state: Literal["on", "off"] = "on" if item.value(scenario) == value else "off"
    needed = item.missing(scenario)
    base = with_needs(item, scenario)
    with_it = set_switch(base, item.switch, value)
    is_other = state == "off" and item.is_on(scenario)  # another value of the same switch is the baseline
    without_it = without(item, base, model) if state == "on" else base
    given = (*(s for s, _ in needed), *((f"{item.switch}={item.value(scenario)} instead",) if is_other else ()))
    why_not = next((reason for side in (with_it, without_it) if (reason := unfit(case, side, item.switch))), "")
    shown = item.shown(value)
    return Factor(
        switch=item.switch,
        title=item.title,
        value=shown,
        state=state,
        without=without_it,
        with_it=with_it,
        given=given,
        for_capacity=item.for_capacity,
        why_not=why_not,
    )


def unfit(case: Case, scenario: Scenario, of: str = "") -> str:
    """Why `scenario` can run nowhere, or an empty string; another switch than `of` that objects is named."""
    problems = forbidden(case.with_scenario(scenario))
    if problems:
        where, what = problems[0]
        switch = where.removeprefix("optimizations.")
        return what if switch == of else f"{switch}: {what}"
    memory = memory_of(scenario, case.model, case.hardware)
    if memory.too_much:
        return f"does not fit the memory of {case.hardware.name}: {memory.too_much / (1 << 30):.2f} GiB too much"
    return ""


def predicted_ratio(case: Case, without_it: Scenario, with_it: Scenario, part: Part) -> Ratio:
    """The predicted gain in one part: in a decode step, in the mixed step, or in the first chunk of the prefill, which
    the other chunks are like."""
    sides = [sensitivity_of(case.with_scenario(s), _batch_of(s, part)) for s in (without_it, with_it)]
    return Ratio(*ratio_interval(sides[0], sides[1], case.hardware))


def _batch_of(scenario: Scenario, part: Part) -> Batch:
    match part:
        case "tpot":
            return decode_batch(scenario)
        case "ttft":
            return prefill_batches(scenario)[0]
        case "step":
            return mixed_batch(scenario)


def predicted_metrics(case: Case, scenario: Scenario) -> dict[str, dict[str, float]]:
    """TTFT, TPOT, throughput and memory with their intervals, as `whatif run` tells them; memory by part, bytes."""
    prediction = predict(case.with_scenario(scenario))
    wanted = ("ttft_ms", "tpot_ms", "output_throughput", "decode_throughput", "peak_memory_bytes")
    metrics = {
        k: {"value": m.value, "low": m.low, "high": m.high} for k, m in prediction.metrics.items() if k in wanted
    }
    exact = {"weights_bytes": prediction.memory.weights, "kv_cache_bytes": prediction.memory.kv_cache}
    return metrics | {k: {"value": float(v), "low": float(v), "high": float(v)} for k, v in exact.items()}
