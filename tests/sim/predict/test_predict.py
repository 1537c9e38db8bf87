"""The one public call: the reported step, the metrics of a request, cold start."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from scenarios.batches import capture_sizes, decode_batch, prefill_batches, reported_batch
from scenarios.lowering.stages import split_depth
from scenarios.ops.program import Batch, Group
from scenarios.schema import Scenario
from scenarios.timeline import step_time
from sim.predict import steps
from sim.predict.predict import Prediction, check, cold_start, predict, waits_by_rank
from sim.predict.steps import Case, interval_ns, layout_of, length_ns, plans_of, sensitivity_of, step_ns
from sim.predict.ttft import MAX_CHUNKS, ends_through_stages
from sim.predict.uncertainty import step_interval
from sim.step import engine, fluid
from sim.step.pipeline import StageTime
from sim.step.plan import Issue, Plan, Replay, Update
from sim.step.schedule import Schedule, launches
from tests.scenarios.making import PLAIN, TINY, program, scenario, switched
from tests.sim.hardware_maker import flat_price, hardware
from tests.sim.plans import launch as made

STEADY = hardware()


def case(result: Scenario, hw=STEADY, model=TINY) -> Case:
    return Case(result, model, hw)


def ms(ns: int) -> float:
    return ns / 1e6


# ---- the step ----


@pytest.mark.parametrize("phase", ["decode", "prefill", "mixed"])
@pytest.mark.parametrize("graph", ["eager", "aclgraph", "npugraph_ex", "ge_graph"])
def test_the_reported_step(phase: str, graph: str) -> None:
    result = scenario(workload__phase=phase, workload__batch=4, workload__input_tokens=50, optimizations__graph=graph)
    prediction = predict(case(result))
    assert prediction.graph == (graph if phase == "decode" else "eager")
    assert prediction.program.graph == prediction.graph
    assert prediction.batch.phase == phase
    assert prediction.timeline == engine.play(prediction.plan)
    assert prediction.step == step_time(prediction.timeline)
    step = prediction.step
    assert step.total_ns == step.computing_ns + step.communication_not_overlapped_ns + step.free_ns
    assert 0 < step.computing_ns < step.total_ns
    assert step.communication_ns == 0  # one card
    # The fast player says the same.
    assert step_ns(prediction.case, prediction.batch) == step.total_ns == prediction.timeline.end_ns


def test_every_op_of_the_program_is_one_kernel_of_the_timeline() -> None:
    prediction = predict(case(scenario(workload__batch=4)))
    on_device = sorted(prediction.timeline.device_spans, key=lambda span: span.index)
    assert [(s.index, s.name, s.layer, s.kind) for s in on_device] == [
        (i.index, i.op.name, i.layer, i.op.kind) for i in prediction.program
    ]
    for span, launch in zip(on_device, launches(prediction.plan), strict=True):
        assert span.duration_ns == launch.kernel.duration_ns  # one stream: nothing is shared


# ---- what the step depends on ----


def test_a_plan_with_slower_kernels_or_a_slower_host() -> None:
    result = scenario(workload__batch=4)
    item, batch = case(result), decode_batch(result)
    base, host, device = (
        list(launches(plans_of(item, batch, **scale)[0]))[5]
        for scale in ({}, {"host_scale": 2.0}, {"device_scale": 2.0})
    )
    assert (host.host_ns, host.launch_ns) == (2 * base.host_ns, 2 * base.launch_ns)
    assert (device.host_ns, device.kernel.duration_ns) == (base.host_ns, 2 * base.kernel.duration_ns)
    assert host.kernel == base.kernel


def test_the_length_of_a_plan_is_that_of_its_timeline() -> None:
    for graph in ("eager", "aclgraph", "ge_graph"):
        prediction = predict(case(scenario(workload__batch=4, optimizations__graph=graph)))
        assert length_ns((prediction.plan,)) == prediction.timeline.end_ns == step_ns(prediction.case, prediction.batch)


def test_the_exposure_is_measured_by_playing_the_step_again() -> None:
    result = scenario(workload__batch=4)
    item, batch = case(result), decode_batch(result)
    slower = {side: length_ns(plans_of(item, batch, **{f"{side}_scale": 1.05})) for side in ("device", "host")}
    sensitivity = sensitivity_of(item, batch)
    assert sensitivity.step_ns == step_ns(item, batch)
    assert sensitivity.device == pytest.approx((slower["device"] / sensitivity.step_ns - 1) / 0.05)
    assert sensitivity.host == pytest.approx((slower["host"] / sensitivity.step_ns - 1) / 0.05)


def test_a_step_that_was_asked_for_before_is_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A what-if asks for the length, and later for what it depends on: it is played once."""
    for prefetch in (False, True):
        item = case(scenario(workload__batch=4, optimizations__overlap__prefetch=prefetch))
        batch = reported_batch(item.scenario)
        laid = layout_of(item, batch)
        assert laid is not None
        assert laid.several_streams == prefetch
        known = step_ns(item, batch)
        assert known == fluid.end_ns(laid)
        with monkeypatch.context() as patch:
            patch.setattr(steps, "_laid_ns", None)
            assert step_ns(item, batch) == sensitivity_of(item, batch).step_ns == known


