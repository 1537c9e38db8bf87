"""What-ifs on hand-made steps whose outcome a reader can compute, and what holds of each of them on any step."""

from __future__ import annotations

import pytest
from hypothesis import given

from scenarios.timeline import Timeline
from sim.hardware.profile import load_hardware
from sim.imported.replay.build import build
from sim.imported.replay.patterns import BY_NAME, PATTERNS, runs
from sim.imported.replay.play import play, timelines
from sim.imported.replay.transforms.base import Bound
from sim.imported.replay.whatif import TRANSFORMS, TRIED, asked, what_if
from tests.sim.imported.replay.steps import call, collective, kernel, step, steps, synchronize, violations, wait


def after(measured: Timeline | list[Timeline], text: str, end: Bound = "value") -> tuple[int, list[Timeline]]:
    """(Makespan, timelines) with one what-if."""
    item = asked(text)
    graph = TRANSFORMS[item.name].apply(build(measured if isinstance(measured, list) else [measured]), item, end).graph
    schedule = play(graph)
    return schedule.makespan_ns, list(timelines(graph, schedule))


def host_bound() -> Timeline:
    """Three kernels of 10, each 5 behind a call of 50; the host waits at the end."""
    return step(
        call(0, 50),
        kernel(55, 65, "Mul", 0),
        call(60, 110),
        kernel(115, 125, "Add", 2),
        call(120, 170),
        kernel(175, 185, "Mul", 4),
        synchronize(170, 188),
    )


def test_graph_mode_is_one_launch_and_the_kernels_in_a_row() -> None:
    length, [result] = after(host_bound(), "remove_host_gaps:launch_us=0.1,gap_us=0.002")
    # The launch of 100, 5 until the first kernel, three kernels of 10 with gaps of 2 between, 3 until the host goes on.
    assert length == 100 + 5 + 3 * 10 + 2 * 2 + 3
    assert [s.name for s in result.spans if s.process == "Python"] == ["graph launch", "synchronize"]
    assert [result.spans[s.launched_by].name for s in result.spans if s.op_type] == ["graph launch"] * 3


def test_the_gaps_of_a_profile_that_are_shorter_stay() -> None:
    measured = step(call(0, 1), call(1, 2), kernel(5, 10, by=0), kernel(11, 20, by=1), end=20)
    assert after(measured, "remove_host_gaps:launch_us=0,gap_us=1")[0] < 20


def test_a_synchronise_cuts_the_graph_in_two() -> None:
    spans = [call(0, 5), kernel(6, 8, by=0), call(6, 9), kernel(10, 12, by=2), synchronize(10, 13)]
    more = [call(14, 18), kernel(19, 20, by=5), call(19, 23), kernel(24, 25, by=7)]
    _, [result] = after(step(*spans, *more), "remove_host_gaps")
    assert [s.name for s in result.spans].count("graph launch") == 2


def rendezvous(wait_ns: int) -> Timeline:
    """Two kernels op by op, and a collective that waits for a rank that is not here."""
    spans = [call(0, 50), kernel(50, 60, by=0), call(60, 100), collective(100, 110 + wait_ns, by=2)]
    spans += [wait(100, 100 + wait_ns), call(100, 105), kernel(110 + wait_ns, 120 + wait_ns, "Mul", 5)]
    return step(*spans)


def test_in_graph_mode_waiting_shrinks_as_the_rest_does() -> None:
    text = "remove_host_gaps:launch_us=0,gap_us=0"
    lengths = [after(rendezvous(80), text, end)[0] for end in ("better", "value", "worse")]
    alone = after(rendezvous(80), "no_waits")[0]
    assert (alone, lengths[0], lengths[2] - lengths[0]) == (120, 30, 80)
    assert lengths[1] - lengths[0] == 80 * 30 // 120


def test_a_wait_that_no_jitter_explains_stays_in_graph_mode() -> None:
    """Another rank came 900 late where this one worked for 100: it did something else."""
    result = what_if([rendezvous(900)], ["remove_host_gaps:launch_us=0,gap_us=0"])
    assert result.rows[0]["low"] == result.rows[0]["high"] == 1020 / 930
    assert "1 waits longer than this rank's own time" in result.rows[0]["assumed"][-1]


