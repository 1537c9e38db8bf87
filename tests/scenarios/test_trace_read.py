"""A trace of ours comes back exactly; anything else is refused in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.errors import ScenarioError
from scenarios.timeline import Span, Timeline
from scenarios.trace import TraceError, read, read_trace, trace_text, write_trace

Event = dict[str, Any]

#: One operation through Python, the launch thread and the device; an AI CPU kernel; a piece of a collective.
TIMELINE = Timeline(
    spans=(
        Span("aten::mm", "Python", "Thread 1", 0, 3_000, index=0, layer=0),
        Span("Node@launch", "CANN", "Thread 2", 3_000, 5_001, index=0, layer=0, launched_by=0),
        Span("q_proj", "Ascend Hardware", "Stream 2", 6_000, 10_500, "matmul", "MatMulV2", 0, 0, 1, (("cores", 24),)),
        Span("Range", "AI CPU", "Stream 2", 6_001, 12_000, index=1, args=(("Task Type", "AI_CPU"), ("ratio", 0.5))),
        Span("Notify_Wait", "Communication", "Plane 0", 0, 999, kind="wait"),
    ),
    start_ns=0,
    end_ns=12_000,
    label="MEASURED",
    rank=7,
)


def test_a_timeline_comes_back_exactly(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.json", TIMELINE)
    assert read_trace(tmp_path / "trace.json") == [TIMELINE]


def test_several_timelines_come_back_in_their_order(tmp_path: Path) -> None:
    several = [TIMELINE, Timeline((), 5, 5), Timeline(TIMELINE.spans, 0, 12_001, rank=7)]
    write_trace(tmp_path / "trace.json", several)
    assert read_trace(str(tmp_path / "trace.json")) == several


def broken(change: Callable[[list[Event]], object]) -> str:
    """The text of TIMELINE's trace after `change` of its list of events."""
    events = json.loads(trace_text(TIMELINE))
    change(events)
    return json.dumps(events)


def slice_named(events: list[Event], name: str) -> Event:
    return next(event for event in events if event["name"] == name and event["ph"] == "X")


def setting(name: str, /, **fields: Any) -> str:
    return broken(lambda events: slice_named(events, name).update(fields))


def setting_arg(name: str, /, **args: Any) -> str:
    return broken(lambda events: slice_named(events, name)["args"].update(args))


def without(what: str) -> str:
    return broken(lambda events: events.remove(next(e for e in events if e["name"] == what)))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "cut off"),
        ("[", "cut off"),
        ("[]", "holds no timeline"),
        ("{}", "holds a mapping, not an array of events"),
        ('{"traceEvents": []}', "not an array of events"),
        ("[1]", "event 0: is 1, not an object"),
        ("[{}]", "event 0: ph is nothing, not of type str"),
        ('[{"ph": "B"}]', "event 0: has the phase 'B'"),
        ('[{"ph": "X"}]', "event 0: pid is nothing, not of type int"),
        ('[{"ph": "X", "pid": true}]', "event 0: pid is true, not of type int"),
        ("[NaN]", "is not JSON: NaN is no JSON number"),
        ("[" + "1" * 5_000 + "]", "is not JSON: "),
        ("[" * 100_000, "nested too deeply"),
        ("[1,, 2]", ":1:4: is not JSON: Expecting value"),
        ("[\n1,\n2}\n]", ":3:2: is not JSON: Expecting ',' delimiter"),
        (setting("q_proj", ts=6.0), "ts is 6.0, not microseconds with three decimals as text"),
        (setting("q_proj", ts="6.0000"), "ts is '6.0000', not microseconds"),
        (setting("q_proj", ts="1736408883688177.930"), "times count from the start of the step"),
        (setting("q_proj", dur=-1.0), "dur is -1.0, not microseconds"),
        (setting("q_proj", dur="1.000"), "dur is '1.000', not microseconds"),
        (setting("q_proj", dur=1e300), "dur is 1e+300, not microseconds"),
        (setting("q_proj", tid=9), "lies on a process or thread without a name"),
        (setting("q_proj", pid=1 << 10 | 7, tid=1), "q_proj is not the only ProfilerStep#0"),
        (setting("q_proj", args=3), "args is 3, not of type dict"),
        (setting("q_proj", args={}), "span is nothing, not of type int"),
        (setting("q_proj", name=None), "name is nothing, not of type str"),
        (setting_arg("q_proj", span=0), "is span 0, as an earlier event was"),
        (setting_arg("q_proj", span=5), "lacks some of its 5 spans"),
        (setting_arg("q_proj", connection_id=2), "q_proj is launched by span 2, which is not there"),
        (setting_arg("q_proj", connection_id=9), "q_proj is launched by span 9, which is not there"),
        (setting_arg("q_proj", index="0"), "index is '0', not of type int"),
        (setting_arg("q_proj", bound=[1]), "bound is a list, neither text nor a number"),
        (setting("q_proj", args={"process": "GPU", "span": 2}), "lies on 'GPU', 'Stream 2'"),
        (without("ProfilerStep#0"), "timeline 0: has no ProfilerStep#0 or no label"),
        (without("process_name"), "lies on a process or thread without a name"),
        (without("thread_name"), "lies on a process or thread without a name"),
    ],
)
def test_a_file_that_is_no_trace_of_ours_is_one_line(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    line = str(caught.value)
    assert what in line
    assert line.startswith(str(path))
    assert "\n" not in line
    assert len(line) < 400
    assert isinstance(caught.value, ScenarioError)


def test_a_trace_cut_anywhere_is_refused(tmp_path: Path) -> None:
    text, path = trace_text(TIMELINE), tmp_path / "t.json"
    for length in range(0, len(text) - 2, 7):
        path.write_text(text[:length])
        with pytest.raises(TraceError, match=r"^[^\n]*cut off$"):
            read_trace(path)


@pytest.mark.parametrize(
    ("name", "what"),
    [("absent.json", "No such file"), (".", "is a folder"), ("nul\0", "not a possible file name")],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str, what: str) -> None:
    with pytest.raises(TraceError, match=what) as caught:
        read_trace(f"{tmp_path}/{name}")
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_utf8_and_devices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b'[\n"\xff"]')
    with pytest.raises(TraceError, match="byte 3 is not UTF-8"):
        read_trace(tmp_path / "t.json")
    os.mkfifo(tmp_path / "pipe")
    for endless in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(TraceError, match="is not a regular file"):
            read_trace(endless)


def test_a_file_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_TRACE_BYTES", 2**20)
    (tmp_path / "t.json").write_bytes(b" " * (2**20 + 1))
    with pytest.raises(TraceError, match="is larger than 1 MiB"):
        read_trace(tmp_path / "t.json")


def test_a_trace_that_was_formatted_anew_is_still_ours(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(json.loads(trace_text(TIMELINE)), indent=2))
    assert read_trace(tmp_path / "t.json") == [TIMELINE]


def test_a_trace_of_torch_npu_is_refused_in_one_line(shared: Path) -> None:
    files = sorted(shared.glob("measured/profiles/*/*/ASCEND_PROFILER_OUTPUT/trace_view.json"))
    if not files:
        pytest.skip("no trace_view.json in ../shared/measured/profiles")
    for file in files:
        with pytest.raises(TraceError, match=r"^[^\n]*$"):
            read_trace(file)
