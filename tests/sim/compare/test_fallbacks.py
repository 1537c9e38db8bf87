"""A step that takes longer than the other: what probably happened, by what both show."""

from __future__ import annotations

import pytest

from scenarios.loader import load_scenario
from scenarios.timeline import Span, Timeline
from sim.compare.fallbacks import Evidence, evidence_of, likely
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of


def played(*sets: str) -> Evidence:
    timeline = predict(case_of(load_scenario("qwen3_0_6b_decode", sets))).timeline
    return evidence_of("B" if sets else "A", timeline)


def names(a: Evidence, b: Evidence) -> list[str]:
    return [row["name"] for row in likely(a, b)]


def test_a_graph_that_was_not_replayed_is_named() -> None:
    graph, eager = played(), played("optimizations.graph=eager")
    fallbacks = likely(graph, eager)
    assert "graph missed: issued call by call" in [row["name"] for row in fallbacks]
    assert {row["side"] for row in fallbacks} == {"B"}
    assert likely(eager, graph) == fallbacks  # whichever is given first


def test_steps_that_take_alike_name_nothing() -> None:
    one = played()
    assert likely(one, one) == []


def test_a_host_that_is_late_with_the_same_calls_is_starved() -> None:
    fast = Evidence("A", 10_000, 500, 500, 1_000, 50)
    slow = Evidence("B", 20_000, 500, 500, 10_500, 60)
    assert names(fast, slow) == ["host starved"]


def test_one_long_gap_is_a_compilation_and_no_starved_host() -> None:
    fast = Evidence("A", 10_000, 500, 20, 1_000, 50)
    slow = Evidence("B", 20_000, 500, 20, 10_500, 9_000)
    assert names(fast, slow) == ["recompilation or a synchronisation"]


def test_more_kernels_were_not_fused() -> None:
    fast = Evidence("A", 10_000, 500, 20, 100, 10)
    slow = Evidence("B", 14_000, 900, 20, 200, 10)
    assert names(fast, slow) == ["kernels not fused"]


def test_the_evidence_of_a_timeline_by_hand() -> None:
    """Two kernels of 2 us, 6 us apart, whose call for the second returned 1 us before it started."""
    spans = (
        Span("call", "Python", "Python", 0, 1_000),
        Span("call", "Python", "Python", 1_000, 8_000),
        Span("k", "Ascend Hardware", "Stream 0", 1_000, 3_000, "matmul", "MatMulV2", 0, 0, 0),
        Span("k", "Ascend Hardware", "Stream 0", 9_000, 11_000, "matmul", "MatMulV2", 1, 0, 1),
    )
    evidence = evidence_of("A", Timeline(spans, 0, 11_000))
    assert (evidence.kernels, evidence.launches) == (2, 2)
    assert evidence.gap_us == pytest.approx(6.0)
    assert evidence.late_us == pytest.approx(5.0)
