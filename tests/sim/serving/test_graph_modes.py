"""engine.cudagraph_mode: which steps are replayed whole, in pieces, or not at all."""

from __future__ import annotations

import pytest

from scenarios.build import build, effective_graph
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.ops.program import Batch, Group
from scenarios.serving.requests import Load, Request
from sim.engines.costs import EngineCosts
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, step_ns
from sim.serving.player import issuing
from sim.serving.simulate import simulate

DECODE = Batch("decode", (Group(12, 1, 1000),))
MIXED = Batch("mixed", (Group(12, 1, 1000), Group(1, 100, 0)))
LARGE = Batch("mixed", (Group(12, 1, 1000), Group(1, 600, 0)))


def case(mode: str) -> Case:
    return case_of(load_scenario("serve_qwen3_14b_910b3", [f"engine.cudagraph_mode={mode}", "model=Qwen3-0.6B"]))


def test_a_mode_that_captures_less_takes_longer_where_the_host_is_slow() -> None:
    times = {
        mode: [step_ns(case(mode), batch) / 1e6 for batch in (DECODE, MIXED, LARGE)]
        for mode in ("NONE", "PIECEWISE", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "null")
    }
    eager, piecewise, both, decode_only, default = times.values()
    assert default == decode_only
    assert both[0] == decode_only[0] < eager[0] / 2
    assert piecewise[0] < eager[0] / 2
    assert both[1] == piecewise[1] < eager[1] / 2
    assert decode_only[1] == eager[1]
    assert len({row[2] for row in times.values()}) == 1  # more tokens than are captured


def test_a_piece_ends_at_what_touches_the_cache() -> None:
    program = build(case("PIECEWISE").scenario, case("PIECEWISE").model, MIXED)
    layers = program.block("layers")
    assert (layers.captured, layers.pieces) == (False, True)
    assert [op.kind for op in layers.ops if layers.alone(op)] == ["kv_cache_write", "attention"]
    assert all(program.block("head").alone(op) for op in program.block("head").ops)


def test_pieces_are_padded_by_tokens() -> None:
    scenario = case("FULL_AND_PIECEWISE").scenario
    assert effective_graph(scenario, DECODE) == ("aclgraph", 16)
    assert effective_graph(scenario, MIXED) == ("aclgraph", 112)
    assert effective_graph(scenario, LARGE) == ("eager", 612)


def test_a_step_in_pieces_is_issued_in_pieces() -> None:
    """Of a step with a prefill, up to the largest captured size, 256 here; a larger one is issued op by op."""
    decode_only, both = (issuing(case(mode), EngineCosts()) for mode in ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"))
    assert decode_only.pieces_tokens == 0
    assert decode_only.issue_ns(12, 1, 100) == decode_only.issue_mixed_ns > 0
    assert both.pieces_tokens == 256
    assert both.issue_ns(12, 1, 244) == both.issue_pieces_ns < both.issue_mixed_ns / 2
    assert both.issue_ns(12, 1, 245) == both.issue_mixed_ns == decode_only.issue_mixed_ns
    assert both.issue_ns(12, 0) == both.issue_decode_ns == 0


def test_short_prompts_come_sooner_where_they_are_replayed_in_pieces() -> None:
    """A host that issues slowly: what it has to issue for a prompt of 100 tokens depends on the mode, and for one that
    is beyond the captured sizes it does not."""

    def ttft_ms(mode: str, prompt: int) -> float:
        requests = tuple(Request(n, n * 200_000_000, prompt, 8) for n in range(4))
        outcome = simulate(case(mode), EngineCosts(dispatch_scale=3.0), Load(requests))
        return float((outcome.first_ns - outcome.arrived_ns).mean()) / 1e6

    assert ttft_ms("FULL_AND_PIECEWISE", 100) < 0.7 * ttft_ms("FULL_DECODE_ONLY", 100)
    assert ttft_ms("FULL_AND_PIECEWISE", 600) == ttft_ms("FULL_DECODE_ONLY", 600)


def test_a_mode_without_aclgraph_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"engine\.cudagraph_mode: has no effect with optimizations\.graph eager"):
        load_scenario("qwen3_8b_decode", ["engine.cudagraph_mode=NONE", "optimizations.graph=eager"])
