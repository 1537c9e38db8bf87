"""Two timelines, kernel by kernel: hand-made steps whose differences a reader can count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.timeline import Span, Timeline
from sim.compare.causes import AFTER, BEFORE, DEVICE_GAP, HOST_LATE, IDLE, causes_ns
from sim.compare.classes import COLLECTIVE, ELEMENTWISE, MATMUL, NORM, TRANSFER, WAIT, family_of_type, op_type_of
from sim.compare.kernels import pair
from sim.compare.timelines import compare_timelines


def kernel(op_type: str, start: int, length: int, stream: int = 0, shapes: str = "8,8", **more: int) -> Span:
    args = (("Input Shapes", shapes),)
    return Span(op_type, "Ascend Hardware", f"Stream {stream}", start, start + length, "", op_type, args=args, **more)


def link(name: str, thread: str, start: int, end: int, kind: str = "") -> Span:
    return Span(name, "Communication", thread, start, end, kind, name)


def step(*spans: Span, end: int = 0) -> Timeline:
    return Timeline(spans, 0, end or max(s.end_ns for s in spans))


def in_a_row(*names: str, length: int = 10, shapes: str = "8,8") -> Timeline:
    return step(*(kernel(name, n * length, length, shapes=shapes) for n, name in enumerate(names)))


@pytest.mark.parametrize(
    ("op_type", "family"),
    [
        ("MatMulV2", MATMUL),
        ("MatmulAllReduce", MATMUL),
        ("QuantBatchMatmulV3", MATMUL),
        ("Conv2D", MATMUL),
        ("AddRmsNorm", NORM),
        ("hcom_allReduce_", COLLECTIVE),
        ("ncclDevKernel_AllReduce", COLLECTIVE),
        ("BroadcastTo", ELEMENTWISE),
        ("Add", ELEMENTWISE),
    ],
)
def test_families_by_name(op_type: str, family: str) -> None:
    assert family_of_type(op_type) == family


def test_a_name_stands_for_an_op_type_that_is_missing() -> None:
    assert op_type_of(link("hcom_allReduce__271_0_1", "Group", 0, 1)) == "hcom_allReduce__271_0_1"
    assert op_type_of(Span("hcom_allReduce__271_0_1", "Communication", "Group", 0, 1)) == "hcom_allReduce"
    assert (
        op_type_of(Span("trans_TransData_0", "Ascend Hardware", "Stream 2", 0, 1, op_type="N/A")) == "trans_TransData"
    )


def test_the_causes_of_a_step_are_its_nanoseconds() -> None:
    host = Span("launch", "Python", "Python", 0, 30)
    timeline = step(
        host,
        kernel("MatMulV2", 10, 10, launched_by=0),
        kernel("Add", 40, 5, launched_by=0),  # idle 20-40: until 30 the host had not returned
        kernel("RmsNorm", 42, 8, stream=1, launched_by=0),  # 42-45 belongs to the Add, which started first
        kernel("Mul", 60, 5),  # nobody is known to have launched it
        link("allReduce", "Group 0", 62, 90),
        link("Notify_Wait", "Plane 0", 62, 70, "wait"),
        link("Memcpy", "Plane 0", 70, 90, "transfer"),
        end=100,
    )  # fmt: skip
    assert causes_ns(timeline) == {
        BEFORE: 10, MATMUL: 10, HOST_LATE: 10, DEVICE_GAP: 10, ELEMENTWISE: 5 + 5, NORM: 5, IDLE: 10,
        WAIT: 5, TRANSFER: 20, AFTER: 10,
    }  # fmt: skip


def test_kernels_are_paired_by_shape_even_where_names_differ() -> None:
    a = step(kernel("MatMulV2", 0, 10, shapes="1,4"), kernel("MatMulV2", 10, 20, shapes="1,8"))
    b = step(kernel("Cast", 0, 1), kernel("MatMulV3", 5, 30, shapes="1,8"))
    compare_timeline = compare_timelines(a, b)["kernels"]
    assert (compare_timeline["paired"], compare_timeline["same_shapes"]) == (1, 0)
    [row] = compare_timeline["changed"]
    assert (row["op_type"], row["shapes_a"], row["a_us"], row["b_us"]) == ("MatMulV2 / MatMulV3", "1,8", 0.02, 0.03)
    [row] = compare_timeline["replaced"]
    assert (row["a"], row["b"]) == ("MatMulV2", "Cast")


def test_three_products_in_the_place_of_one_are_a_replacement() -> None:
    a = step(*(kernel("MatMulV2", n * 10, 10, shapes=f"1,{n}") for n in range(3)), kernel("Add", 40, 1))
    b = step(kernel("MatMulV2", 0, 25, shapes="1,3"), kernel("Add", 40, 1))
    [row] = compare_timelines(a, b)["kernels"]["replaced"]
    assert row == {"a": "3 MatMulV2", "b": "MatMulV2", "count": 1, "a_us": 0.03, "b_us": 0.025}


def test_a_kernel_on_another_stream_is_the_same_kernel() -> None:
    a = in_a_row("MatMulV2", "Add", "MatMulV2", "Softmax")
    b = step(*a.spans[:1], *a.spans[2:], replace(a.spans[1], thread="Stream 7"))
    result = pair(a, b)
    assert (len(result.pairs), result.moved, result.replaced) == (4, 1, ())


def test_streams_are_paired_by_what_runs_on_them() -> None:
    a = step(kernel("MatMulV2", 0, 5, stream=0), kernel("Add", 0, 5, stream=1), kernel("Add", 6, 5, stream=1))
    b = step(kernel("Add", 0, 5, stream=31), kernel("Add", 6, 5, stream=31), kernel("MatMulV2", 0, 5, stream=40))
    assert set(pair(a, b).lanes) == {
        ("Ascend Hardware Stream 0", "Ascend Hardware Stream 40"),
        ("Ascend Hardware Stream 1", "Ascend Hardware Stream 31"),
    }


NAMES = st.lists(st.tuples(st.sampled_from(["Add", "Mul", "MatMulV2", "RmsNorm"]), st.integers(0, 2)), max_size=30)


@given(NAMES, NAMES)
def test_no_kernel_is_lost_or_counted_twice(a: list[tuple[str, int]], b: list[tuple[str, int]]) -> None:
    def made(kernels: list[tuple[str, int]]) -> Timeline:
        spans = [kernel(name, 10 * n, 1 + n % 7, stream, f"{n % 3}") for n, (name, stream) in enumerate(kernels)]
        return Timeline(tuple(spans), 0, 400)

    one, two = made(a), made(b)
    result = compare_timelines(one, two)
    for side, timeline in (("a", one), ("b", two)):
        kernels = result["kernels"]
        total = sum(row[f"{side}_us"] for row in kernels["changed"] + kernels["unchanged"] + kernels["replaced"])
        total += sum(row["total_us"] for row in kernels[f"only_in_{side}"])
        assert total == pytest.approx(sum(s.duration_ns for s in timeline.spans) / 1000)
        assert sum(row[f"{side}_us"] for row in result["causes"]) == pytest.approx(0.4)