def norm(start: int) -> list[str]:
    return ["Add", "Cast", "Pows", "ReduceMean", "Adds", "Rsqrt", "Mul", "Cast", "Mul"]


def unfused(shapes: str = "4,8") -> Timeline:
    spans = []
    for number, op_type in enumerate([*norm(0), "MatMulV2"]):
        start = 100 * number
        spans.append(call(start, start + 50))
        spans.append(kernel(start + 50, start + 60 + number, op_type, 2 * number, shapes=shapes))
    return step(*spans, end=1000)


def test_a_fused_kernel_stands_for_its_primitives_and_saves_their_calls() -> None:
    length, [result] = after(unfused(), "fuse:add_rms_norm")
    assert [s.op_type for s in result.spans if s.op_type] == ["AddRmsNorm", "MatMulV2"]
    assert sum(s.process == "Python" for s in result.spans) == 2
    # Eight calls of 50 are gone, seven of them with the 50 of host work in front; the first had none.
    assert length == 1000 - 8 * 50 - 7 * 50
    fused = next(s for s in result.spans if s.op_type == "AddRmsNorm")
    assert dict(fused.args)["Input Shapes"] == "4,8;4,8;8"


def test_a_fused_kernel_by_bytes_lies_between_its_ends() -> None:
    lengths = {
        end: next(s.duration_ns for s in after(unfused(), "fuse", end)[1][0].spans if s.op_type == "AddRmsNorm")
        for end in ("better", "value", "worse")
    }
    assert lengths["better"] == 10  # the shortest primitive
    assert lengths["better"] <= lengths["value"] <= lengths["worse"] <= 2 * 18


def test_a_fused_kernel_is_priced_where_hardware_is_named() -> None:
    result = what_if([unfused("1,4096")], ["fuse:add_rms_norm"], load_hardware("atlas_a2_910b2"))
    [row] = result.rows
    assert "1 of the fused kernels priced on atlas_a2_910b2" in row["assumed"][1]
    fused = next(s for s in result.changed[0].spans if s.op_type == "AddRmsNorm")
    assert 2000 < fused.duration_ns < 4000  # the reference set has 2.7 us for it


@pytest.mark.parametrize(
    ("pattern", "kernels"),
    [
        ("add_rms_norm", "Add Cast Pow ReduceMean Add Rsqrt Mul Cast Mul"),
        ("add_rms_norm", "Add Pows ReduceMeanD Adds Rsqrt Mul Mul"),
        ("add_rms_norm", "Add Cast Square ReduceMean Adds Sqrt RealDiv Cast Mul"),
        ("add_rms_norm", "Add RmsNorm"),
        ("rms_norm", "Cast Pows ReduceMean Adds Rsqrt Mul Cast Mul"),
        ("rms_norm", "Pow ReduceMean Adds Sqrt Reciprocal Mul Mul"),
        ("swiglu", "Swish Mul"),
        ("swiglu", "Sigmoid Mul Mul"),
        ("rope", "Mul Slice Neg Slice ConcatD Mul Add Mul Slice Neg Slice ConcatD Mul Add"),
    ],
)
def test_variants_of_a_pattern_are_found_once_and_whole(pattern: str, kernels: str) -> None:
    names = kernels.split()
    [run] = runs(BY_NAME[pattern], ["MatMulV2", *names, "MatMulV2"])
    assert run == range(1, 1 + len(names))


def test_what_only_looks_like_a_pattern_is_none() -> None:
    for names in ("Add Mul Mul", "Cast Pows ReduceMean Rsqrt Mul Mul", "Swish Add", "Mul Neg ConcatD Mul Add"):
        assert all(not list(runs(pattern, names.split())) for pattern in PATTERNS)


def test_scaling_device_bound_kernels_scales_the_step() -> None:
    measured = step(call(0, 1), kernel(1, 101, "MatMulV2", 0), kernel(101, 201, "Add", 0))
    assert after(measured, "scale:matrix_products,factor=0.5")[0] == 201 - 50
    assert after(measured, "scale:Add,factor=2")[0] == 201 + 100