def test_a_prediction_carries_its_exposure_and_its_interval() -> None:
    for graph in ("eager", "ge_graph"):
        prediction = predict(case(scenario(workload__batch=4, optimizations__graph=graph)))
        assert prediction.sensitivity == sensitivity_of(prediction.case, prediction.batch)
        value, low, high = interval_ns(prediction.case, prediction.batch)
        assert value == prediction.step.total_ns
        assert (low, high) == step_interval(prediction.sensitivity, STEADY)
        metric = prediction.metrics["tpot_ms"]
        assert (metric.value, metric.low, metric.high) == pytest.approx((ms(value), low / 1e6, high / 1e6))


def test_a_decode_step_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.step.priced.price", flat_price)
    prediction = predict(case(scenario(workload__batch=1, optimizations__graph="ge_graph"), model=PLAIN))
    # Preamble on two threads: 18 calls of 20 + 6 + 5 us; the launches and kernels behind them are done in time.
    preamble_us = 18 * 31
    # Then the copy of 100 us and the call of 50; the graph starts 25 us later.
    kernels = {span.name: (span.start_ns, span.end_ns) for span in prediction.timeline.device_spans}
    assert kernels["update_parameters"][0] == (preamble_us + 150 + 25) * 1000
    # Inside: parameters, embedding, two look-ups, norm; two layers of 4 matmuls, 6 vector kernels and attention; LM
    # head and sampling.
    layer = [s.kind for s in prediction.timeline.device_spans if s.layer == 1]
    assert layer == [
        "matmul", "rope", "kv_cache_write", "kv_cache_write", "attention", "matmul", "add_rms_norm", "matmul", "swiglu",
        "matmul", "add_rms_norm",
    ]  # fmt: skip
    captured_ns = 5 * 2_000 + 2 * (4 * 10_000 + 6 * 2_000 + 20_000) + 10_000 + 3 * 2_000
    # 5 + 2 * 11 + 1 + 3 kernels have 30 gaps: 1 us before and after each attention, 30 ns elsewhere.
    gaps_ns = 4 * 1_000 + 26 * 30
    end_ns = kernels["token_cast"][1]
    assert end_ns - kernels["update_parameters"][0] == captured_ns + gaps_ns
    assert prediction.step.total_ns == end_ns + 7_000


# ---- what a request sees ----


def metrics(prediction: Prediction) -> dict[str, float]:
    return {name: metric.value for name, metric in prediction.metrics.items()}


def test_metrics_follow_from_the_steps() -> None:
    result = scenario(workload__batch=4, workload__input_tokens=50, workload__output_tokens=10)
    prediction = predict(case(result))
    got = metrics(prediction)
    assert got["tpot_ms"] == ms(step_ns(prediction.case, decode_batch(result)))
    assert got["ttft_ms"] == ms(step_ns(prediction.case, Batch("prefill", (Group(4, 50, 0),))))
    e2el_ms = got["ttft_ms"] + 9 * got["tpot_ms"]
    assert got["e2el_ms"] == pytest.approx(e2el_ms)
    assert got["output_throughput"] == pytest.approx(4 * 10 / (e2el_ms / 1000))
    assert got["output_throughput_per_card"] == got["output_throughput"]
    assert got["total_token_throughput"] == pytest.approx(4 * 60 / (e2el_ms / 1000))
    assert got["decode_throughput"] == pytest.approx(4 / (got["tpot_ms"] / 1000))
    assert got["peak_memory_bytes"] == prediction.memory.total


