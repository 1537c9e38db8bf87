"""How a step is played on a host that launches faster or slower than the hardware profile says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from scenarios.build import effective_graph
from scenarios.ops.program import Batch, Group
from scenarios.passes.graph import in_pieces
from sim.engines.costs import EngineCosts
from sim.predict.steps import Case, length_ns, plans_of, sensitivity_of, step_ns
from sim.step.plan import Issue, Replay

#: Context of the decode step and prompt of the prefill that are issued: their calls are those of any other.
MIN_TOKENS, ISSUED_TOKENS = 64, 512


def player(dispatch: float) -> Callable[[Case, Batch], int]:
    """How a step is played where each call takes the host `dispatch` times as long as its profile says. A graph that is
    replayed whole is one call; what its host pays around it is the engine's."""
    if dispatch == 1:
        return step_ns

    def play(case: Case, batch: Batch) -> int:
        if _is_replayed(case, batch):
            return step_ns(case, batch)
        if case.model.pipeline_parallel > 1:  # to first order
            nominal = sensitivity_of(case, batch)
            return round(nominal.step_ns * float(dispatch**nominal.host))
        return length_ns(plans_of(case, batch, host_scale=dispatch))

    return play


def issuing(case: Case, engine: EngineCosts) -> EngineCosts:
    """`engine` with what issuing the steps of `case` takes its host: of a decode step that is not replayed whole, and
    of a step with a prefill. Stages (`pipeline_parallel_size`) are left at 0."""
    decode, mixed = _issue_ns(case)
    return replace(
        engine,
        issue_decode_ns=round(engine.device_scale * engine.dispatch_scale * decode),
        issue_mixed_ns=round(engine.device_scale * engine.dispatch_scale * mixed),
    )


@lru_cache(maxsize=64)
def _issue_ns(case: Case) -> tuple[int, int]:
    """(decode step, step with a prefill) on the host that the hardware profile has, ns."""
    if case.model.pipeline_parallel > 1:
        return 0, 0
    decode = Batch("decode", (Group(1, case.scenario.engine.query_tokens, MIN_TOKENS),))
    prefill = Batch("prefill", (Group(1, min(ISSUED_TOKENS, case.scenario.engine.max_num_batched_tokens), 0),))
    return 0 if _is_replayed(case, decode) else _issued(case, decode), _issued(case, prefill)


def _is_replayed(case: Case, batch: Batch) -> bool:
    """Whether one graph is all of the step."""
    scenario = case.scenario
    mode = effective_graph(scenario, batch)[0]
    return mode != "eager" and not (mode == "aclgraph" and in_pieces(scenario.engine, batch.phase))


def _issued(case: Case, batch: Batch) -> int:
    steps = plans_of(case, batch)[0].steps
    calls = sum(step.launch.host_ns for step in steps if isinstance(step, Issue))
    return calls + sum(step.host_ns for step in steps if isinstance(step, Replay))
