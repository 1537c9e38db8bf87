"""The real Perfetto takes in every slice, name, arrow and counter of our traces, exactly and with no complaint."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable

import pytest

from scenarios.timeline import Span, Timeline
from scenarios.trace import trace_text

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

Query = Callable[[str], list[list[str]]]

SLICES = """select process.name, thread.name, slice.name, slice.ts, slice.dur
    from slice join thread_track on slice.track_id = thread_track.id
    join thread using (utid) join process using (upid)"""
ARROWS = """select o.name, o.ts, i.name, i.ts
    from flow join slice o on flow.slice_out = o.id join slice i on flow.slice_in = i.id"""
COMPLAINTS = "select name, value from stats where severity <> 'info' and value > 0"


def step(seed: int, ops: int, rank: int = 0) -> Timeline:
    """An eager step: ends and starts on one nanosecond, two streams, AI CPU kernels, a collective and its pieces."""
    draw = random.Random(seed)
    spans: list[Span] = []
    python = launch = 0
    free = {"Stream 2": 0, "Stream 47": 0}
    for k in range(ops):
        end = python + draw.choice((1, 999, 1_000, 13_421, draw.randrange(1, 50_000)))
        spans.append(Span(f"aten::op{k}", "Python", "Thread 1", python, end, index=k))
        first = max(end, launch)
        launch = first + draw.choice((1, 7_013, draw.randrange(1, 40_000)))
        spans.append(Span(f"Node@launch{k}", "CANN", "Thread 2", first, launch, index=k, launched_by=len(spans) - 1))
        stream = draw.choice(sorted(free))
        start = max(free[stream], launch) + draw.choice((0, 0, 1, 20))
        free[stream] = start + draw.choice((1, 999, 2_501, draw.randrange(1, 10**6)))
        process = "AI CPU" if k % 17 == 3 else "Ascend Hardware"
        at = len(spans) - 1
        spans.append(Span(f"kernel{k}", process, stream, start, free[stream], index=k, launched_by=at))
        python = end + draw.choice((0, 1, 300))
    end = max(free.values())
    reduce, plane = end // 3, end // 3 + 1
    spans.append(Span("hcom_allReduce__1", "Communication", "Group 0 Communication", reduce, end))
    # Pieces of a collective overlap on their plane; Perfetto would drop the second, so it is drawn below the first.
    spans.append(Span("Memcpy", "Communication", "Plane 0", plane, plane + 100))
    spans.append(Span("Reduce_Inline", "Communication", "Plane 0", plane + 50, plane + 150))
    # Nested on one thread, parent and child start together; and a slice of no length.
    spans.append(Span("child", "Python", "Thread 3", 10, 20))
    spans.append(Span("parent", "Python", "Thread 3", 10, 30))
    spans.append(Span("instant", "Python", "Thread 3", 40, 40))
    return Timeline(tuple(spans), 0, end, "MEASURED" if rank else "SIMULATED", rank)


@pytest.fixture(scope="module")
def ranks() -> list[Timeline]:
    return [step(seed=1, ops=700), step(seed=2, ops=100, rank=1)]


@pytest.fixture(scope="module")
def query(perfetto: Callable[[str], Query], ranks: list[Timeline]) -> Query:
    kernels = {k: {"hbm_bytes": 4096 * k, "bound": "hbm", "Input Shapes": "1,4096"} for k in range(700)}
    return perfetto(trace_text(ranks, kernels))


def test_perfetto_has_nothing_to_complain_of(query: Query) -> None:
    assert query(COMPLAINTS) == []


def test_perfetto_does_complain_where_slices_overlap(perfetto: Callable[[str], Query]) -> None:
    """Shows that an empty list of complaints says something: this is what the rules of the layout prevent."""
    slices = [{"name": "k", "pid": 1, "tid": 1, "ts": ts, "dur": 2.0, "ph": "X"} for ts in ("1.000", "2.000")]
    broken = perfetto(json.dumps(slices))
    assert broken(COMPLAINTS) == [["slice_drop_overlapping_complete_event", "1"]]
    assert broken("select count(*) from slice") == [["1"]]


def test_every_span_is_a_slice_to_the_nanosecond(query: Query, ranks: list[Timeline]) -> None:
    result = Counter(tuple(row) for row in query(SLICES) if row[0] != "Overlap Analysis")
    expected: Counter[tuple[str, ...]] = Counter()
    for rank in ranks:
        expected["Python", f"{rank.label} step", "ProfilerStep#0", "0", str(rank.end_ns)] += 1
        for span in rank.spans:
            process = "Ascend Hardware" if span.process == "AI CPU" else span.process
            thread = "Plane 0 (2)" if span.name == "Reduce_Inline" else span.thread
            expected[process, thread, span.name, str(span.start_ns), str(span.duration_ns)] += 1
    assert result == expected


def test_the_overlap_analysis_fills_the_step(query: Query, ranks: list[Timeline]) -> None:
    lanes: Counter[str] = Counter()
    for process, thread, name, _, length in query(SLICES):
        if process == "Overlap Analysis":
            assert thread == name
            lanes[name] += int(length)
    total = lanes["Computing"] + lanes["Communication(Not Overlapped)"] + lanes["Free"]
    assert total == sum(rank.end_ns - rank.start_ns for rank in ranks)


def test_every_arrow_joins_the_slices_it_should(query: Query, ranks: list[Timeline]) -> None:
    result = Counter((out, int(start), into, int(end)) for out, start, into, end in query(ARROWS))
    expected: Counter[tuple[str, int, str, int]] = Counter()
    for rank in ranks:
        for span in rank.spans:
            if span.launched_by < 0:
                continue
            launcher = rank.spans[span.launched_by]
            expected[launcher.name, launcher.start_ns, span.name, span.start_ns] += 1
            if span.process != "CANN":
                operator = rank.spans[launcher.launched_by]
                expected[operator.name, operator.start_ns, span.name, span.start_ns] += 1
    assert result.total() == 3 * 700 + 3 * 100
    assert result == expected


def test_threads_are_called_and_ordered_as_in_torch_npu(query: Query) -> None:
    rows = query("select process.name, thread.name from thread join process using (upid) where thread.name is not null")
    lanes = {(process, thread) for process, thread in rows}
    assert lanes >= {("Ascend Hardware", "Stream 2"), ("Ascend Hardware", "Stream 47"), ("CANN", "Thread 2")}
    assert {thread for process, thread in lanes if process == "Overlap Analysis"} == {
        "Computing",
        "Communication",
        "Communication(Not Overlapped)",
        "Free",
    }


def test_hbm_traffic_is_a_counter(query: Query, ranks: list[Timeline]) -> None:
    rows = query("select counter_track.name, ts, value from counter join counter_track on track_id = counter_track.id")
    assert {name for name, _, _ in rows} == {"HBM/Traffic Traffic(MB/s)"}
    last = max((int(ts), float(value)) for _, ts, value in rows)
    assert last == (max(s.end_ns for r in ranks for s in r.spans if s.index > 0 and s.process == "Ascend Hardware"), 0)


def test_arguments_reach_the_reader(query: Query) -> None:
    rows = query("select flat_key, display_value from args join slice using (arg_set_id) where slice.name = 'kernel3'")
    args = {key.removeprefix("args."): value for key, value in rows}
    assert args["Task Type"] == "AI_CPU"
    assert args["bound"] == "hbm"
    assert args["hbm_bytes"] == "12288"