def test_the_steady_decode_step_is_the_reported_one() -> None:
    prediction = predict(case(scenario(workload__batch=4)))
    assert metrics(prediction)["tpot_ms"] == ms(prediction.step.total_ns)


def test_the_first_token_waits_for_the_chunk_that_ends_its_prefill() -> None:
    # Chunks of 100: three requests of 60 end in chunk 1 (one), chunk 2 (two).
    result = scenario(workload__batch=3, workload__input_tokens=60, engine__max_num_batched_tokens=100)
    item = case(result)
    chunks = prefill_batches(result)
    assert [c.tokens for c in chunks] == [100, 80]
    first, second = (step_ns(item, chunk) for chunk in chunks)
    assert metrics(predict(item))["ttft_ms"] == pytest.approx(ms(first + 2 * (first + second)) / 3)


def test_a_long_prefill_is_the_sum_of_its_chunks() -> None:
    result = scenario(workload__input_tokens=700, engine__max_num_batched_tokens=100)
    item = case(result)
    assert metrics(predict(item))["ttft_ms"] == pytest.approx(
        ms(sum(step_ns(item, c) for c in prefill_batches(result)))
    )


def test_a_very_long_prefill_is_interpolated_between_its_chunks() -> None:
    result = scenario(workload__input_tokens=7000, engine__max_num_batched_tokens=100)
    item = case(result)
    chunks = prefill_batches(result)
    assert len(chunks) == 70 > MAX_CHUNKS
    exact_ns = list(accumulate(step_ns(item, chunk) for chunk in chunks))[-1]
    assert metrics(predict(item))["ttft_ms"] == pytest.approx(ms(exact_ns), rel=0.01)


def test_an_output_of_one_token_ends_with_the_prefill() -> None:
    got = metrics(predict(case(scenario(workload__output_tokens=1))))
    assert got["e2el_ms"] == got["ttft_ms"]


def test_every_metric_lies_in_its_interval() -> None:
    for graph in ("eager", "ge_graph"):
        prediction = predict(case(scenario(workload__batch=4, optimizations__graph=graph)))
        for name, metric in prediction.metrics.items():
            assert 0 < metric.low <= metric.value <= metric.high, name
        tpot = prediction.metrics["tpot_ms"]
        assert tpot.low < tpot.value < tpot.high  # a profile is never exact


def test_a_prefill_scenario_still_has_a_decode_step() -> None:
    result = scenario(workload__phase="prefill", workload__batch=2, workload__input_tokens=50)
    prediction = predict(case(result))
    assert metrics(prediction)["ttft_ms"] == ms(prediction.step.total_ns)  # all in one chunk
    assert metrics(prediction)["tpot_ms"] == ms(step_ns(prediction.case, decode_batch(result)))


# ---- knobs of the engine and the protocol ----


def test_padding_costs_what_the_captured_size_costs() -> None:
    def total(batch: int, sizes: tuple[int, ...]) -> int:
        result = scenario(
            workload__batch=batch, optimizations__graph="npugraph_ex", engine__cudagraph_capture_sizes=sizes
        )
        return predict(case(result)).step.total_ns

    assert total(5, (256,)) > total(5, (8,)) >= total(5, (5,))


def test_a_batch_off_the_grid_runs_eager() -> None:
    off_grid = predict(
        case(scenario(workload__batch=5, optimizations__graph="aclgraph", engine__cudagraph_capture_sizes=(4,)))
    )
    assert off_grid.graph == "eager"
    assert off_grid.timeline == predict(case(scenario(workload__batch=5))).timeline
    assert off_grid.cold_start.mode == "eager"


def test_parameter_updates_are_there_in_captured_modes_only() -> None:
    def updates(graph: str) -> int:
        prediction = predict(case(scenario(optimizations__graph=graph)))
        assert sum(isinstance(step, Replay) for step in prediction.plan.steps) == (graph != "eager")
        return sum(isinstance(step, Update) for step in prediction.plan.steps)

    assert {graph: updates(graph) for graph in ("eager", "aclgraph", "npugraph_ex", "ge_graph")} == {
        "eager": 0,
        "aclgraph": 2,
        "npugraph_ex": 2,
        "ge_graph": 0,
    }


def test_waiting_more_often_is_never_faster() -> None:
    times = [
        predict(case(scenario(workload__batch=4, protocol__synchronize=where))).step.total_ns
        for where in ("step", "layer", "op")
    ]
    assert times == sorted(times)
    assert times[0] < times[2]


