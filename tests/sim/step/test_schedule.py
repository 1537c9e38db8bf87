"""What both players hand back: spans with their lanes and arrows, and errors in words."""

from __future__ import annotations

import pytest

from sim.step import engine, recurrence
from sim.step.plan import HostWork, Plan, Replay, Update
from sim.step.schedule import SimulationStuck
from tests.sim.plans import SYNCHRONIZE, issue, launch, play


def test_arrows_lead_from_a_kernel_to_its_launch_to_its_call() -> None:
    steps = (
        HostWork("prepare", 1),
        issue("a", 9, launch_ns=1),
        Replay("g", (launch("b", 9), launch("c", 9, stream=1)), 1, 1, 0),
    )
    timeline = play(Plan(steps, launch_thread=True, queue_depth=8))
    chain = {}
    for span in timeline.device_spans:
        launcher = timeline.spans[span.launched_by]
        chain[span.name] = (launcher.name, timeline.spans[launcher.launched_by].name)
    assert chain == {
        "a": ("launch a", "a"),
        "b": ("launch replay g", "replay g"),
        "c": ("launch replay g", "replay g"),
    }
    alone = play(Plan((HostWork("prepare", 1), issue("a", 9)), launch_thread=False, queue_depth=8))
    assert alone.spans[alone.device_spans[0].launched_by].name == "a"
    assert alone.spans[0].launched_by == -1


def test_a_span_says_which_op_it_is() -> None:
    one = issue("q_proj", 9, layer=7, launch_ns=1)
    python, cann, device = play(Plan((one,), launch_thread=True, queue_depth=8)).spans
    for span in (python, cann, device):
        assert (span.kind, span.op_type, span.index, span.layer) == ("matmul", "MatMul", 0, 7)
    assert (python.process, cann.process, device.process) == ("Python", "CANN", "Ascend Hardware")


def test_ai_cpu_kernels_lie_on_their_own_lane_and_queue_on_their_stream() -> None:
    steps = (
        issue("mask", 50, lane="AI_CPU", ai_cpu=1.0),
        issue("add", 5, vector=1.0),
        issue("mul", 9, stream=1, vector=0.5),
    )
    timeline = play(Plan(steps, launch_thread=False, queue_depth=1))
    assert [(s.process, s.thread, s.name, s.start_ns, s.end_ns) for s in timeline.device_spans] == [
        ("AI CPU", "AI CPU", "mask", 0, 50),
        ("Ascend Hardware", "Stream 1", "mul", 0, 9),
        ("Ascend Hardware", "Stream 0", "add", 50, 55),
    ]


def test_a_step_that_can_never_end_says_who_waits_for_what() -> None:
    graph = Replay(
        "decode",
        (
            launch("attention", 10, stream=1, layer=3, waits=("update#3",)),
            launch("o_proj", 10, stream=1, layer=3, records=("late",)),
            launch("moe", 10, waits=("late",)),
            launch("gate", 10, stream=2, waits=("never",)),
        ),
        5,
        0,
        0,
    )
    plan = Plan((graph, SYNCHRONIZE, Update("attention", 1, "update#3")), launch_thread=False, queue_depth=1)
    expected = (
        "the simulation is stuck: Python: 'synchronize' waits for 4 kernels; "
        "stream 0: moe waits for event 'late', recorded by o_proj[3] of stream 1; "
        "stream 1: attention[3] waits for event 'update#3', recorded by the update 'attention'; "
        "stream 2: gate waits for event 'never', which nothing records"
    )
    for player in (engine, recurrence):
        with pytest.raises(SimulationStuck) as caught:
            player.play(plan)
        assert str(caught.value) == expected


def test_a_kernel_left_waiting_at_the_end_is_stuck_too() -> None:
    plan = Plan((issue("a", 1, waits=("never",)), HostWork("sample", 5)), launch_thread=False, queue_depth=1)
    for player in (engine, recurrence):
        with pytest.raises(SimulationStuck, match=r"^the simulation is stuck: stream 0: a waits for event 'never'"):
            player.play(plan)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan((), True, 0), "at least 1 entry, not 0"),
        (Plan((issue("a", 1, launch_ns=3),), False, 1), "launch_ns .* is 3, but the plan has no launch thread"),
        (Plan((Replay("g", (), 1, 3, 0),), False, 1), "launch_ns .* is 3, but the plan has no launch thread"),
        (Plan((issue("a", -1),), False, 1), "0 or more: Launch"),
        (Plan((HostWork("w", -1),), False, 1), "0 or more: HostWork"),
        (Plan((issue("a", 1.5),), False, 1), "whole nanoseconds"),
        (Plan((Replay("g", (), 1, 0, 2.0),), False, 1), "whole nanoseconds"),
        (Plan((issue("a", 1, records=("e",)), Update("u", 1, "e")), False, 1), "event 'e' is recorded twice"),
    ],
)
def test_a_plan_without_meaning_is_refused(plan: Plan, message: str) -> None:
    for player in (engine, recurrence):
        with pytest.raises(ValueError, match=message):
            player.play(plan)
