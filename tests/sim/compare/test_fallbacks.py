"""A step that takes longer than the other: what probably happened, by what both show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.loader import load_scenario
from scenarios.timeline import Span, Timeline, is_kernel
from sim.compare.fallbacks import SLOWER, Evidence, evidence_of, likely
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


GRAPH, EAGER = "optimizations.graph=aclgraph", "optimizations.graph=eager"


def of_scenario(name: str, *sets: str) -> Timeline:
    return predict(case_of(load_scenario(name, sets))).timeline


def with_gap(timeline: Timeline, gap_ns: int) -> Timeline:
    """`timeline` with its device and host stopped for `gap_ns` between two kernels in the middle of the step."""
    kernels = sorted(s.start_ns for s in timeline.spans if is_kernel(s))
    at = kernels[len(kernels) // 2]

    def later(ns: int) -> int:
        return ns + gap_ns if ns >= at else ns

    spans = tuple(
        replace(
            s, start_ns=later(s.start_ns), end_ns=later(s.end_ns) if s.start_ns >= at or not is_kernel(s) else s.end_ns
        )
        for s in timeline.spans
    )
    return Timeline(spans, timeline.start_ns, timeline.end_ns + gap_ns)


@pytest.mark.parametrize("name", ["qwen3_0_6b_decode", "qwen3_8b_910b2_eager"])
@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        ((GRAPH,), (EAGER,), "graph missed: issued call by call"),
        ((EAGER,), (EAGER, "protocol.synchronize=op"), "the host waits for its device within the step"),
        ((EAGER,), (EAGER, "engine.task_queue_enable=0"), "host starved"),
        (
            (GRAPH, "optimizations.fusion.rms_norm=true"),
            (GRAPH, "optimizations.fusion.rms_norm=false", "optimizations.fusion.add_rms_norm=false",
             "optimizations.fusion.qkv_norm_rope_cache=false"),
            "kernels not fused",
        ),
        ((GRAPH,), (GRAPH, "workload.batch=64"), "more requests or a longer context, or slower kernels"),
    ],
)  # fmt: skip
def test_the_one_thing_that_was_changed_is_named_first(
    name: str, before: tuple[str, ...], after: tuple[str, ...], first: str
) -> None:
    a, b = (evidence_of(side, of_scenario(name, *sets)) for side, sets in (("A", before), ("B", after)))
    assert b.step_us > SLOWER * a.step_us, "the change is one that is looked into"
    named = likely(a, b)
    assert (named[0]["name"], named[0]["side"]) == (first, "B")


def test_a_stop_between_two_kernels_is_named_as_one() -> None:
    timeline = of_scenario("qwen3_0_6b_decode")
    a, b = evidence_of("A", timeline), evidence_of("B", with_gap(timeline, 20_000_000))
    assert names(a, b) == ["recompilation or a synchronisation"]


def test_other_shapes_are_told_from_slower_kernels() -> None:
    """By hand: 10 kernels as long again, of the same shapes, and of which half have others."""
    same = ((("MatMulV2", "1,4096;4096,4096"), 10),)
    other = ((("MatMulV2", "1,4096;4096,4096"), 5), (("MatMulV2", "64,4096;4096,4096"), 5))
    fast = Evidence("A", 1000, 10, 1, 0, 0, busy_us=900, shapes=same)
    slow = replace(fast, name="B", step_us=2000, busy_us=1900)
    assert names(fast, slow)[0].startswith("slower kernels")
    assert names(fast, replace(slow, shapes=other))[0].startswith("another batch or context")


def test_a_rank_that_is_late_is_named_where_waiting_grew() -> None:
    fast = Evidence("A", 10_000, 500, 20, 100, 10, busy_us=9000, wait_us=500)
    slow = Evidence("B", 14_000, 500, 20, 100, 10, busy_us=9000, wait_us=4500)
    assert names(fast, slow) == ["another rank is late: its host, or more work"]
