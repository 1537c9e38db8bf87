"""A scenario from a few settings, for lessons that no file describes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil

from app_pages.parts import own
from app_pages.parts.state import FIRST_SCENARIO, Question, written
from scenarios.batches import reported_batch
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario, load_text
from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.ops.program import Op, Program
from sim.hardware.profile import HardwareProfile
from sim.kernel.price import price
from sim.predict.gains import verdict
from sim.predict.ratios import StepRatio
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, program_of
from sim.predict.uncertainty import Sensitivity, kernels_sensitivity, ratio_interval
from sim.step.plan import Launch


def case(*sets: str) -> Case:
    """The default scenario with `sets`, checked. Raises ScenarioError as `whatif run --set` would."""
    return _case(tuple(_resolved(text) for text in sets))


def _resolved(text: str) -> str:
    field, equals, value = text.partition("=")
    return f"{field}{equals}{own.resolved(value)}"


@lru_cache(maxsize=128)
def _case(sets: Sequence[str]) -> Case:
    return case_of(load_text("{}\n", "lesson", sets))


def program(case: Case) -> Program:
    """The Program of the case's reported step."""
    return program_of(case.scenario, case.model, reported_batch(case.scenario))


def step_of_tokens(model: str, hardware: str, tokens: int, *sets: str) -> Case:
    """An eager forward step of one prompt of `tokens` tokens: the shapes of a decode step of as many requests, but for
    attention."""
    return case(
        f"model={model}",
        f"hardware={hardware}",
        "workload.phase=prefill",
        f"workload.input_tokens={tokens}",
        "workload.output_tokens=1",
        f"engine.max_num_batched_tokens={max(tokens, 16)}",
        *sets,
    )


def ops_sensitivity(ops: Iterable[Op], hardware: HardwareProfile) -> Sensitivity:
    """The device time of some ops of a Program, each alone, and what it depends on."""
    return kernels_sensitivity(
        [Launch(n, 0, op.name, op.kind, op_type_of(op), price(work_of(op), hardware)) for n, op in enumerate(ops)],
        hardware,
    )


def ratio_of(first: Sensitivity, second: Sensitivity, hardware: HardwareProfile) -> StepRatio:
    """The time of one part of a step over that of another, with its interval."""
    value, low, high = ratio_interval(first, second, hardware)
    return StepRatio(value, low, high, verdict(value, low, high))


def paid_back_steps(cold_ms: float, before_ms: float, after_ms: float) -> int | None:
    """Steps after which a first run that takes `cold_ms` longer has paid for itself, against the very steps that are
    shown; None where a step is not shorter."""
    return ceil(cold_ms / (before_ms - after_ms)) if after_ms < before_ms else None


def why(error: ScenarioError) -> str:
    """The first problem of a refused lesson, without the setting that it stands in: a lesson has no file."""
    text = error.messages[0]
    return text.partition(": ")[2] if text.startswith("--set ") else text


def question_of_case(case: Case) -> Question:
    """The question that opens the case in the Lab: the scenario that the Lab opens with, and what differs."""
    base = _flat(load_scenario(FIRST_SCENARIO).scenario.model_dump())
    asked = _flat(case.scenario.model_dump())
    sets = {field: _written(value) for field, value in asked.items() if value != base.get(field)}
    sets |= {field: "null" for field in base if field not in asked}
    sets.pop("description", None)
    return Question(FIRST_SCENARIO, tuple(sorted(sets.items())))


def _written(value: object) -> str:
    return "null" if value is None else written(own.reference(value))


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
