"""Other shapes of a scenario: twice the batch, and twice the prompt; half of it where that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from scenarios.checks import check
from scenarios.schema import Scenario
from sim.experiment.factors import unfit
from sim.predict.steps import Case

Change = Callable[[Scenario], Scenario]


def other_shapes(case: Case) -> list[tuple[str, Change]]:
    """(what is other, how a scenario is taken there): one other batch and one other length, where there is one."""
    workload = case.scenario.workload
    shapes: list[tuple[str, Change]] = []
    for name, change, now in (
        ("batch", _batch, workload.batch),
        ("input_tokens", _length, workload.input_tokens),
    ):
        for other in (2 * now, now // 2):
            changed = partial(change, to=other)
            if other and not check(changed(case.scenario)) and not unfit(case, changed(case.scenario)):
                shapes.append((f"{name}={other}", changed))
                break
    return shapes


def _batch(scenario: Scenario, to: int) -> Scenario:
    return scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"batch": to})})


def _length(scenario: Scenario, to: int) -> Scenario:
    """Prompts of `to` tokens; a context that is given grows or shrinks with them."""
    workload = scenario.workload
    context = workload.context_tokens
    if context is not None:
        context = context * to // workload.input_tokens
    return scenario.model_copy(
        update={"workload": workload.model_copy(update={"input_tokens": to, "context_tokens": context})}
    )
