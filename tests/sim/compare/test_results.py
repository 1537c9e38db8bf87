"""Two answers side by side: what was set differently, what changed, and where the difference lies."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.lowering.parallel import shard
from scenarios.schema import Scenario
from sim.compare import compare_results
from sim.hardware.profile import HardwareProfile
from sim.predict.explain import advise, diagnose
from sim.predict.gains import gains_of
from sim.predict.predict import predict
from sim.predict.result import run_result
from sim.predict.steps import Case
from sim.report.files import to_json
from tests.scenarios.making import TINY, scenario
from tests.sim.hardware_maker import hardware

HW = hardware()


def document(total_us: float, matmul_us: float, free_us: float, name: str, **settings: Any) -> dict[str, Any]:
    """The parts of a `run` document that are compared."""
    return {
        "scenario": {"name": name, "description": name, "workload": {"batch": 1}, **settings},
        "hardware": "here",
        "bottleneck": {"name": "HBM-bound" if matmul_us > free_us else "host-bound"},
        "metrics": {"tpot_ms": {"value": total_us / 1000, "low": 0.0, "high": 9.0}},
        "step": {
            "total_us": total_us, "computing_us": total_us - free_us, "free_us": free_us,
            "communication_not_overlapped_us": 0.0, "communication_wait_us": 0.0,
        },
        "kernels": [
            {"kind": "matmul", "op_type": "MatMulV2", "total_us": matmul_us - 1.0},
            {"kind": "matmul", "op_type": "MatMulV3", "total_us": 1.0},
            {"kind": "add", "op_type": "Add", "total_us": total_us - free_us - matmul_us},
        ],
        "kernel_count": 3, "launches": 2, "hbm_bytes": 100, "global_memory_bytes": 0,
    }  # fmt: skip


def run(result: Scenario, name: str, hw: HardwareProfile = HW) -> dict[str, Any]:
    prediction = predict(Case(result, shard(TINY, result.engine.tensor_parallel_size), hw))
    gains = gains_of(prediction.case)
    return run_result(prediction, diagnose(prediction), gains, advise(prediction, gains), name)


SLOW = document(1000.0, 300.0, 600.0, "slow")
FAST = document(500.0, 300.0, 110.0, "fast")


def test_pairs_and_ratios() -> None:
    result = compare_results(SLOW, FAST)
    assert result["metrics"]["tpot_ms"] == {"a": 1.0, "b": 0.5, "ratio": 0.5}
    assert result["step"]["free_us"] == {"a": 600.0, "b": 110.0, "ratio": 110 / 600}
    assert result["counts"]["hbm_bytes"] == {"a": 100, "b": 100, "ratio": 1.0}
    assert result["counts"]["global_memory_bytes"] == {"a": 0, "b": 0, "ratio": None}  # no ratio to nothing


def test_causes_sum_to_the_difference_and_come_in_its_order() -> None:
    causes = compare_results(SLOW, FAST)["causes"]
    assert causes == [
        {"cause": "device idle", "a_us": 600.0, "b_us": 110.0},
        {"cause": "add", "a_us": 100.0, "b_us": 90.0},
        {"cause": "matmul", "a_us": 300.0, "b_us": 300.0},  # two profiler names, one kind
    ]
    assert sum(c["b_us"] - c["a_us"] for c in causes) == 500.0 - 1000.0


def test_of_a_collective_transfer_and_waiting_are_causes_of_their_own() -> None:
    one, two = (
        run(item, str(ranks), hardware(host__rank_skew_us=500.0))
        for ranks, item in (
            (1, scenario()),
            (2, scenario(engine__tensor_parallel_size=2, optimizations__graph="eager")),
        )
    )
    causes = {c["cause"]: c["b_us"] for c in compare_results(one, two)["causes"]}
    transfer = sum(k["total_us"] for k in two["kernels"] if k["bound"] == "link")
    assert transfer > 0
    assert causes["all_reduce"] + causes["all_gather"] == pytest.approx(transfer)
    assert transfer + causes["waiting for other ranks"] == pytest.approx(two["step"]["communication_us"])
    # The host's input preparation keeps an AI CPU busy next to the stream: all else follows one another.
    difference = two["step"]["total_us"] - one["step"]["total_us"]
    assert sum(causes.values()) - sum(c["a_us"] for c in compare_results(one, two)["causes"]) == pytest.approx(
        difference
    )


def test_the_sentence_names_times_factor_and_cause() -> None:
    assert compare_results(SLOW, FAST)["sentence"] == (
        "A step of fast takes 0.50 ms against 1.00 ms of slow: 2.00x faster, most of it device idle (-0.490 ms). "
        "The bottleneck goes from host-bound to HBM-bound."
    )
    back = compare_results(FAST, SLOW)["sentence"]
    assert "2.00x slower, most of it device idle (+0.490 ms)" in back


def test_the_cause_pulls_in_the_direction_of_the_change() -> None:
    # The idle time falls by more than the matmuls grow would not make a step slower; here they do.
    before = document(1000.0, 300.0, 600.0, "before")
    after = document(1100.0, 800.0, 200.0, "after")
    assert "slower, most of it matmul (+0.500 ms)" in compare_results(before, after)["sentence"]


def test_equal_steps_are_as_fast() -> None:
    result = compare_results(SLOW, SLOW)
    assert result["sentence"] == (
        "A step of slow (B) takes 1.00 ms against 1.00 ms of slow (A): as fast. Both are host-bound."
    )
    assert result["settings"] == []
    assert all(pair["ratio"] == 1 for pair in result["step"].values() if pair["a"])


def test_settings_that_differ_are_listed_with_both_values() -> None:
    other = document(1000.0, 300.0, 600.0, "other", workload={"batch": 8}, protocol={"seed": 3})
    assert compare_results(SLOW, other)["settings"] == [
        {"setting": "workload.batch", "a": 1, "b": 8},
        {"setting": "protocol.seed", "a": None, "b": 3},
    ]


def test_two_real_answers() -> None:
    eager = run(scenario(workload__batch=4), "eager")
    graph = run(scenario(workload__batch=4, optimizations__graph="ge_graph"), "graph")
    result = compare_results(eager, graph)
    assert [row["setting"] for row in result["settings"]] == ["optimizations.graph"]
    difference = graph["step"]["total_us"] - eager["step"]["total_us"]
    assert sum(c["b_us"] - c["a_us"] for c in result["causes"]) == pytest.approx(difference)
    assert "faster, most of it device idle" in result["sentence"]
    assert result["step"]["total_us"]["ratio"] == graph["step"]["total_us"] / eager["step"]["total_us"]
    assert to_json(result) == to_json(compare_results(eager, graph))
