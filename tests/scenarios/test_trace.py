"""Traces keep the rules of the programs that open them, whatever the timeline, and say what torch_npu's say."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.files.atomic import OutputError
from scenarios.timeline import Span, Timeline, step_time
from scenarios.trace import insight_name_ok, read_trace, trace_events, trace_text, write_trace
from scenarios.trace.layout import LAYERS, OVERLAP_THREADS, OWN_ARGS, Intervals, minus
from tests.scenarios.traces import PIPELINE, Event, by_phase, device_span, events_of, names_of, of

#: All of PIPELINE's trace that follows the names. The arguments of the span win over those of its kernel.
SMALL_TRACE = """\
{"name": "ProfilerStep#0", "pid": 1024, "tid": 1, "ts": "0.000", "dur": 12.000, "cat": "cpu_op", "ph": "X"},
{"name": "aten::mm", "pid": 1024, "tid": 2, "ts": "0.000", "dur": 3.000, "cat": "cpu_op", \
"args": {"connection_id": 0, "index": 0, "layer": 0, "span": 0}, "ph": "X"},
{"name": "Node@launch", "pid": 1248, "tid": 1, "ts": "3.000", "dur": 2.001, \
"args": {"connection_id": 1, "correlation_id": 0, "index": 0, "layer": 0, "span": 1}, "ph": "X"},
{"name": "q_proj", "pid": 1440, "tid": 1, "ts": "6.000", "dur": 4.500, \
"args": {"Physic Stream Id": 2, "Task Id": 0, "connection_id": 1, "kind": "matmul", "op_type": "MatMulV2", \
"index": 0, "layer": 0, "span": 2, "bound": "hbm", "Task Type": "AI_CORE", "hbm_bytes": 9000}, "ph": "X"},
{"name": "enqueue_to_dequeue", "cat": "async_task_queue", "id": 1, \
"pid": 1024, "tid": 2, "ts": "0.000", "bp": "e", "ph": "s"},
{"name": "enqueue_to_dequeue", "cat": "async_task_queue", "id": 1, \
"pid": 1248, "tid": 1, "ts": "3.000", "bp": "e", "ph": "f"},
{"name": "HostToDevice2", "cat": "HostToDevice", "id": "2", \
"pid": 1248, "tid": 1, "ts": "3.000", "bp": "e", "ph": "s"},
{"name": "HostToDevice2", "cat": "HostToDevice", "id": "2", \
"pid": 1440, "tid": 1, "ts": "6.000", "bp": "e", "ph": "f"},
{"name": "torch_to_npu", "cat": "async_npu", "id": 2, "pid": 1024, "tid": 2, "ts": "0.000", "bp": "e", "ph": "s"},
{"name": "torch_to_npu", "cat": "async_npu", "id": 2, "pid": 1440, "tid": 1, "ts": "6.000", "bp": "e", "ph": "f"},
{"name": "Computing", "pid": 1760, "tid": 1, "ts": "6.000", "dur": 4.500, "ph": "X"},
{"name": "Free", "pid": 1760, "tid": 4, "ts": "0.000", "dur": 6.000, "ph": "X"},
{"name": "Free", "pid": 1760, "tid": 4, "ts": "10.500", "dur": 1.500, "ph": "X"},
{"name": "HBM/Traffic", "pid": 1568, "tid": 0, "ts": "6.000", "args": {"Traffic(MB/s)": 2000}, "ph": "C"},
{"name": "HBM/Traffic", "pid": 1568, "tid": 0, "ts": "10.500", "args": {"Traffic(MB/s)": 0}, "ph": "C"}
]
"""


# --- the whole file, literally ---


def test_a_small_trace_literally() -> None:
    text = trace_text(PIPELINE, {0: {"Task Type": "AI_CORE", "hbm_bytes": 9_000, "bound": "not this one"}})
    assert text.splitlines()[text.count('"ph": "M"') + 1 :] == SMALL_TRACE.splitlines()


def test_processes_are_named_labelled_and_ordered_as_torch_npu_does() -> None:
    group = Span("hcom_allReduce__1", "Communication", "Group 0 Communication", 3, 7)
    events = events_of(of(device_span("k", 0, 4), group))
    processes = {pid: name for (pid, _), name in names_of(events, "process_name").items()}
    assert processes == {
        1024: "Python",
        1 << 10 | 13 << 5: "Ascend Hardware",
        1 << 10 | 15 << 5: "Communication",
        1 << 10 | 23 << 5: "Overlap Analysis",
    }
    labels = list(names_of(events, "process_labels").values())
    assert labels == ["CPU SIMULATED", "NPU 0 SIMULATED", "NPU 0 SIMULATED", "NPU 0 SIMULATED"]
    assert list(names_of(events, "process_sort_index").values()) == [0, 13, 15, 23]
    threads = names_of(events, "thread_name")
    assert threads[1024, 1] == "SIMULATED step"
    assert [threads[1760, tid] for tid in (1, 2, 3, 4)] == list(OVERLAP_THREADS)


def test_a_measured_timeline_says_so() -> None:
    events = events_of(of(device_span("a", 0, 5), label="MEASURED", rank=3))
    assert "MEASURED step" in names_of(events, "thread_name").values()
    assert set(names_of(events, "process_labels").values()) == {"CPU MEASURED", "NPU 3 MEASURED"}


# --- the rules of Perfetto and MindStudio Insight, for any timeline ---

words = st.one_of(st.sampled_from(["ph", '"ph"', "a", "}, {", "é", "中", "\n"]), st.text(max_size=4))
numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
arg_names = words.filter(lambda word: word not in OWN_ARGS and word != "ph")
threads = st.sampled_from(
    [
        ("Python", "Thread 1"),
        ("Python", "Thread 2"),
        ("CANN", "Thread 1"),
        ("Ascend Hardware", "Stream 2"),
        ("Ascend Hardware", "Stream 10"),
        ("AI CPU", "Stream 2"),
        ("AI CPU", "AI CPU"),
        ("Device", "Stream 0"),
        ("Communication", "Group 0 Communication"),
        ("Communication", "Plane 0"),
        ("HBM", "weights"),
    ]
)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Spans anywhere in a step of 3 µs, also of no length, overlapping in every way, launched by any other."""
    spans = []
    count = draw(st.integers(0, 12))
    for i in range(count):
        process, thread = draw(threads)
        start, end = sorted(draw(st.tuples(st.integers(0, 3_000), st.integers(0, 3_000))))
        launched_by = draw(st.integers(-1, count - 1))
        spans.append(
            Span(
                name=draw(words),
                process=process,  # type: ignore[arg-type]
                thread=thread,
                start_ns=start,
                end_ns=end,
                kind=draw(st.sampled_from(["", "wait", "ph"])),
                op_type=draw(st.sampled_from(["", "MatMulV2"])),
                index=draw(st.integers(-1, 3)),
                layer=draw(st.integers(-1, 3)),
                launched_by=-1 if launched_by == i else launched_by,
                args=tuple(draw(st.dictionaries(arg_names, st.one_of(words, numbers), max_size=3)).items()),
            )
        )
    label, rank = draw(st.sampled_from(["SIMULATED", "MEASURED"])), draw(st.integers(0, 100))
    device = draw(st.sampled_from(["NPU", "CPU", "CUDA"]))
    return Timeline(tuple(spans), 0, 3_000, label, rank, device)  # type: ignore[arg-type]


