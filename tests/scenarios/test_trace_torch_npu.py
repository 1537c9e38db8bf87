"""Our traces against real torch_npu output: the same names, lanes, arguments and order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.timeline import Span, Timeline
from scenarios.trace.layout import LAYERS
from tests.scenarios.traces import PIPELINE, Event, events_of, names_of

#: Named otherwise by the CANN of the examples: "Communication" was "HCCL" before; nothing else may differ.
RENAMED = {"Communication": "HCCL"}
#: Arguments that torch_npu has no place for; tools show them and otherwise pass them by.
OUR_ARGS = {"kind", "op_type", "index", "layer", "process", "thread", "span"}


@pytest.fixture(scope="module")
def profiles(shared: Path) -> list[Path]:
    folders = sorted(shared.glob("measured/profiles/*/*/ASCEND_PROFILER_OUTPUT"))
    if not folders:
        pytest.skip("no torch_npu profiles in ../shared/measured/profiles")
    return folders


def full_step() -> Timeline:
    wait = Span("Notify_Wait", "Communication", "Plane 0", 100, 200)
    group = Span("hcom_allReduce__1", "Communication", "Group 0 Communication", 100, 300, launched_by=1)
    queue = [Span("Enqueue", "Python", "Thread 1", 3_000, 3_100), Span("Dequeue@x", "Python", "Thread 3", 3_100, 3_200)]
    return Timeline((*PIPELINE.spans, wait, group, *queue), 0, 12_000)


def vocabulary(events: list[Event]) -> Iterator[tuple[str, str]]:
    """What kinds of names a trace uses, numbers left out."""
    processes, lanes = names_of(events, "process_name"), names_of(events, "thread_name")
    for name in processes.values():
        yield "process", name
    for (pid, _), name in lanes.items():
        if (pid, 0) in processes:  # the real ones name some threads of unnamed processes
            yield f"thread of {processes[pid, 0]}", re.sub(r"\d+", "N", name)
    for label in names_of(events, "process_labels").values():
        yield "label", label.split()[0]
    for event in events:
        if event["ph"] in ("s", "f"):
            yield f"{event['ph']} of {event['cat']}", re.sub(r"\d+", "N", event["name"])
        elif event["ph"] == "X":
            yield "category", str(event.get("cat"))
            yield "keys", str(sorted(set(event) - {"args"}))
            for key in event.get("args", {}):
                yield f"argument on {processes[event['pid'], 0]}", key
        elif event["ph"] == "M":
            yield "metadata", event["name"]


def test_our_names_are_those_of_torch_npu(profiles: list[Path]) -> None:
    theirs: set[tuple[str, str]] = set()
    files = [folder / "trace_view.json" for folder in profiles if (folder / "trace_view.json").is_file()]
    for file in files:
        theirs |= set(vocabulary(json.loads(file.read_text("utf-8"))))
    assert files
    ours = set()
    for what, name in vocabulary(events_of(full_step(), kernel_args={0: {"Task Type": "AI_CORE"}})):
        if name in OUR_ARGS or name == "SIMULATED step" or (what, name) == ("argument on Ascend Hardware", "bound"):
            continue
        for new, old in RENAMED.items():
            what = what.replace(f" {new}", f" {old}")
            name = old if (what, name) == ("process", new) else name
        ours.add((what, name))
    # Where a launch thread is a CANN thread and where it is a Python thread, torch_npu draws its arrow alike.
    ours -= {("argument on CANN", "correlation_id"), ("argument on Python", "connection_id")}
    assert ours - theirs == set()


def test_our_sort_indices_are_those_of_torch_npu(profiles: list[Path]) -> None:
    for file in (folder / "trace_view.json" for folder in profiles if (folder / "trace_view.json").is_file()):
        events = json.loads(file.read_text("utf-8"))
        names, order = names_of(events, "process_name"), names_of(events, "process_sort_index")
        theirs = {name: order[key] for key, name in names.items()}
        for name, index in LAYERS.items():
            assert theirs.get(RENAMED.get(name, name), index) == index
