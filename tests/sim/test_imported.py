"""The diagnosis of imported captures, piece by piece, on columns written here by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.profile import Capture, CaptureSet, Kind, Lane, Step
from scenarios.profile.read.build import Columns, FactTable, Lanes, Texts, ordered
from scenarios.profile.steps import merged, minus, step_times
from sim.hardware.profile import load_hardware
from sim.imported.advice import advise_step
from sim.imported.diagnosis import diagnose_step
from sim.imported.gaps import gaps_of
from sim.imported.kernels import kernels_of
from sim.imported.ranks import waits_of
from sim.imported.result import import_result

STREAM, COMM, HOST = (
    Lane("Ascend Hardware", "Stream 2", 2),
    Lane("Communication", "Group 0"),
    Lane("Python", "Thread 1"),
)
NOWHERE = Path("by-hand")


def capture(*rows: tuple[Any, ...], rank: int = 0, end: int = 10**6, **more: Any) -> Capture:
    """rows: kind, name, start, duration, op type, shapes, row that launched it (in the order of the rows here)."""
    texts, facts, lanes, columns = Texts(NOWHERE), FactTable(NOWHERE), Lanes(), Columns(NOWHERE)
    lane_of = {Kind.HOST: HOST, Kind.COLLECTIVE: COMM}
    full = [(*row, *("", "", -1)[len(row) - 4 :]) for row in rows]
    columns.add(
        kind=[int(r[0]) for r in full],
        lane=[lanes[lane_of.get(r[0], STREAM)] for r in full],
        name=[texts[r[1]] for r in full],
        start_ns=[r[2] for r in full],
        duration_ns=[r[3] for r in full],
        fact=[facts[texts[r[4]], 0, texts[r[5]], texts["DT_BF16;DT_BF16"] if r[5] else 0, 0, 0, 0, 0] for r in full],
        launched_by=[r[6] for r in full],
    )
    given = {
        "reported": (),
        "metadata": {},
        "groups": {},
        "collective_waits_ns": {},
        "dropped": {},
        "notes": (),
        **more,
    }
    step = Step("1", 0, end, 0, end)
    return Capture(
        source="by hand",
        kind="torch_npu",
        rank=rank,
        device="NPU",
        texts=texts.tuple(),
        lanes=tuple(lanes),
        events=ordered(columns.take(), facts.facts()),
        steps=(step,),
        **given,
    )


def diagnosed(result: Capture, hardware: str = "") -> Any:
    [step] = result.steps
    waits = waits_of([result], [step])
    [time] = step_times(result.events, [step], merged(np.empty(0, np.int64), np.empty(0, np.int64)))
    chip = load_hardware(hardware) if hardware else None
    return diagnose_step(result, step, time, waits, chip), waits


def intervals(*pairs: tuple[int, int]) -> tuple[Any, Any]:
    return merged(np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64))


@pytest.mark.parametrize(
    ("a", "b", "left"),
    [
        ([(0, 10)], [(2, 4), (6, 8)], [(0, 2), (4, 6), (8, 10)]),
        ([(0, 10), (20, 30)], [(5, 25)], [(0, 5), (25, 30)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [], [(0, 10)]),
        ([], [(0, 10)], []),
        ([(0, 5), (5, 9), (3, 4)], [(20, 30)], [(0, 9)]),
    ],
)
def test_intervals_less_others(a: list[Any], b: list[Any], left: list[Any]) -> None:
    starts, ends = minus(intervals(*a), intervals(*b))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == left


def test_what_two_windows_hold_counts_for_the_first() -> None:
    events = capture((Kind.KERNEL, "a", 100, 10), (Kind.KERNEL, "b", 200, 10)).events
    steps = [Step("1", 0, 250, 0, 0), Step("2", 150, 300, 0, 0), Step("3", 140, 200, 0, 0)]
    for given, expected in ((steps[:2], [20, 0]), ([steps[0], steps[2]], [20, 0]), ([steps[2], steps[1]], [0, 10])):
        assert [t.computing_ns for t in step_times(events, given, intervals())] == expected


def test_late_host_is_named_and_makes_the_step_host_bound() -> None:
    result, waits = diagnosed(
        capture(
            (Kind.HOST, "aten::mm", 0, 950),
            (Kind.KERNEL, "a", 100, 10, "Add", "", 0),
            (Kind.HOST, "aten::add", 800, 100),
            (Kind.KERNEL, "b", 1000, 10, "Add", "", 2),
        )
    )
    # Idle 110-1000: the call that ends it started at 800.
    assert (result.gaps.late_us, result.gaps.queued_us, result.gaps.unknown_us) == (0.69, 0.2, 0.0)
    assert [(call.name, call.gaps) for call in result.gaps.calls] == [("aten::mm", 1)]
    assert result.name == "host-bound"
    assert "the host had not launched yet, most in aten::mm" in result.evidence
    assert advise_step(result, waits)[0].settings == ("optimizations.graph=aclgraph",)


def test_a_kernel_that_was_queued_is_not_the_hosts_fault() -> None:
    result = capture(
        (Kind.HOST, "aten::mm", 0, 50),
        (Kind.KERNEL, "a", 100, 10, "Add", "", 0),
        (Kind.KERNEL, "b", 500, 10, "Add", "", 0),
    )
    gaps = gaps_of(result, result.steps[0])
    assert (gaps.late_us, gaps.queued_us, gaps.calls) == (0.0, 0.39, ())


def test_without_launches_nobody_knows_whose_the_idle_time_is() -> None:
    found, _ = diagnosed(capture((Kind.KERNEL, "a", 0, 10), (Kind.KERNEL, "b", 1000, 10)))
    assert found.name == "idle-bound"
    assert "whether the host was late is not seen" in found.evidence
    assert found.shares == pytest.approx({"idle, cause unknown": 990 / 1010, "computing: vector": 20 / 1010})


def test_communication_that_nothing_hides_is_named() -> None:
    result, waits = diagnosed(
        capture((Kind.KERNEL, "a", 0, 100, "MatMulV3"), (Kind.COLLECTIVE, "hcom_allReduce_", 100, 900))
    )
    assert result.name == "communication-bound"
    assert result.evidence.startswith("90% of the step (0.00 of 0.00 ms) is in collectives that nothing hides")
    assert any("no collective overlaps" in item.why for item in advise_step(result, waits))


def test_kernels_of_one_shape_are_one_row_with_its_roofline() -> None:
    shapes = "1,4096;4096,4096"
    result = capture(
        *((Kind.KERNEL, f"m{i}", i * 40_000, 30_000, "MatMulV3", shapes) for i in range(4)),
        (Kind.KERNEL, "z", 200_000, 1000, "NobodyKnows", "1"),
    )
    hardware = load_hardware("910b2")
    [matmul, unknown] = kernels_of(result, result.steps[0], 1_000_000, hardware)
    assert (matmul.count, matmul.total_us, matmul.share) == (4, 120.0, 0.12)
    assert (matmul.flops, matmul.bound_source) == (4 * 2 * 4096 * 4096, "predicted")
    moved = 2 * 4096 * 4096  # the weights; the activations stay in L2
    assert matmul.roofline_share == pytest.approx(moved / hardware.memory.hbm_peak_gbps / 30_000, rel=0.01)
    assert (unknown.roofline_share, unknown.unpriced) == (None, "op type NobodyKnows is not known")


@pytest.mark.parametrize(
    "shapes", ["-1,2", "x", ";;;", "1,4096", "9" * 400, "0,0;0,0", ",".join("9" * 18 for _ in range(30))]
)
def test_shapes_that_make_no_sense_are_not_priced_and_break_nothing(shapes: str) -> None:
    for op_type in ("MatMulV3", "Add", "RmsNorm", "FusedInferAttentionScore", "ScatterNdUpdate", "GroupedMatmul"):
        result = capture((Kind.KERNEL, "m", 0, 100, op_type, shapes))
        [row] = kernels_of(result, result.steps[0], 100, load_hardware("910b2"))
        assert row.count == 1


def test_the_last_to_come_is_waited_for_collective_by_collective() -> None:
    ranks = [
        capture((Kind.COLLECTIVE, "x", 100, 200), (Kind.COLLECTIVE, "x", 400, 100), rank=0),
        capture((Kind.COLLECTIVE, "x", 250, 50), (Kind.COLLECTIVE, "x", 350, 150), rank=1),
        capture((Kind.COLLECTIVE, "y", 0, 10), rank=2),
    ]
    waits = waits_of(ranks, [p.steps[0] for p in ranks])
    assert waits.waited_for_us == {0: 0.05, 1: 0.15}
    assert [(r.rank, r.matched, r.wait_us, r.last) for r in waits.by_rank] == [
        (0, 2, 0.15, 1),
        (1, 2, 0.05, 1),
        (2, 0, 0.0, 0),
    ]
    assert [(c.late_us, c.last_rank) for c in waits.collectives] == [(0.15, 1), (0.05, 0)]
    assert waits.same_clock


def test_a_profile_of_one_kernel_has_a_document() -> None:
    document = import_result(CaptureSet((capture((Kind.KERNEL, "a", 5, 10, "Add")),)), None)
    assert document["step"]["total_us"] == 0.01
    assert document["reported_step"] is None
    assert document["advice"][0]["at_most_us"] <= 0.01


def test_a_kernel_without_length_divides_nothing_by_zero() -> None:
    document = import_result(
        CaptureSet((capture((Kind.KERNEL, "a", 5, 0, "MatMulV3", "1,16;16,16")),)), load_hardware("910b2")
    )
    assert document["step"]["total_us"] == 0.0