def ns(text: str) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole) * 1000 + int(fraction)


@given(st.lists(timelines(), min_size=1, max_size=3))
def test_events_are_of_the_form_that_every_reader_takes(several: list[Timeline]) -> None:
    for text in trace_events(several, {1: {"Task Type": "AI_CORE", "hbm_bytes": 1_000}}):
        event = json.loads(text)
        assert text.count('"ph"') == 1
        assert list(event)[-1] == "ph"
        assert "\n" not in text
        assert event["ph"] in ("M", "X", "s", "f", "C")
        assert type(event["pid"]) is int
        assert event["pid"] > 0
        assert event["tid"] > 0 or event["ph"] in ("M", "C")
        assert "ph" not in event.get("args", {})
        if event["ph"] != "M":
            assert re.search(r'"ts": "\d+\.\d{3}", ', text)
        if event["ph"] == "X":
            assert re.search(r', "dur": \d+\.\d{3}, ', text)
        numbers_of_args = re.sub(r'"(\\.|[^"\\])*"', "", text)
        assert "e" not in numbers_of_args.replace("true", "").replace("false", "")


@given(timelines())
def test_slices_of_one_thread_nest_and_are_named(timeline: Timeline) -> None:
    events = events_of(timeline)
    processes, lanes = names_of(events, "process_name"), names_of(events, "thread_name")
    assert set(processes.values()) <= set(LAYERS)
    open_until: dict[tuple[int, int], list[int]] = defaultdict(list)
    started: dict[tuple[int, int], int] = {}
    for event in by_phase(events, "X"):
        lane, start = (event["pid"], event["tid"]), ns(event["ts"])
        end = start + round(event["dur"] * 1000)
        assert lane in lanes
        assert (lane[0], 0) in processes
        assert start >= started.get(lane, 0)  # parents stand before children that start with them
        started[lane] = start
        while open_until[lane] and open_until[lane][-1] <= start:
            open_until[lane].pop()
        assert not open_until[lane] or end <= open_until[lane][-1]
        open_until[lane].append(end)
    drawn = [e for e in by_phase(events, "X") if processes[e["pid"], 0] != "Overlap Analysis"]
    assert len(drawn) == len(timeline.spans) + 1