def test_the_seed_moves_the_host_and_not_the_kernels() -> None:
    noisy = hardware(host__jitter_sigma=0.1)
    a, b = (predict(case(scenario(protocol__seed=seed), noisy)) for seed in (1, 2))
    assert a.step.total_ns != b.step.total_ns
    assert [one.kernel for one in launches(a.plan)] == [one.kernel for one in launches(b.plan)]


# ---- cold start ----


def test_an_eager_scenario_has_no_cold_start() -> None:
    result = cold_start(case(scenario()))
    assert (result.mode, result.compile_ms, result.capture_ms, result.shapes, result.break_even_steps) == (
        "eager",
        0,
        0,
        0,
        None,
    )


def test_capture_runs_every_captured_op_twice_for_each_size() -> None:
    result = scenario(optimizations__graph="aclgraph", engine__cudagraph_capture_sizes=(1, 8))
    item = case(result, model=PLAIN)
    outcome = cold_start(item)
    # Captured: embedding, two look-ups (aten), a norm; two layers of 4 matmuls, 5 fused calls and one cache write.
    embed_us = 3 * (20 + 6 + 5 + 10) + (40 + 6 + 5 + 10)
    layer_us = 4 * (30 + 21) + 6 * (40 + 21)
    nodes = 4 + 2 * 10
    one_ms = (2 * (embed_us + 2 * layer_us) + 60 * nodes) / 1000
    assert outcome.recapture_ms == pytest.approx(one_ms)
    assert outcome.capture_ms == pytest.approx(2 * one_ms)
    assert (outcome.mode, outcome.shapes, outcome.compile_ms) == ("aclgraph", 2, 0)


def test_torch_compile_traces_before_it_captures() -> None:
    sizes = {"engine__cudagraph_capture_sizes": (1, 8)}
    result = cold_start(case(scenario(optimizations__graph="npugraph_ex", **sizes)))
    assert result.compile_ms == 3000
    assert result.capture_ms == pytest.approx(2 * result.recapture_ms)


def test_a_whole_graph_is_compiled_anew_for_each_shape() -> None:
    result = scenario(optimizations__graph="ge_graph")
    item = case(result)
    outcome = cold_start(item)
    captured = sum(len(b.ops) * b.repeat for b in predict(item).program.blocks if b.captured)
    assert outcome.compile_ms == outcome.recapture_ms == pytest.approx(2000 + captured * 1)
    assert (outcome.capture_ms, outcome.shapes) == (0, 1)


def test_a_compiled_prefill_is_one_more_shape() -> None:
    result = scenario(optimizations__graph="ge_graph", workload__input_tokens=50)
    prefill_too = switched(result, graph_prefill=True)
    one, two = cold_start(case(result)), cold_start(case(prefill_too))
    prefill = program(prefill_too, batch=prefill_batches(prefill_too)[0])
    captured = sum(len(b.ops) * b.repeat for b in prefill.blocks if b.captured)
    assert (one.shapes, two.shapes) == (1, 2)
    assert two.compile_ms == pytest.approx(one.compile_ms + 2000 + captured * 1)
    assert two.recapture_ms == one.recapture_ms
    assert two.break_even_steps > one.break_even_steps
    # Three chunks of 20, 20 and 10 tokens are two shapes: lengths in the cache are inputs.
    chunked = scenario(
        optimizations__graph="ge_graph",
        optimizations__graph_prefill=True,
        workload__input_tokens=50,
        engine__max_num_batched_tokens=20,
    )
    assert cold_start(case(chunked)).shapes == 3


def test_a_compiled_prefill_is_one_launch_and_brings_the_first_token_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.predict.memory.GRAPH_BYTES", 0)  # which is more than this tiny model's buffers
    result = scenario(workload__phase="prefill", workload__input_tokens=50, optimizations__graph="ge_graph")
    eager, compiled = predict(case(result)), predict(case(switched(result, graph_prefill=True)))
    assert (eager.graph, compiled.graph) == ("eager", "ge_graph")
    assert sum(isinstance(step, Replay) for step in compiled.plan.steps) == 1
    assert compiled.metrics["ttft_ms"].value < eager.metrics["ttft_ms"].value
    assert compiled.metrics["tpot_ms"] == eager.metrics["tpot_ms"]
    # Its buffers are as tall as the chunk.
    assert compiled.memory.graph_pool - eager.memory.graph_pool == 49 * (2 * 16 + 3 * 24) * 2


