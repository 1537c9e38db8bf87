"""Two steps compared by the operators that asked for their kernels, whatever the kernels are called."""

from __future__ import annotations

from scenarios.timeline import Span, Timeline
from sim.compare.paths import BEHIND, compared_paths, time_by_path


def step(*kernels: tuple[str, str, int, int], end: int = 1000) -> Timeline:
    """kernels: operator, op type, start, length, one after the other on one stream; launched 5 ns before."""
    spans = [Span("model.layer_3: forward", "Python", "Thread 1", 0, end)]
    for operator, op_type, start, length in kernels:
        at = start - 10
        spans.append(Span(f"aten::{operator}", "Python", "Thread 1", at, at + 8))
        spans.append(Span("cudaLaunchKernel", "Python", "Thread 1", at + 2, at + 5))
        launch = len(spans) - 1
        spans.append(
            Span(op_type, "Device", "Stream 7", start, start + length, "", op_type, index=launch, launched_by=launch)
        )
    return Timeline(tuple(spans), 0, end, "MEASURED")


def test_times_by_path_sum_to_the_step() -> None:
    times = time_by_path(step(("linear", "nvjet_128", 100, 300), ("add", "vectorized", 500, 100)))
    inside = "model.layer_#: forward > aten::"
    assert times == {
        ("computing", inside + "linear"): (300, 1),
        ("computing", inside + "add"): (100, 1),
        ("idle", inside + "linear"): (100, 0),
        ("idle", inside + "add"): (100, 0),
        ("idle", BEHIND): (400, 0),
    }


def test_a_kernel_of_another_name_is_the_same_work() -> None:
    a = step(("linear", "ampere_gemm", 100, 300), ("add", "vectorized", 500, 100))
    b = step(("linear", "nvjet_tst", 100, 250), ("add", "vectorized", 400, 100), end=860)
    rows = compared_paths(a, b)
    changes = {(row["what"], row["path"].rpartition("::")[2]): row["b_us"] - row["a_us"] for row in rows}
    assert round(changes["computing", "linear"], 3) == -0.05
    assert round(sum(changes.values()), 9) == round((b.end_ns - a.end_ns) / 1000, 9)
    assert {row["path"] for row in rows if row["what"] == "computing" and not row["b_us"]} == set()


def test_without_launches_the_op_type_stands_for_the_path() -> None:
    spans = (
        Span("k", "Device", "Stream 7", 0, 10, "", "MatMulV3"),
        Span("c", "Communication", "G", 5, 30, "", "hcom_allReduce_"),
    )
    assert time_by_path(Timeline(spans, 0, 30, "MEASURED")) == {
        ("computing", "MatMulV3"): (10, 1),
        ("communication", "allreduce"): (20, 1),
    }