@given(st.lists(timelines(), min_size=1, max_size=2))
def test_arrows_match_one_to_one_and_lie_inside_slices(several: list[Timeline]) -> None:
    events = events_of(several)
    ends: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in by_phase(events, "s") + by_phase(events, "f"):
        assert event["bp"] == "e"
        ends[event["cat"], event["name"], str(event["id"])].append(event)
    slices = defaultdict(list)
    for event in by_phase(events, "X"):
        start = ns(event["ts"])
        slices[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    for pair in ends.values():
        assert [event["ph"] for event in pair] == ["s", "f"]
        assert ns(pair[0]["ts"]) <= ns(pair[1]["ts"])
        for event in pair:
            at = ns(event["ts"])
            assert any(start <= at < end for start, end in slices[event["pid"], event["tid"]])
        assert any(start == ns(pair[1]["ts"]) for start, _ in slices[pair[1]["pid"], pair[1]["tid"]])


@given(timelines())
def test_the_overlap_analysis_adds_up_to_the_step_time(timeline: Timeline) -> None:
    events = events_of(timeline)
    processes = names_of(events, "process_name")
    lanes: Counter[str] = Counter()
    for event in by_phase(events, "X"):
        if processes[event["pid"], 0] == "Overlap Analysis":
            lanes[event["name"]] += round(event["dur"] * 1000)
    time = step_time(timeline)
    assert lanes["Computing"] == time.computing_ns
    assert lanes["Communication"] == time.communication_ns
    assert lanes["Communication(Not Overlapped)"] == time.communication_not_overlapped_ns
    assert lanes["Free"] == time.free_ns


@given(st.lists(timelines(), min_size=1, max_size=3))
def test_what_is_written_is_read_back_and_written_again_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, several: list[Timeline]
) -> None:
    path = tmp_path_factory.getbasetemp() / "again.json"
    write_trace(path, several)
    assert read_trace(path) == several
    assert trace_text(read_trace(path)) == path.read_text("utf-8")

    kernel_args = {1: {"Task Type": "AI_CPU", "hbm_bytes": 7, "ratio": 1e-30}}
    write_trace(path, several, kernel_args)
    back = read_trace(path)
    assert trace_text(back) == path.read_text("utf-8") == trace_text(back, kernel_args)
    for before, after in zip(several, back, strict=True):
        assert [replace(span, args=()) for span in after.spans] == [replace(span, args=()) for span in before.spans]


# --- lanes ---


