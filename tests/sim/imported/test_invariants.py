"""Whatever a trace holds, all that is said of a step starts from one step: random traces, each with the same checks."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from scenarios.errors import ScenarioError
from scenarios.profile import CaptureSet
from scenarios.profile.read import CaptureError, read_captures
from scenarios.timeline import step_time
from sim.compare.paths import time_by_path
from sim.imported.replayed import replayed
from sim.imported.result import import_result
from sim.imported.timelines import timelines_of
from sim.report.imported import print_import
from tests.scenarios.profile import cuda

MARKS = ("ProfilerStep#{}", "execute_context_0(0)_generation_8({})", "step[DECODE bs={}]", "iteration {}", "")


def random_trace(random: Random) -> list[dict[str, Any]]:
    """Some steps of kernels on three streams; a host that may run ahead; durations over successors, lost rows."""
    events: list[dict[str, Any]] = []
    free: dict[int, float] = {}
    name, lag, now, number = random.choice(MARKS), random.choice([0, 0, 500, 3000]), 1000.0, 0
    for step in range(random.randint(1, 6)):
        opens = now
        for _ in range(random.randint(0, 8)):
            now, number = now + random.uniform(5, 60), number + 1
            stream = random.choice([7, 7, 7, 8, 9])
            behind = lag if stream == 7 or random.random() < 0.3 else 0
            start = max(now + random.uniform(0, 20) + behind, free.get(stream, 0))
            length = random.uniform(1, 200) * (20 if random.random() < 0.05 else 1)
            free[stream] = start + length * (1 if random.random() < 0.95 else 0.5)
            what = random.choice(["gemm_kernel", "add", "ncclDevKernel_AllReduce", "flash_fwd"])
            cat = "gpu_memcpy" if random.random() < 0.1 else "kernel"
            rows = cuda.kernel(number, round(now, 3), round(start, 3), round(length, 3), what, stream, cat)
            events += rows[1:] if random.random() < 0.03 else rows[:1] if random.random() < 0.03 else rows
        now += random.uniform(10, 100)
        if name:
            events.append(cuda.mark(name.format(step), opens, round(now - opens - random.choice([0, 5]), 3)))
        now += random.choice([0, 0, random.uniform(0, 2000)])
    random.shuffle(events)
    return events


@pytest.mark.parametrize("seed", range(60))
def test_a_step_is_one_step(tmp_path: Path, seed: int) -> None:
    try:
        captures = read_captures(cuda.write(tmp_path, random_trace(Random(seed))))
    except CaptureError:
        return  # it holds no kernels
    for step_id in ("", *(step.id for step in captures.captures[0].steps)):
        try:
            answer = import_result(captures, None, step_id)
        except ScenarioError:
            continue  # the step holds no kernels
        _check(captures, step_id, answer)


def _check(captures: CaptureSet, step_id: str, answer: dict[str, Any]) -> None:
    step = answer["step"]
    total = step["total_us"]
    assert step["computing_us"] + step["communication_not_overlapped_us"] + step["free_us"] == pytest.approx(total)
    assert answer["host_gaps"]["total_us"] == pytest.approx(step["free_us"], abs=0.001)
    assert sum(answer["bottleneck"]["shares"].values()) == pytest.approx(1)
    answer["what_if"], _ = replayed(captures, step_id, (), None)
    replay = answer["what_if"]["replay"]
    if replay is not None:
        assert replay["measured_us"] == pytest.approx(total)
        assert replay["error"] == 0
    [timeline], _ = timelines_of(captures, step_id)
    assert step_time(timeline).total_ns == pytest.approx(total * 1000)
    assert step_time(timeline).computing_ns == pytest.approx(step["computing_us"] * 1000)
    assert sum(ns for ns, _ in time_by_path(timeline).values()) == timeline.end_ns - timeline.start_ns
    print_import(Console(file=io.StringIO(), width=80), answer)
