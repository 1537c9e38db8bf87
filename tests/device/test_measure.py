"""Measuring, on a clock that ticks when it is read: spans, medians and errors that can be counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device.backends.cpu import Cpu
from device.measure.answer import unmet
from device.measure.document import document
from device.measure.measure import Sample, measure, name_of
from device.run.session import Session
from device.run.workload import reported_step
from device.weights.weights import RandomCheckpoint
from scenarios.exchange.measured import Predicted
from tests.device.making import ALL_FUSED, QWEN3, REFERENCE, plain
from tests.scenarios.making import scenario


class Ticking(Cpu):
    """Each mark is a microsecond after the one before."""

    def __init__(self) -> None:
        self.now_ns = 0

    def mark(self) -> tuple[int, int]:
        self.now_ns += 1000
        return self.now_ns, self.now_ns // 2  # other programs have the CPU for half of the time


def test_a_sample_is_its_median_and_what_lies_around_it() -> None:
    assert Sample.of([5.0, 1.0, 2.0, 3.0, 4.0]) == Sample(3.0, 1.4, 4.6)


def test_spans_follow_the_program_on_the_clock() -> None:
    at_work = Session(plain(**ALL_FUSED), QWEN3, Ticking(), RandomCheckpoint(QWEN3, 0), options=REFERENCE)
    phase, requests = reported_step(at_work)
    bound, step = at_work.prepared(phase, requests)
    result = measure(bound, step, repeats=3)
    count = len(bound.program)
    assert [(s.start_ns, s.end_ns) for s in result.timeline.spans] == [
        (1000 + 2000 * i, 2000 + 2000 * i) for i in range(count)
    ]  # one mark opens the step, two enclose each op, one closes it
    assert (result.timeline.end_ns, result.marked) == (
        1000 + 2000 * count,
        Sample(1000 + 2000 * count, 1000 + 2000 * count, 1000 + 2000 * count),
    )
    assert {(s.median_ns, s.low_ns, s.high_ns) for s in result.units} == {(1000.0, 1000.0, 1000.0)}
    assert len(result.steady_units) == count
    assert sum(s.low_ns for s in result.steady_units) <= 500 * count <= sum(s.high_ns for s in result.steady_units)
    assert (result.timeline.label, result.timeline.device, result.repeats) == ("MEASURED", "CPU", 3)
    assert [(s.index, s.name, s.kind) for s in result.timeline.spans] == [
        (i.index, i.op.name, i.op.kind) for i in bound.program
    ]
    assert [name_of(unit) for unit in bound.units] == [i.op.name for i in bound.program]

    # Predicted: every op half of what the clock says, but for the first, which is twice.
    predicted = Predicted(1000 * count, dict.fromkeys(range(count), 500) | {0: 2000})
    outcome = document(result, predicted)
    assert outcome["ops"][0]["predicted_us"] == 2.0
    assert (outcome["scaled_by"], outcome["steady_step"]["median_us"]) == (
        1.0,
        pytest.approx(result.steady.median_ns / 1000),
    )
    # At a speed at which the reference takes twice as long, everything does; what was measured stays as it was.
    slower = document(result, replace(predicted, reference_ns=2 * result.reference.median_ns))
    assert slower["scaled_by"] == 2.0
    assert slower["ops"][5]["steady_us"] == pytest.approx(2 * outcome["ops"][5]["steady_us"])
    assert slower["errors"]["steady_step"] == pytest.approx((outcome["errors"]["steady_step"] + 1) / 2 - 1)
    assert slower["unmarked_step"] == outcome["unmarked_step"]
    assert slower["errors"]["step"] == outcome["errors"]["step"]
    assert outcome["errors"]["ops"] == pytest.approx((2 + 0.5 * (count - 1)) / count - 1)
    assert (outcome["errors"]["op_median"], outcome["errors"]["op_bias"]) == (0.5, -0.5)
    assert outcome["step"]["free_us"] == pytest.approx(1 + count)
    assert sum(row["total_us"] for row in outcome["kernels"]) == pytest.approx(count)


def test_a_step_can_be_run_again_and_again() -> None:
    """Every repeat writes the same values to the same places."""
    at_work = Session(plain(**ALL_FUSED), QWEN3, Cpu(), RandomCheckpoint(QWEN3, 0), options=REFERENCE)
    phase, requests = reported_step(at_work)
    bound, step = at_work.prepared(phase, requests)
    tokens = [measure(bound, step, repeats=1).next_ids for _ in range(3)]
    assert tokens[0] == tokens[1] == tokens[2]


class Alongside(Cpu):
    """A device next to its host: the host takes a microsecond to reach each mark, a kernel 300 ns. blocks: the host
    waits for the device inside the step."""

    def __init__(self, blocks: bool = False) -> None:
        self.host_ns, self.free_ns, self.marks, self.blocks = 0, 0, 0, blocks

    def mark(self) -> tuple[int, int]:
        self.host_ns += 1000
        if self.blocks and self.marks == 6:
            self.host_ns = max(self.host_ns, self.free_ns)
        self.free_ns = max(self.free_ns, self.host_ns)
        if self.marks and self.marks % 2 == 0:  # a mark opens the run, two enclose each op
            self.free_ns += 300
        self.marks += 1
        return self.free_ns, self.free_ns

    def queue(self, ns: float) -> bool:
        self.free_ns = max(self.free_ns, self.host_ns) + round(ns)
        return True

    def is_done(self, mark: tuple[int, int]) -> bool:
        return self.host_ns >= mark[0]

    def synchronize(self) -> None:
        self.host_ns, self.marks = max(self.host_ns, self.free_ns), 0


@pytest.mark.parametrize(("blocks", "op_times", "each_ns"), [(False, "kernel", 300.0), (True, "call", 1300.0)])
def test_kernels_are_timed_alone_where_the_device_has_them_waiting(
    monkeypatch: pytest.MonkeyPatch, blocks: bool, op_times: str, each_ns: float
) -> None:
    """Two marks around a call hold the host's microsecond; behind queued work they hold the kernel's 300 ns."""
    backend = Alongside(blocks)
    at_work = Session(plain(**ALL_FUSED), QWEN3, backend, RandomCheckpoint(QWEN3, 0), options=REFERENCE)
    phase, requests = reported_step(at_work)
    bound, step = at_work.prepared(phase, requests)
    count = len(bound.program)
    monkeypatch.setattr("device.measure.measure._issued_ns", lambda bound, step: 2000 * count)
    result = measure(bound, step, repeats=3)
    assert result.op_times == op_times
    assert {sample.median_ns for sample in result.units} == {each_ns} or blocks
    spans = [span.end_ns - span.start_ns for span in result.timeline.spans]
    assert min(spans) >= 1000  # the timeline is of the step as it runs, its gaps included
    assert document(result, Predicted(1, dict.fromkeys(range(count), 1)))["op_times"] == op_times


def test_a_cpu_times_calls() -> None:
    assert not Cpu().queue(1e9)


@pytest.mark.parametrize(
    ("backend", "sets", "says"),
    [
        ("cpu", {"protocol__synchronize": "op"}, []),
        (
            "cuda",
            {"protocol__synchronize": "op"},
            ["--backend cuda: protocol.synchronize: the host waits at the end of a"],
        ),
        ("npu", {"protocol__synchronize": "layer"}, ["--backend npu: protocol.synchronize: the host waits at the end"]),
        ("npu", {"engine__task_queue_enable": 2}, ["--backend npu: engine.task_queue_enable: 2 in the scenario, and"]),
        ("npu", {"engine__task_queue_enable": 1}, []),
        ("cuda", {"engine__task_queue_enable": 0}, []),
    ],
)
def test_what_a_device_cannot_do_as_it_is_said_is_refused(
    monkeypatch: pytest.MonkeyPatch, backend: str, sets: dict[str, object], says: list[str]
) -> None:
    monkeypatch.delenv("TASK_QUEUE_ENABLE", raising=False)
    lines = unmet(backend, scenario(**sets))
    assert len(lines) == len(says)
    assert all(line.startswith(said) for line, said in zip(lines, says, strict=True))
    monkeypatch.setenv("TASK_QUEUE_ENABLE", "2")
    assert bool(unmet("npu", scenario())) == (scenario().engine.task_queue_enable != 2)