def communicating() -> Timeline:
    spans = [call(0, 1), kernel(1, 11, by=0), call(1, 2), collective(11, 61, by=2), wait(11, 41)]
    return step(*spans, call(2, 3), kernel(61, 71, "Mul", 5))


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("no_waits", 71 - 30),
        ("shrink_collectives:factor=0.5", 71 - 10),
        ("remove_collectives", 71 - 50),
        ("scale:factor=1", 71),
    ],
)
def test_of_a_collective_wait_and_transfer_are_told_apart(text: str, length: int) -> None:
    makespan, [result] = after(communicating(), text)
    assert makespan == length
    assert any(s.kind == "wait" for s in result.spans) == (text in ("shrink_collectives:factor=0.5", "scale:factor=1"))


def test_a_rank_that_gets_faster_helps_the_one_that_waits() -> None:
    ranks = [
        step(call(0, 1), kernel(1, 10, "MatMulV2", 0), collective(10, 110, by=0), kernel(110, 120, "Add", 0)),
        step(call(0, 1), kernel(1, 90, "Conv2D", 0), collective(90, 110, by=0), kernel(110, 115, "Add", 0), rank=1),
    ]
    faster, result = after(ranks, "scale:Conv2D,factor=0.5")
    assert faster == 120 - 45  # 44 of the 89 are left
    assert [t.end_ns for t in result] == [75, 70]


def test_what_one_rank_sends_another_still_waits_for() -> None:
    name = "hcom_batchSendRecv__1_0_1"
    ranks = [
        step(call(0, 1), kernel(1, 10, by=0), collective(10, 110, name, by=0), kernel(110, 120, by=0)),
        step(call(0, 1), kernel(1, 90, by=0), collective(90, 110, name, by=0), kernel(110, 120, by=0), rank=1),
    ]
    assert after(ranks, "no_waits")[0] == 120
    assert after(ranks, "remove_collectives")[0] == 100


def test_a_kernel_moves_beside_what_it_does_not_need() -> None:
    """The cache write reads what the projection wrote; nothing reads what it writes until the attention."""
    spans = [
        call(0, 1),
        kernel(1, 11, "MatMulV2", 0, shapes="1,64", out="1,8"),
        kernel(11, 31, "ScatterPaKvCache", 0, shapes="1,8", out="9,9"),
        kernel(31, 61, "MatMulV3", 0, shapes="1,64", out="1,32"),
        kernel(61, 71, "FusedAttention", 0, shapes="1,32;9,9"),
    ]
    length, [result] = after(step(*spans), "second_stream:kv_cache")
    assert length == 71 - 20
    times = {s.op_type: (s.thread, s.start_ns) for s in result.spans if s.op_type}
    assert times["ScatterPaKvCache"] == ("Stream 0 beside", 11)
    assert times["FusedAttention"] == ("Stream 0", 41)


def test_without_shapes_a_kernel_stays_between_its_neighbours() -> None:
    measured = step(call(0, 1), kernel(1, 11, by=0), kernel(11, 31, "ScatterPaKvCache", 0), kernel(31, 61, "Mul", 0))
    assert after(measured, "second_stream:kv_cache")[0] == 61


@given(steps())
def test_no_what_if_breaks_what_the_device_keeps(measured: Timeline) -> None:
    for text in (*TRIED, "scale:matrix_products,factor=3", "scale:factor=0", "second_stream:other_vector"):
        if text.startswith("second_stream"):
            continue  # takes kernels off their stream: below
        length, [result] = after(measured, text)
        assert violations(result) == [], text
        assert all(s.duration_ns >= 0 for s in result.spans)
        assert length >= 0


@given(steps())
def test_moved_kernels_keep_the_order_of_both_streams(measured: Timeline) -> None:
    _, [result] = after(measured, "second_stream:matrix_products")
    assert violations(result) == []


@given(steps())
def test_removing_gaps_never_slows_a_step(measured: Timeline) -> None:
    before = play(build([measured])).makespan_ns
    assert after(measured, "remove_host_gaps:launch_us=0,gap_us=0")[0] <= before


@given(steps())
def test_scaling_by_one_changes_nothing(measured: Timeline) -> None:
    graph = build([measured])
    result = TRANSFORMS["scale"].apply(graph, asked("scale:factor=1"), "value").graph
    assert result.tasks == graph.tasks


@given(steps())
def test_what_takes_less_never_takes_longer(measured: Timeline) -> None:
    before = play(build([measured])).makespan_ns
    for text in ("scale:factor=0.5", "shrink_collectives:factor=0", "no_waits", "remove_collectives"):
        assert after(measured, text)[0] <= before
