"""The time from step to step of many that the host issues before it waits: the slower of the host and the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.batches import reported_batch
from scenarios.loader import load_text
from scenarios.ops.program import Batch
from sim.accuracy.ablations import price_ablations, read_ablations
from sim.accuracy.rows.files import StepRow, read_steps
from sim.accuracy.score import price_steps
from sim.hardware.profile import load_hardware
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, interval_ns, layout_of, queued_interval_ns

HW = load_hardware("atlas_a2_910b2")


TEXT = """
model: Qwen3-0.6B
hardware: atlas_a2_910b2
workload: {phase: decode, batch: 1, input_tokens: 500, output_tokens: 1}
"""


def case(*settings: str) -> tuple[Case, Batch]:
    of = case_of(load_text(TEXT, "here", settings))
    return of, reported_batch(of.scenario)


@pytest.mark.parametrize("prefetch", [False, True])
def test_graphs_in_a_queue_hide_their_host(prefetch: bool) -> None:
    of, batch = case(
        "optimizations.graph=ge_graph",
        "optimizations.kv.layout=contiguous",
        f"optimizations.overlap.prefetch={str(prefetch).lower()}",
    )
    main = [span for span in predict(of).timeline.device_spans if span.thread == "Stream 0"]
    first = next(i for i, span in enumerate(main) if span.op_type == "Data")  # the graph's own first kernel
    # The eager kernels of the preamble run while the graph starts; then the graph's kernels, as in a step alone.
    on_device = round(1000 * HW.graph.start_us) + main[-1].end_ns - main[first].start_ns
    value, low, high = queued_interval_ns(of, batch)
    assert value == pytest.approx(on_device, abs=2)
    alone = interval_ns(of, batch)
    host_us = HW.host.input_copy_us + HW.host.model_execute_us + HW.host.synchronize_us
    assert alone[0] - value > 1000 * host_us
    assert (low / value, high / value) == pytest.approx((alone[1] / alone[0], alone[2] / alone[0]))


def test_calls_in_a_queue_hide_their_device() -> None:
    of, batch = case("optimizations.graph=eager")
    laid = layout_of(of, batch)
    assert laid is not None
    # Op by op the Python thread is the slower of the two threads, and the device waits for it.
    value = queued_interval_ns(of, batch)[0]
    assert value == round(sum(laid.host_ns[:-1])) < interval_ns(of, batch)[0]


def test_steps_of_several_ranks_are_taken_as_they_start_alone() -> None:
    of, batch = case("engine.tensor_parallel_size=2")
    assert of.model.ranks == 2
    assert queued_interval_ns(of, batch) == interval_ns(of, batch)


def test_rows_say_that_they_were_queued(tmp_path: Path) -> None:
    head = "id,hardware,model,phase,batch,query_len,context,step_ms,issued,settings\n"
    row = "{},atlas_a2_910b2,Qwen3-0.6B,decode,1,1,500,3.0,{},optimizations.graph=ge_graph\n"
    path = tmp_path / "steps.csv"
    path.write_text(head + row.format("alone", "") + row.format("queue", "queued"))
    rows: list[StepRow] = read_steps(path)
    assert [r.queued for r in rows] == [False, True]
    (alone, queued), skipped = price_steps(rows)
    assert not skipped
    assert queued.predicted_us < alone.predicted_us


def test_ablations_say_it_too(tmp_path: Path) -> None:
    head = "id,hardware,model,phase,batch,query_len,context,base,step,base_ms,step_ms,scored,issued\n"
    row = "{},atlas_a2_910b2,Qwen3-0.6B,decode,1,1,500,optimizations.graph=ge_graph,"
    row += "optimizations.fusion.rope=true,3,2.9,,{}\n"
    path = tmp_path / "ladders.csv"
    path.write_text(head + row.format("alone", "") + row.format("queue", "queued"))
    (alone, queued), skipped = price_ablations(read_ablations(path))
    assert not skipped
    saved = [a - q for a, q in zip(alone.predicted_ms, queued.predicted_ms, strict=True)]
    assert saved[0] == pytest.approx(saved[1], abs=1e-3)  # the same host stands before both graphs
    assert saved[0] > 0.05