def lanes_of(timeline: Timeline) -> dict[str, tuple[str, str]]:
    """Process and thread that each span is drawn on."""
    events = events_of(timeline)
    processes, lanes = names_of(events, "process_name"), names_of(events, "thread_name")
    return {e["name"]: (processes[e["pid"], 0], lanes[e["pid"], e["tid"]]) for e in by_phase(events, "X")}


def test_an_ai_cpu_kernel_lies_on_its_stream_and_says_what_it_is() -> None:
    hidden = Span("hidden", "AI CPU", "AI CPU", 0, 9)
    timeline = of(Span("Range", "AI CPU", "Stream 2", 0, 5), device_span("Add", 5, 9), hidden)
    lanes = lanes_of(timeline)
    assert lanes["Range"] == lanes["Add"] == ("Ascend Hardware", "Stream 2")
    assert lanes["hidden"] == ("Ascend Hardware", "AI CPU")
    args = {e["name"]: e["args"] for e in by_phase(events_of(timeline), "X") if "args" in e}
    assert args["Range"] == {"Task Type": "AI_CPU", "Physic Stream Id": 2, "Task Id": 0, "process": "AI CPU", "span": 0}
    assert args["Add"] == {"Physic Stream Id": 2, "Task Id": 1, "span": 1}


def test_a_task_type_that_is_given_is_not_given_twice() -> None:
    text = trace_text(of(Span("Range", "AI CPU", "Stream 2", 0, 5, index=4)), {4: {"Task Type": "AI_CPU"}})
    assert text.count("Task Type") == 1


def test_slices_that_overlap_in_part_move_to_a_second_thread() -> None:
    timeline = of(device_span("a", 0, 10), device_span("b", 5, 15), device_span("c", 9, 20), device_span("d", 10, 12))
    lanes = lanes_of(timeline)
    assert [lanes[name][1] for name in "abcd"] == ["Stream 2", "Stream 2 (2)", "Stream 2 (3)", "Stream 2"]


def test_slices_that_touch_or_nest_stay_on_their_thread() -> None:
    spans = (("child", 0, 4), ("parent", 0, 9), ("nothing", 9, 9), ("next", 9, 10))
    lanes = lanes_of(of(*(device_span(*span) for span in spans)))
    assert {lanes[name] for name, _, _ in spans} == {("Ascend Hardware", "Stream 2")}


def test_threads_stand_in_the_order_a_person_counts() -> None:
    streams = [device_span("k", 0, 1, thread=f"Stream {n}") for n in (10, 2, 0, 47)]
    planes = [Span("m", "Communication", name, 0, 1) for name in ("Plane 1", "Group 0 Communication", "Plane 0")]
    host = [Span("p", "Python", name, 0, 1) for name in ("main", "Backward", "Launch")]
    lanes = names_of(events_of(of(*streams, *planes, *host)), "thread_name")
    threads = {pid: [name for (p, _), name in lanes.items() if p == pid] for pid, _ in lanes}
    assert threads[1440] == ["Stream 0", "Stream 2", "Stream 10", "Stream 47"]
    assert threads[1504] == ["Group 0 Communication", "Plane 0", "Plane 1"]
    assert threads[1024] == ["SIMULATED step", "main", "Backward", "Launch"]


def test_several_timelines_have_processes_and_arrow_numbers_of_their_own() -> None:
    measured = Timeline(PIPELINE.spans, 0, 12_000, "MEASURED", rank=0)
    events = events_of([PIPELINE, measured, Timeline(PIPELINE.spans, 0, 12_000, rank=33)])
    pids = [pid for pid, _ in names_of(events, "process_name")]
    assert len(set(pids)) == 3 * 4
    assert {pid >> 10 for pid in pids} == {1, 2, 3}
    assert [pid & 0x1F for pid in pids] == [0] * 8 + [2] * 4  # Insight's device: 33 modulo 31, for 31 is the host
    assert list(names_of(events, "process_sort_index").values()) == [n + s for n in (0, 32, 64) for s in (0, 7, 13, 23)]
    assert [e["id"] for e in by_phase(events, "s") if e["cat"] == "HostToDevice"] == ["2", "5", "8"]
    for name, numbers in (("Node@launch", [1, 4, 7]), ("q_proj", [1, 4, 7]), ("aten::mm", [0, 3, 6])):
        assert [e["args"]["connection_id"] for e in by_phase(events, "X") if e["name"] == name] == numbers