def test_a_graph_has_paid_for_itself_after_some_steps() -> None:
    result = scenario(optimizations__graph="ge_graph")
    outcome = cold_start(case(result))
    saved_ms = ms(step_ns(case(scenario()), decode_batch(result)) - step_ns(case(result), decode_batch(result)))
    assert saved_ms > 0
    assert outcome.break_even_steps is not None
    assert (outcome.break_even_steps - 2) * saved_ms <= outcome.compile_ms <= outcome.break_even_steps * saved_ms


def test_a_graph_that_saves_nothing_never_pays() -> None:
    # Dispatch is free, the replay call takes a millisecond.
    hw = hardware(
        host__aten_python_us=0.0,
        host__matmul_python_us=0.0,
        host__fused_op_python_us=0.0,
        host__enqueue_us=0.0,
        host__launch_us=0.0,
        host__tiling_us=0.0,
        host__model_execute_us=1000.0,
    )
    assert cold_start(case(scenario(optimizations__graph="ge_graph"), hw)).break_even_steps is None


# ---- what forbids a case ----


def test_a_case_that_can_run_has_no_problems() -> None:
    assert check(case(scenario())) == []


def test_problems_with_the_model_come_before_memory() -> None:
    result = check(case(scenario(workload__input_tokens=100_000)))
    assert result[0][0] == "workload.input_tokens"


@pytest.mark.parametrize("mode", ["aclgraph", "npugraph_ex"])
def test_every_captured_shape_is_paid_back(mode: str) -> None:
    """One capture for each size: the break-even counts all of them, not one."""
    result = scenario(workload__batch=4, optimizations__graph=mode)
    outcome = cold_start(case(result))
    eager = step_ns(case(switched(result, graph="eager")), reported_batch(result))
    saved_ms = (eager - step_ns(case(result), reported_batch(result))) / 1e6
    assert outcome.shapes == len(capture_sizes(result.engine)) > 1
    assert outcome.capture_ms == pytest.approx(outcome.shapes * outcome.recapture_ms)
    assert outcome.break_even_steps is not None
    total_ms = outcome.compile_ms + outcome.capture_ms
    assert (outcome.break_even_steps - 2) * saved_ms <= total_ms <= outcome.break_even_steps * saved_ms


# ---- what no test noticed when it was turned into its neighbour ----


def test_ranks_that_come_last_together_share_the_wait() -> None:
    one = Plan((Issue(replace(made("sum", 5), rendezvous="sum 0")),), False, 8)
    ready = [Schedule([], [], [], arrivals={0: ns}) for ns in (100, 130, 107, 130, 130)]
    assert waits_by_rank(one, ready) == {1: 10, 3: 10, 4: 10}
    ready[0].arrivals[0] = 99  # 31 ns: what three cannot share is the first one's
    assert waits_by_rank(one, ready) == {1: 11, 3: 10, 4: 10}
    ready[0].arrivals[0] = 140
    assert waits_by_rank(one, ready) == {}


def test_stages_capture_next_to_each_other() -> None:
    """The stage with the most to capture decides, and it has about half of the layers."""
    deep = replace(PLAIN, layers=8)
    result = scenario(optimizations__graph="aclgraph", engine__cudagraph_capture_sizes=(1, 8), workload__batch=2)
    staged = result.model_copy(update={"engine": result.engine.model_copy(update={"pipeline_parallel_size": 2})})
    whole = cold_start(case(result, model=deep)).recapture_ms
    half = cold_start(case(staged, model=split_depth(deep, 2))).recapture_ms
    assert 0.4 < half / whole < 0.7


def test_chunks_through_stages_end_when_the_last_stage_has_them() -> None:
    """Two stages of 100 and 140 ns with a receive of 10, interval 0.5 and 2 times: by hand."""
    row = [StageTime(0, 0, 100, 100, 0), StageTime(0, 0, 140, 140, 10)]
    chunks = [Batch("prefill", (Group(1, 50, 50 * number),)) for number in range(3)]
    ends = ends_through_stages(chunks, lambda chunk: ((300.0, 150.0, 600.0), row))
    assert ends == [(250, 125, 500), (400, 200, 800), (550, 275, 1100)]
