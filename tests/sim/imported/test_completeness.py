"""What a profile lacks is found before anything is advised on it; one that lacks nothing is complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.profile.read import read_captures
from sim.imported.replayed import replayed
from sim.imported.result import import_result
from tests.scenarios.profile import cuda, making

Rows = list[dict[str, Any]]


def steady(steps: int = 3) -> Rows:
    """Steps of 100 ms: ten kernels of 5 ms, each launched 2 ms before it runs, and a call that waits for them."""
    events: Rows = []
    for n in range(steps):
        start = 100_000 * n
        events.append(cuda.mark(f"ProfilerStep#{n}", start, 100_000))
        events.append(cuda.op("aten::forward", start + 10, 99_000))
        for i in range(10):
            at = start + 1000 + 9000 * i
            events += cuda.kernel(100 * n + i + 1, at, at + 2000, 5000)
    return events


def result(tmp_path: Path, events: Rows, step: str = "1") -> dict[str, Any]:
    return import_result(read_captures(cuda.write(tmp_path, events)), None, step)


def on_device(event: dict[str, Any]) -> bool:
    return event["cat"] == "kernel"


def test_a_whole_profile_is_complete_and_advised_on(tmp_path: Path) -> None:
    answer = result(tmp_path, steady())
    assert answer["completeness"] == {"verdict": "complete", "reasons": ()}
    assert answer["advice"]
    assert answer["advice_withheld"] == ""


def within(low: float, high: float) -> Callable[[dict[str, Any]], bool]:
    return lambda event: on_device(event) and low <= event["ts"] < high


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        (within(100_000, 125_000), "3 of 10 launches have no kernel, at the head of the step"),
        (within(175_000, 200_000), "2 of 10 launches have no kernel, at its end"),
        (within(130_000, 155_000), "3 of 10 launches have no kernel: events of the device were lost"),
    ],
)
def test_kernels_that_were_lost(tmp_path: Path, lost: Callable[[dict[str, Any]], bool], reason: str) -> None:
    answer = result(tmp_path, [event for event in steady() if not lost(event)])
    assert answer["completeness"]["verdict"] == "partial"
    assert any(text.startswith(reason) for text in answer["completeness"]["reasons"]), answer["completeness"]
    assert answer["advice"] == []
    assert reason in answer["advice_withheld"]


def test_a_graph_without_its_kernels(tmp_path: Path) -> None:
    events = steady()
    events += [
        cuda.row("cuda_runtime", "cudaGraphLaunch", cuda.THREAD, 100_000 * n + 500, 20, 9000 + n) for n in range(3)
    ]
    reasons = result(tmp_path, events)["completeness"]["reasons"]
    assert any("3 of 3 launches of a graph have no kernels" in reason for reason in reasons)


def test_calls_of_the_host_that_were_lost(tmp_path: Path) -> None:
    events = [e for e in steady() if not (e["cat"] == "cuda_runtime" and 130_000 <= e["ts"] < 160_000)]
    reasons = result(tmp_path, events)["completeness"]["reasons"]
    assert any("3 of 30 kernels have no launch though others have" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("shift", "reason"),
    [(-20_000.0, "start before they were launched"), (60_000.0, "its next kernel was launched before")],
)
def test_a_clock_of_the_device_that_jumps(tmp_path: Path, shift: float, reason: str) -> None:
    events = [{**e, "ts": e["ts"] + shift} if on_device(e) and e["ts"] > 150_000 else e for e in steady()]
    assert any(reason in text for text in result(tmp_path, events)["completeness"]["reasons"])


def test_a_clock_of_all_that_jumps(tmp_path: Path) -> None:
    events = [{**e, "ts": e["ts"] + 1_000_000} if e["ts"] > 150_000 else e for e in steady()]
    assert result(tmp_path, events)["completeness"]["verdict"] == "partial"


def test_calls_that_overlap_without_nesting(tmp_path: Path) -> None:
    events = steady()
    events += [cuda.op("aten::crossing", 100_000 * n + 98_000, 5000) for n in range(3)]
    reasons = result(tmp_path, events)["completeness"]["reasons"]
    assert any("overlap on their thread without nesting" in reason for reason in reasons)


def test_collectives_that_only_communication_json_has(tmp_path: Path) -> None:
    top = making.torch_npu(tmp_path, steps=(7,))
    path = top / "ASCEND_PROFILER_OUTPUT" / "communication.json"
    document = json.loads(path.read_text())
    [ops] = [kinds["collective"] for kinds in document.values()]
    name = next(iter(ops))
    other = json.loads(json.dumps(ops[name]))
    other["Communication Time Info"]["Start Timestamp(us)"] += 1000  # of the same name, a millisecond later
    document["step8"] = {"p2p": {}, "collective": {name: other}}
    path.write_text(json.dumps(document))
    captures = read_captures(top)
    answer = import_result(captures, None)
    [reason] = answer["completeness"]["reasons"]
    assert reason.startswith("1 of 2 collectives of communication.json are not among those of the profile")
    assert list(captures.captures[0].collective_waits_ns.values()) == [100_000]


def test_what_ifs_are_withheld_unless_they_are_asked_for(tmp_path: Path) -> None:
    captures = read_captures(cuda.write(tmp_path, steady()))
    assert replayed(captures, "1", (), None)[0]["rows"]
    assert replayed(captures, "1", (), None, "the profile is partial")[0]["rows"] == []
    assert replayed(captures, "1", ("remove_host_gaps",), None, "the profile is partial")[0]["rows"]