def test_a_prediction_and_its_measurement_are_neighbours_with_arguments_of_their_own() -> None:
    span = Span("q_proj", "Device", "Stream 0", 10, 20, "matmul", index=0)
    predicted = Timeline((span,), 0, 30, device="CPU")
    measured = replace(predicted, label="MEASURED")
    events = [json.loads(event) for event in trace_events([predicted, measured], [{0: {"flops": 5}}, {}])]
    labels = {e["args"]["labels"] for e in events if e["name"] == "process_labels"}
    assert labels == {"CPU SIMULATED", "CPU MEASURED", "CPU 0 SIMULATED", "CPU 0 MEASURED"}
    assert [e["args"].get("flops") for e in events if e["name"] == "q_proj"] == [5, None]


# --- arrows ---


def arrows(timeline: Timeline) -> list[str]:
    return [event["cat"] for event in by_phase(events_of(timeline), "s")]


def test_a_kernel_that_python_launches_has_both_arrows_of_torch_npu() -> None:
    timeline = of(Span("op", "Python", "Thread 1", 0, 5), device_span("k", 5, 9, launched_by=0))
    assert arrows(timeline) == ["HostToDevice", "async_npu"]


def test_every_kernel_of_a_graph_hangs_on_the_one_launch() -> None:
    replay = Span("replay", "CANN", "Thread 2", 0, 5)
    timeline = of(replay, *(device_span(f"k{n}", 10 * n, 10 * n + 9, launched_by=0) for n in (1, 2, 3)))
    assert arrows(timeline) == ["HostToDevice"] * 3
    assert {e["args"]["connection_id"] for e in by_phase(events_of(timeline), "X") if "args" in e} == {0}


@pytest.mark.parametrize(
    ("host", "kernel"),
    [((0, 0), (5, 9)), ((0, 5), (5, 5)), ((6, 8), (5, 9))],
    ids=["empty launch", "empty kernel", "launch after its kernel"],
)
def test_no_arrow_where_none_can_be_drawn_but_the_launcher_is_kept(
    tmp_path: Path, host: tuple[int, int], kernel: tuple[int, int]
) -> None:
    timeline = of(Span("op", "CANN", "Thread 1", *host), device_span("k", *kernel, launched_by=0))
    assert arrows(timeline) == []
    write_trace(tmp_path / "t.json", timeline)
    assert read_trace(tmp_path / "t.json") == [timeline]


def test_launches_in_a_ring_end() -> None:
    ring = [Span("a", "CANN", "Thread 1", 0, 5, launched_by=1), Span("b", "CANN", "Thread 2", 0, 5, launched_by=0)]
    assert arrows(of(*ring, device_span("k", 5, 9, launched_by=0))) == ["async_task_queue"] * 2 + ["HostToDevice"]


# --- arguments and counters ---


def test_the_arguments_of_a_kernel_go_to_its_device_spans_only() -> None:
    events = events_of(PIPELINE, kernel_args={0: {"cores": 24}, 9: {"cores": 1}})
    assert [e["name"] for e in by_phase(events, "X") if "cores" in e.get("args", {})] == ["q_proj"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-05, "0.00001"),
        (1e22, "10000000000000000000000.0"),
        (-2.5e-8, "-0.000000025"),
        (3.0, "3.0"),
        (7, "7"),
        (True, "true"),
        ("ph", '"\\u0070h"'),
        ("=A1", '"=A1"'),
    ],
)
def test_values_without_an_exponent(value: str | int | float, text: str) -> None:
    assert f'"v": {text}}}' in trace_text(of(device_span("k", 0, 1, args=(("v", value),))))


