"""How a step is played on a host that launches faster or slower than the hardware profile says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from scenarios.batches import capture_sizes
from scenarios.build import effective_graph
from scenarios.ops.program import Batch, Group
from scenarios.passes.graph import in_pieces
from sim.engines.costs import EngineCosts
from sim.predict.steps import Case, length_ns, plans_of, sensitivity_of, step_ns
from sim.step.plan import Issue, Replay

#: Context of the decode step and prompt of the prefill that are issued: any other of their mode has as many calls.
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
    of a step with a prefill, op by op or, up to the largest captured size, in pieces. Stages
    (`pipeline_parallel_size`) are left at 0."""
    decode, mixed, pieces = _issue_ns(case)

    def scaled(ns: int) -> int:
        return round(engine.device_scale * engine.dispatch_scale * ns)

    return replace(
        engine,
        issue_decode_ns=scaled(decode),
        issue_mixed_ns=scaled(mixed),
        issue_pieces_ns=scaled(pieces),
        pieces_tokens=_pieces_tokens(case),
        query_tokens=case.scenario.engine.query_tokens,
    )


@lru_cache(maxsize=64)
def _issue_ns(case: Case) -> tuple[int, int, int]:
    """(decode step, step with a prefill, one that is replayed in pieces) on the host of the hardware profile, ns."""
    if case.model.pipeline_parallel > 1:
        return 0, 0, 0
    engine, largest = case.scenario.engine, _pieces_tokens(case)
    decode = Batch("decode", (Group(1, engine.query_tokens, MIN_TOKENS),))

    def prefill(tokens: int) -> int:
        return _issued(case, Batch("prefill", (Group(1, min(tokens, engine.max_num_batched_tokens), 0),)))

    pieces = prefill(largest) if largest else 0
    return 0 if _is_replayed(case, decode) else _issued(case, decode), prefill(max(ISSUED_TOKENS, largest + 1)), pieces


def _pieces_tokens(case: Case) -> int:
    """Tokens of the largest step with a prefill that is replayed in pieces; 0 where none is."""
    scenario = case.scenario
    if scenario.optimizations.graph != "aclgraph" or not in_pieces(scenario.engine, "mixed"):
        return 0
    return max(capture_sizes(scenario.engine))


def _is_replayed(case: Case, batch: Batch) -> bool:
    """Whether one graph is all of the step."""
    scenario = case.scenario
    mode = effective_graph(scenario, batch)[0]
    return mode != "eager" and not (mode == "aclgraph" and in_pieces(scenario.engine, batch.phase))


def _issued(case: Case, batch: Batch) -> int:
    steps = plans_of(case, batch)[0].steps
    calls = sum(step.launch.host_ns for step in steps if isinstance(step, Issue))
    return calls + sum(step.host_ns for step in steps if isinstance(step, Replay))
