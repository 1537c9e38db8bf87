"""engine.cudagraph_mode: which steps are replayed whole, in pieces, or not at all."""

from __future__ import annotations

import pytest

from scenarios.build import build, effective_graph
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.ops.program import Batch, Group
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, step_ns

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


def test_a_mode_without_aclgraph_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"engine\.cudagraph_mode: has no effect with optimizations\.graph eager"):
        load_scenario("qwen3_8b_decode", ["engine.cudagraph_mode=NONE", "optimizations.graph=eager"])