def test_hbm_counters_add_up_where_kernels_overlap() -> None:
    timeline = of(device_span("a", 0, 100, index=0), device_span("b", 50, 100, "Stream 3", index=1))
    events = events_of(timeline, kernel_args={0: {"hbm_bytes": 100_000}, 1: {"hbm_bytes": 100_000}})
    # 100,000 bytes in 100 ns are 1 TB/s = 1,000,000 MB/s, in 50 ns twice that.
    assert [(e["ts"], e["args"]["Traffic(MB/s)"]) for e in by_phase(events, "C")] == [
        ("0.000", 1_000_000),
        ("0.050", 3_000_000),
        ("0.100", 0),
    ]


@pytest.mark.parametrize(
    ("timeline", "what"),
    [
        (of(device_span("k", -1, 5)), "lasts from -1 to 5 ns"),
        (of(device_span("k", 5, 4)), "lasts from 5 to 4 ns"),
        (of(device_span("k", 2**60, 2**60 + 1)), "lasts from 1152921504606846976"),
        (of(device_span("k", 0, 1, launched_by=0)), "is launched by span 0 of 1"),
        (of(device_span("k", 0, 1, launched_by=7)), "is launched by span 7 of 1"),
        (of(Span("Free", "Overlap Analysis", "Free", 0, 1)), "is computed from the others"),
        (of(rank=-1), "rank -1 is negative"),
        (Timeline((), 5, 4), "the step lasts from 5 to 4 ns"),
        (Timeline((), 0, 4, device="my gpu"), "device 'my gpu' is not one word of up to 8 capitals"),
        (of(device_span("k", 0, 1, args=(("ph", 1),))), "'ph' cannot be an argument"),
        (of(device_span("k", 0, 1, args=(("index", 1),))), "'index' cannot be an argument"),
        (of(device_span("k", 0, 1, args=(("v", math.nan),))), "nan cannot be an argument"),
        (of(device_span("k", 0, 1, args=(("v", -math.inf),))), "-inf cannot be an argument"),
    ],
)
def test_a_timeline_without_a_trace_is_refused(tmp_path: Path, timeline: Timeline, what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        write_trace(tmp_path / "t.json", timeline)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"^[^\n]*absent/t.json: cannot be written: its folder does not exist$"):
        write_trace(tmp_path / "absent" / "t.json", PIPELINE)


@pytest.mark.parametrize(
    ("a", "b", "left"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(2, 4), (6, 8)], [(0, 2), (4, 6), (8, 10)]),
        ([(0, 4), (6, 10)], [(3, 7)], [(0, 3), (7, 10)]),
        ([(0, 4), (6, 10)], [(0, 4), (9, 20)], [(6, 9)]),
        ([(5, 6)], [(0, 10)], []),
    ],
)
def test_intervals_less_intervals(a: Intervals, b: Intervals, left: Intervals) -> None:
    assert minus(a, b) == left


# --- the same bytes, and soon ---


def test_the_bytes_do_not_depend_on_the_hash_seed(root: Path) -> None:
    code = """
from scenarios.timeline import Span, Timeline
from scenarios.trace import trace_text
names = "abcdefgh"
spans = tuple(Span(n, "Ascend Hardware", f"Stream {n}", i, i + 9, index=i, args=((n, i),)) for i, n in enumerate(names))
print(trace_text(Timeline(spans, 0, 99), {i: {n: 1, "Task Type": "AI_CORE"} for i, n in enumerate(names)}))
"""
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=root, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(texts) == 1


# --- the names that MindStudio Insight opens ---


@pytest.mark.parametrize(
    ("name", "ok"),
    [
        ("trace_view.json", True),
        ("trace.json", True),
        ("msprof_20260101.json", True),
        ("msprof_slice_0_20260101.json", True),
        ("msprof_1_2_3_4.json", True),
        ("msprof_1_2_3_4_5.json", False),
        ("msprof.json", False),
        ("out.json", False),
        ("my_trace.json", False),
        ("trace.json.gz", False),
        ("trace_view.json\n", False),
        ("out/trace.json", False),
    ],
)
def test_file_names_that_insight_opens(name: str, ok: bool) -> None:
    assert insight_name_ok(name) is ok
