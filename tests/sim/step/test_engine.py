"""The rules of a step, as small stories with the times worked out by hand."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from scenarios.timeline import Timeline, step_time
from sim.step import engine
from sim.step.plan import HostWork, Plan, Replay, Synchronize, Update
from tests.sim.plans import SYNCHRONIZE, issue, kernels, launch, log, play

ROOT = Path(__file__).parents[3]


def test_two_kernels_and_one_event() -> None:
    plan = Plan(
        (
            issue("a", 100, host_ns=2, records=("a is done",)),
            issue("b", 50, host_ns=2, stream=1, waits=("a is done",)),
            Synchronize("synchronize", 3),
        ),
        launch_thread=False,
        queue_depth=1,
    )
    timeline = play(plan)
    assert log(timeline) == [
        ("Python", "a", 0, 2),
        ("Python", "b", 2, 4),
        ("Python", "synchronize", 4, 155),
        ("Stream 0", "a", 2, 102),
        ("Stream 1", "b", 102, 152),
    ]
    assert timeline.end_ns == 155
    assert step_time(timeline).free_ns == 2 + 3


def test_a_kernel_that_waits_blocks_what_stands_behind_it() -> None:
    plan = Plan(
        (
            issue("slow", 100, host_ns=1, records=("e",)),
            issue("waits", 10, host_ns=1, stream=1, waits=("e",)),
            issue("behind", 10, host_ns=1, stream=1),
        ),
        launch_thread=False,
        queue_depth=1,
    )
    assert kernels(play(plan)) == [("slow", 1, 101), ("waits", 101, 111), ("behind", 111, 121)]


def test_a_late_host_leaves_the_device_idle() -> None:
    plan = Plan((*[issue("op", 3, host_ns=10)] * 3, SYNCHRONIZE), launch_thread=False, queue_depth=1)
    timeline = play(plan)
    assert kernels(timeline) == [("op", 10, 13), ("op", 20, 23), ("op", 30, 33)]
    assert (timeline.end_ns, step_time(timeline).computing_ns, step_time(timeline).free_ns) == (33, 9, 24)


def test_the_host_runs_ahead_of_long_kernels() -> None:
    plan = Plan((*[issue("op", 30, host_ns=10)] * 3, SYNCHRONIZE), launch_thread=False, queue_depth=1)
    timeline = play(plan)
    assert kernels(timeline) == [("op", 10, 40), ("op", 40, 70), ("op", 70, 100)]
    assert log(timeline, "Python")[2:] == [("Python", "op", 20, 30), ("Python", "synchronize", 30, 100)]


def test_a_launch_thread_works_while_the_python_thread_goes_on() -> None:
    """TASK_QUEUE_ENABLE=0 against 1: the same 10 + 6 ns of host work for each kernel, in one thread and in two."""
    one = Plan((*[issue("op", 5, host_ns=16)] * 3, SYNCHRONIZE), launch_thread=False, queue_depth=1)
    two = Plan((*[issue("op", 5, host_ns=10, launch_ns=6)] * 3, SYNCHRONIZE), launch_thread=True, queue_depth=100)
    assert kernels(play(one)) == [("op", 16, 21), ("op", 32, 37), ("op", 48, 53)]
    assert kernels(play(two)) == [("op", 16, 21), ("op", 26, 31), ("op", 36, 41)]
    assert log(play(two), "CANN") == [
        ("launch", "launch op", 10, 16),
        ("launch", "launch op", 20, 26),
        ("launch", "launch op", 30, 36),
    ]


def test_a_full_launch_queue_holds_the_python_thread() -> None:
    """One place: the third entry waits until the thread takes the second, the fourth until it takes the third."""
    plan = Plan((*[issue("op", 0, host_ns=1, launch_ns=10)] * 4, SYNCHRONIZE), launch_thread=True, queue_depth=1)
    timeline = play(plan)
    assert log(timeline, "Python") == [
        ("Python", "op", 0, 1),
        ("Python", "op", 1, 2),
        ("Python", "op", 2, 3),
        ("Python", "op", 11, 12),
        ("Python", "synchronize", 21, 41),
    ]
    assert [(start, end) for _, _, start, end in log(timeline, "CANN")] == [(1, 11), (11, 21), (21, 31), (31, 41)]


def test_a_deeper_queue_holds_it_later() -> None:
    plan = Plan((*[issue("op", 0, host_ns=1, launch_ns=10)] * 4, SYNCHRONIZE), launch_thread=True, queue_depth=2)
    assert [start for _, _, start, _ in log(play(plan), "Python")] == [0, 1, 2, 3, 11]


def test_a_replay_starts_its_kernels_at_once_and_each_keeps_its_gap() -> None:
    graph = Replay(
        "decode", (launch("a", 10, gap_ns=2), launch("b", 10, gap_ns=2), launch("c", 10, gap_ns=2)), 20, 5, 7
    )
    timeline = play(Plan((graph, SYNCHRONIZE), launch_thread=True, queue_depth=4))
    assert log(timeline) == [
        ("Python", "replay decode", 0, 20),
        ("Python", "synchronize", 20, 66),
        ("launch", "launch replay decode", 20, 25),
        ("Stream 0", "a", 32, 42),
        ("Stream 0", "b", 44, 54),
        ("Stream 0", "c", 56, 66),
    ]


def test_a_gap_is_hidden_by_a_late_arrival() -> None:
    steps = (
        issue("a", 10, host_ns=5, gap_ns=4),
        issue("b", 10, host_ns=12, gap_ns=4),
        issue("c", 10, host_ns=12, gap_ns=4),
    )
    plan = Plan((*steps, SYNCHRONIZE), launch_thread=False, queue_depth=1)
    # b comes 2 after the end of a and still waits out the other 2 of its gap; c comes 0 after the end of b.
    assert kernels(play(plan)) == [("a", 5, 15), ("b", 19, 29), ("c", 33, 43)]
    slower = Plan((steps[0], issue("b", 10, host_ns=30, gap_ns=4), SYNCHRONIZE), launch_thread=False, queue_depth=1)
    assert kernels(play(slower)) == [("a", 5, 15), ("b", 35, 45)]


def test_eager_work_stays_behind_a_graph_that_was_launched_before_it() -> None:
    steps = (Replay("g", (launch("captured", 10),), 5, 0, 100), issue("eager", 10, host_ns=5), SYNCHRONIZE)
    plan = Plan(steps, launch_thread=False, queue_depth=1)
    assert kernels(play(plan)) == [("captured", 105, 115), ("eager", 115, 125)]


def test_an_update_gates_the_kernel_that_waits_for_it() -> None:
    """The graph is started first and its parameters follow, as vLLM-Ascend does for attention in aclgraph mode."""
    graph = Replay(
        "decode",
        (
            launch("q", 10),
            launch("attention", 10, waits=("u0",)),
            launch("o", 10),
            launch("attention", 10, waits=("u1",)),
        ),
        host_ns=5,
        launch_ns=0,
        start_ns=0,
    )
    steps = (graph, Update("attention 0", 40, "u0"), Update("attention 1", 10, "u1"), Synchronize("step", 1))
    timeline = play(Plan(steps, launch_thread=False, queue_depth=1))
    # u0 comes at 45, long after q; u1 at 55, before o has ended.
    assert kernels(timeline) == [("q", 5, 15), ("attention", 45, 55), ("o", 55, 65), ("attention", 65, 75)]
    assert log(timeline, "Python") == [
        ("Python", "replay decode", 0, 5),
        ("Python", "update attention 0", 5, 45),
        ("Python", "update attention 1", 45, 55),
        ("Python", "synchronize step", 55, 76),
    ]


def test_an_update_takes_no_time_of_the_launch_thread() -> None:
    steps = (issue("op", 0, host_ns=1, launch_ns=50), Update("u", 9, "e"), issue("k", 1, launch_ns=1, waits=("e",)))
    timeline = play(Plan(steps, launch_thread=True, queue_depth=4))
    assert log(timeline, "CANN") == [("launch", "launch op", 1, 51), ("launch", "launch k", 51, 52)]


def test_synchronize_drains_the_launch_queue_and_every_stream() -> None:
    steps = (
        issue("a", 100, host_ns=1, launch_ns=5),
        issue("b", 10, host_ns=1, launch_ns=200, stream=1),
        Synchronize("synchronize", 4),
        HostWork("sample", 6),
        issue("c", 10, host_ns=1, launch_ns=5),
    )
    timeline = play(Plan(steps, launch_thread=True, queue_depth=8))
    assert log(timeline) == [
        ("Python", "a", 0, 1),
        ("Python", "b", 1, 2),
        ("Python", "synchronize", 2, 220),  # b is launched at 206 and ends at 216
        ("Python", "sample", 220, 226),
        ("Python", "c", 226, 227),
        ("launch", "launch a", 1, 6),
        ("launch", "launch b", 6, 206),
        ("launch", "launch c", 227, 232),
        ("Stream 0", "a", 6, 106),
        ("Stream 1", "b", 206, 216),
        ("Stream 0", "c", 232, 242),
    ]
    # Nobody waits for c, so the step ends with it.
    assert timeline.end_ns == 242


def test_synchronize_with_nothing_to_wait_for_costs_its_own_time() -> None:
    plan = Plan((Synchronize("synchronize", 4), Synchronize("synchronize", 4)), launch_thread=True, queue_depth=1)
    assert log(play(plan)) == [("Python", "synchronize", 0, 4), ("Python", "synchronize", 4, 8)]


def test_an_empty_plan_takes_no_time() -> None:
    assert play(Plan((), launch_thread=True, queue_depth=1)) == Timeline((), 0, 0)


def test_a_step_outlasts_a_launch_thread_that_nobody_waits_for() -> None:
    assert play(Plan((Replay("empty", (), 1, 5, 0),), launch_thread=True, queue_depth=1)).end_ns == 6


def a_plan_with_everything() -> Plan:
    captured = [
        launch(
            f"k{i}", 50 + 7 * i, stream=i % 3, layer=i, gap_ns=i % 4, hbm=0.9, vector=0.3 * (i % 3), records=(f"e{i}",)
        )
        for i in range(40)
    ]
    waiting = [launch(f"w{i}", 31, stream=(i + 1) % 3, waits=(f"e{i}", f"u{i % 4}"), cube=0.8) for i in range(40)]
    updates = [Update(f"attention {i}", 200, f"u{i}") for i in range(4)]
    eager = [issue(f"x{i}", 40, host_ns=9, launch_ns=4, stream=i % 2, hbm=0.7) for i in range(30)]
    return Plan((*eager, Replay("g", (*captured, *waiting), 60, 20, 10), *updates, SYNCHRONIZE), True, 2)


def test_the_same_bytes_whatever_the_hash_seed() -> None:
    code = (
        "import hashlib; from sim.step import engine; "
        "from tests.sim.step.test_engine import a_plan_with_everything as p; "
        "print(hashlib.sha256(repr(engine.play(p())).encode()).hexdigest())"
    )
    digest = hashlib.sha256(repr(engine.play(a_plan_with_everything())).encode()).hexdigest()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == digest
