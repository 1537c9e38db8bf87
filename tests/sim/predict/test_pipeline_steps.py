"""Pipeline stages in the simulator: a stage's step in four times, the reported step, and what deeper models cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scenarios.batches import decode_batch
from scenarios.loader import load_scenario
from scenarios.lowering.parallel import shard
from scenarios.lowering.stages import split_depth
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.schema import Scenario
from scenarios.timeline import Span, step_time
from scenarios.trace import read_trace, write_trace
from sim.collective import price_collective
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.predict.explain import diagnose
from sim.predict.gains import gains_of
from sim.predict.memory import memory_of, memory_of_stages
from sim.predict.pipeline_steps import (
    Pipe,
    alone,
    alone_ranks,
    behind,
    behind_ranks,
    rows_of,
    sensitivity_of_stages,
    transfer_ns,
)
from sim.predict.pipeline_timeline import wrapped
from sim.predict.predict import check, predict
from sim.predict.result import run_result
from sim.predict.scenario_result import case_of, kernel_args
from sim.predict.steps import PROBES, Case, in_flight, layout_of, plans_of, program_of, rank_schedules, step_ns
from sim.step import engine
from sim.step.pipeline import once
from sim.step.rank_plans import RankPlans
from sim.step.schedule import launches
from tests.examples import examples
from tests.scenarios.making import PLAIN, scenario, scenarios
from tests.sim.hardware_maker import hardware

STEADY = hardware()
UNSTEADY = load_hardware("atlas_a3_die")
SMALL = replace(PLAIN, name="small", layers=6, hidden=256, intermediate=512)
LLAMA = load_model("Llama-3.1-8B")


def case(outcome: Scenario, model: Model, stages: int = 2, ranks: int = 1, hw: HardwareProfile = STEADY) -> Case:
    return Case(outcome, split_depth(shard(model, ranks), stages), hw)


def pipe_of(item: Case) -> Pipe:
    return Pipe(
        item.model,
        item.hardware,
        lambda batch, stage: program_of(item.scenario, item.model, batch, stage),
        lambda batch, stage, probe: plans_of(item, batch, probe.host, probe.device, stage),
        lambda batch, stage, probe: layout_of(item, batch, stage, probe),
        item.scenario.protocol.synchronize != "step",
    )


# ---- a stage's step in four times ----


@pytest.mark.parametrize("graph", ["eager", "aclgraph", "ge_graph"])
@pytest.mark.parametrize(("ranks", "hw"), [(1, STEADY), (2, UNSTEADY)])
def test_longest_paths_are_what_the_engine_plays(graph: str, ranks: int, hw: HardwareProfile) -> None:
    # However long the device is busy with what came before, the stage is done when its two paths say.
    outcome = scenario(workload__batch=8, optimizations__graph=graph)
    item = case(outcome, SMALL, 3, ranks, hw)
    pipe, batch = pipe_of(item), in_flight(item, decode_batch(outcome))[0]
    for stage, times in enumerate(rows_of(pipe, [batch])[0][0]):
        plans = [alone(plan, stage == 2) for plan in plans_of(item, batch, stage=stage)]
        for busy in (0, 50_000, times.alone_ns // 2, times.alone_ns, 3 * times.alone_ns):
            schedule = engine.times_of_ranks([behind(plan, busy) for plan in plans])[0]
            assert schedule.end_ns == max(times.alone_ns, busy + times.queued_ns)
        assert 0 < times.queued_ns < times.alone_ns
        assert 0 < times.post_ns <= times.host_ns <= times.alone_ns


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("graph", ["eager", "aclgraph", "ge_graph"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_columns_of_a_stage_last_as_long_as_its_plans(ranks: int, graph: str, prefetch: bool) -> None:
    outcome = scenario(workload__batch=8, optimizations__graph=graph, optimizations__overlap__prefetch=prefetch)
    item = case(outcome, SMALL, 3, ranks, UNSTEADY)
    pipe, batches = pipe_of(item), in_flight(item, decode_batch(outcome))
    planned = replace(pipe, laid=lambda *_: None)
    assert rows_of(pipe, batches, PROBES) == rows_of(planned, batches, PROBES)
    several = rank_schedules(item) > 1
    ours, theirs = (sensitivity_of_stages(one, batches, "decode", several) for one in (pipe, planned))
    assert ours == theirs
    short = replace(item, hardware=replace(UNSTEADY, host=replace(UNSTEADY.host, queue_depth=2, launch_us=200.0)))
    assert rows_of(pipe_of(short), batches) == rows_of(replace(pipe_of(short), laid=lambda *_: None), batches)


def test_the_link_between_stages_is_the_one_between_their_dies() -> None:
    outcome = scenario(workload__batch=32)

    def tensor_ns(hw: HardwareProfile, ranks: int, stage: int) -> int:
        both = transfer_ns(pipe_of(case(outcome, LLAMA, 4, ranks, hw)), decode_batch(outcome), stage)
        assert both % 2 == 0  # MLP output and residual
        return both // 2

    def priced(hw: HardwareProfile, ranks: int, stride: int) -> int:
        rows = 32 * LLAMA.hidden // ranks * 2
        return price_collective("send_recv", rows, 2, hw, stride=stride, busy=True).duration_ns

    a2, a3 = load_hardware("atlas_a2_910b2"), load_hardware("atlas_a3_die")
    # Four ranks a stage in servers of eight cards: HCCS to the second stage, RoCE from the second to the third.
    hccs, roce = tensor_ns(a2, 4, 1), tensor_ns(a2, 4, 2)
    assert (hccs, roce) == (priced(a2, 4, 4), priced(a2, 4, 8))
    assert hccs < roce
    # One rank a stage, two dies a card: SIO inside the first card, HCCS to the next one.
    assert (tensor_ns(a3, 1, 1), tensor_ns(a3, 1, 2)) == (priced(a3, 1, 1), priced(a3, 1, 2))
    assert tensor_ns(a3, 1, 1) != tensor_ns(a3, 1, 2)


# ---- the reported step ----


@pytest.mark.parametrize("graph", ["eager", "aclgraph", "ge_graph"])
@pytest.mark.parametrize("phase", ["decode", "prefill", "mixed"])
@pytest.mark.parametrize(("ranks", "hw"), [(1, STEADY), (2, UNSTEADY)])
def test_the_step_of_rank_0(graph: str, phase: str, ranks: int, hw: HardwareProfile) -> None:
    outcome = scenario(
        workload__phase=phase,
        workload__batch=5,
        workload__input_tokens=300,
        optimizations__graph=graph,
        engine__max_num_batched_tokens=512,
    )
    item = case(outcome, SMALL, 3, ranks, hw)
    prediction = predict(item)
    step, pipeline = prediction.step, prediction.pipeline
    assert pipeline is not None
    assert step.total_ns == pipeline.round.total_ns == step_ns(item, prediction.batch) == prediction.sensitivity.step_ns
    assert step.total_ns == step.computing_ns + step.communication_not_overlapped_ns + step.free_ns
    assert step.free_ns >= 0
    kernels = list(launches(prediction.plan))
    assert [(k.name, k.index) for k in kernels] == [(i.op.name, i.index) for i in prediction.program]
    computing = sum(k.kernel.duration_ns for k in kernels if k.kernel.accelerator != "COMMUNICATION")
    assert step.computing_ns == computing
    moved = sum(k.kernel.duration_ns for k in kernels if k.kernel.accelerator == "COMMUNICATION")
    assert step.communication_ns == moved + step.communication_wait_ns
    # What the stage waits for others is distinguished: in its sends it is waiting, without work it is free.
    first = pipeline.round.bubbles[0]
    assert prediction.waits_ns.get(ranks, 0) == first.send_ns
    assert step.communication_wait_ns >= first.send_ns
    assert step.free_ns >= first.idle_ns
    assert all(0 <= s.start_ns <= s.end_ns <= step.total_ns for s in prediction.timeline.spans)
    if phase == "decode":
        assert prediction.metrics["tpot_ms"].value == pytest.approx(step.total_ns / 1e6)
        assert sum(pipeline.requests) == 5


@examples(12)
@given(
    scenarios(), st.sampled_from([1, 2]), st.integers(2, 4), st.sampled_from([0, 1, 2]), st.sampled_from(["step", "op"])
)
def test_any_scenario_in_stages(made: Scenario, ranks: int, stages: int, queue: int, wait: str) -> None:
    engine_part = made.engine.model_copy(update={"task_queue_enable": queue, "sequence_parallel": ranks > 1})
    protocol = made.protocol.model_copy(update={"synchronize": wait})
    made = made.model_copy(update={"engine": engine_part, "protocol": protocol})
    item = case(made, SMALL, stages, ranks, UNSTEADY)
    assume(not check(item))
    prediction = predict(item)
    step, pipeline = prediction.step, prediction.pipeline
    assert pipeline is not None
    assert step.total_ns == step.computing_ns + step.communication_not_overlapped_ns + step.free_ns
    assert step.total_ns == prediction.sensitivity.step_ns
    assert step.free_ns >= pipeline.round.bubbles[0].idle_ns >= 0
    assert step.communication_wait_ns >= pipeline.round.bubbles[0].send_ns >= 0
    assert all(0 <= s.start_ns <= s.end_ns <= step.total_ns for s in prediction.timeline.spans)


def test_every_micro_batch_of_a_round_is_in_the_step() -> None:
    outcome = scenario(workload__batch=4, optimizations__graph="ge_graph")
    value, half = predict(case(outcome, SMALL)), predict(case(scenario(workload__batch=2), SMALL))
    assert value.pipeline is not None
    assert value.pipeline.requests == (2, 2)
    assert half.pipeline is not None
    assert half.pipeline.requests == (1, 1)
    attention = [k for k in launches(value.plan) if k.kind == "attention"]
    assert len(attention) == 2 * 3  # two micro-batches, three of six layers


def test_the_step_comes_back_from_its_trace(tmp_path: Path) -> None:
    prediction = predict(case(scenario(workload__batch=5, optimizations__graph="aclgraph"), LLAMA, 2, 2, UNSTEADY))
    write_trace(tmp_path / "trace.json", prediction.timeline, kernel_args(prediction))
    (read,) = read_trace(tmp_path / "trace.json")
    assert step_time(read) == prediction.step
    # A send that the round before left unfinished has no launch in this one; all else is launched before it starts.
    device = [s for s in read.spans if s.process == "Ascend Hardware" or s.thread == "Group 0 Communication"]
    assert {s.kind for s in device if s.launched_by < 0} == {"send_recv"}
    assert all(s.start_ns >= read.spans[s.launched_by].start_ns for s in device if s.launched_by >= 0)


def test_spans_behind_the_end_of_a_round_are_those_before_its_begin() -> None:
    def span(start: int, end: int) -> Span:
        return Span("k", "Ascend Hardware", "Stream 0", start, end, launched_by=0)

    outcome = wrapped([span(10, 20), span(90, 130), span(130, 140)], 100)
    assert [(s.start_ns, s.end_ns, s.launched_by) for s in outcome] == [
        (10, 20, 0),
        (90, 100, 0),
        (30, 40, -1),
        (0, 30, -1),
    ]


# ---- what depth costs and gains ----


def metric(outcome: Scenario, stages: int, name: str, model: Model = LLAMA) -> float:
    return predict(case(outcome, model, stages)).metrics[name].value


def test_one_request_is_no_faster_in_two_stages() -> None:
    outcome = scenario(workload__batch=1, optimizations__graph="ge_graph")
    one, two = (metric(outcome, stages, "tpot_ms") for stages in (1, 2))
    assert one < two < 1.1 * one


def test_many_requests_are_and_each_card_holds_half() -> None:
    outcome = scenario(workload__batch=64, optimizations__graph="ge_graph")
    one, two = (metric(outcome, stages, "decode_throughput") for stages in (1, 2))
    assert one < two < 2 * one
    whole, half = (metric(outcome, stages, "peak_memory_bytes") for stages in (1, 2))
    assert 0.5 * whole < half < 0.6 * whole


def test_a_card_of_two_stages_does_half_of_the_output() -> None:
    metrics = predict(case(scenario(workload__batch=8), SMALL, 3, 2, UNSTEADY)).metrics
    assert metrics["output_throughput_per_card"].value == pytest.approx(metrics["output_throughput"].value / 6)


def test_chunks_of_a_long_prompt_fill_the_pipeline() -> None:
    long = scenario(workload__batch=1, workload__input_tokens=16_384, engine__max_num_batched_tokens=1024)
    one, two, four = (metric(long, stages, "ttft_ms") for stages in (1, 2, 4))
    # 16 chunks: 17 half slots instead of 16 whole ones, 19 quarter slots; later chunks take longer than earlier ones.
    assert one / two == pytest.approx(16 * 2 / 17, rel=0.05)
    assert one / four == pytest.approx(16 * 4 / 19, rel=0.1)
    short = scenario(workload__batch=1, workload__input_tokens=1024)
    assert metric(short, 2, "ttft_ms") > metric(short, 1, "ttft_ms")


def test_a_host_that_waits_for_its_device_cannot_run_ahead() -> None:
    outcome = scenario(workload__batch=8)
    ahead = step_ns(case(outcome, LLAMA), decode_batch(outcome))
    layer = outcome.model_copy(update={"protocol": outcome.protocol.model_copy(update={"synchronize": "layer"})})
    assert step_ns(case(layer, LLAMA), decode_batch(outcome)) > ahead


def test_intervals_hold_the_value() -> None:
    prediction = predict(case(scenario(workload__batch=8), SMALL, 2, 2, UNSTEADY))
    for name in ("ttft_ms", "tpot_ms"):
        item = prediction.metrics[name]
        assert item.low < item.value < item.high
    assert prediction.sensitivity.late > 0


# ---- memory ----


def test_the_stage_that_needs_most_is_the_one_that_counts() -> None:
    model = split_depth(replace(LLAMA, layers=31), 2)  # 16 layers and the embedding, 15 and the LM head
    outcome = scenario(workload__batch=8)
    first, last = memory_of_stages(outcome, model, STEADY)
    assert first.total > last.total
    memory = memory_of(outcome, model, STEADY)
    assert replace(memory, capacity=first.capacity, others=first.others) == first
    assert memory.capacity.kv_tokens == min(first.capacity.kv_tokens, last.capacity.kv_tokens)


# ---- the answer ----


def result(item: Case):
    prediction = predict(item)
    return run_result(prediction, diagnose(prediction), gains_of(item), (), "x")


def test_bubble_and_waiting_are_told_apart_in_the_answer() -> None:
    outcome = result(case(scenario(workload__batch=8), SMALL, 3, 2, UNSTEADY))
    pipeline, step = outcome["pipeline"], outcome["step"]
    assert outcome["ranks"] == 6
    assert pipeline["micro_batches"] == len(pipeline["micro_batch_requests"]) == 3
    assert [stage["layers"] for stage in pipeline["stages"]] == [2, 2, 2]
    for stage in pipeline["stages"]:
        parts = stage["receive_wait_us"] + stage["send_wait_us"] + stage["idle_us"]
        assert stage["bubble_us"] == pytest.approx(parts)
        assert stage["busy_us"] + stage["bubble_us"] == pytest.approx(step["total_us"])
    mean = sum(stage["bubble_us"] for stage in pipeline["stages"]) / 3
    assert pipeline["bubble_us"] == pytest.approx(mean)
    assert pipeline["bubble_share"] == pytest.approx(mean / step["total_us"])


def test_one_stage_has_no_pipeline() -> None:
    assert result(Case(scenario(), SMALL, STEADY))["pipeline"] is None


def test_stages_of_one_rank_rest_on_links_and_on_no_late_ranks() -> None:
    def numbers(stages: int, ranks: int) -> int:
        outcome = scenario(workload__batch=4)
        return sum(result(case(outcome, SMALL, stages, ranks, UNSTEADY))["provenance"]["sources"].values())

    assert numbers(1, 1) < numbers(2, 1) < numbers(2, 2) == numbers(1, 2)


def test_a_bubble_that_dominates_is_named() -> None:
    outcome = scenario(workload__batch=1, optimizations__graph="ge_graph")
    value = diagnose(predict(case(outcome, LLAMA, 4)))
    assert value.name == "bubble-bound"
    assert "1 micro-batch in 4 stages" in value.evidence
    assert "4 requests or more would keep every stage busy" in value.evidence
    assert value.limits["bubble-bound"] > sum(us for name, us in value.limits.items() if name != "bubble-bound")
    many = scenario(workload__batch=64, optimizations__graph="ge_graph")
    assert diagnose(predict(case(many, LLAMA, 2))).name != "bubble-bound"


def test_a_prefill_of_one_chunk_is_mostly_bubble() -> None:
    outcome = scenario(workload__phase="prefill", workload__batch=1, workload__input_tokens=2048)
    prediction = predict(case(outcome, LLAMA, 4))
    assert diagnose(prediction).evidence.endswith("shorter chunks would fill it sooner")
    assert prediction.pipeline is not None
    assert prediction.pipeline.round.share == pytest.approx(0.75, abs=0.03)
    item = case(outcome, LLAMA, 4)
    rows = rows_of(pipe_of(item), in_flight(item, prediction.batch))[0]
    assert prediction.step.total_ns == once(rows).total_ns
    assert prediction.metrics["ttft_ms"].value == pytest.approx(prediction.step.total_ns / 1e6)


@pytest.mark.parametrize("last", [False, True])
def test_ranks_are_changed_by_their_times_as_plan_by_plan(last: bool) -> None:
    """Eager, so that each rank's launches are in its plan: the same plans, without laying any of them out."""
    loaded = load_scenario(
        "deepseek_v3_ep16_decode",
        [
            "engine.pipeline_parallel_size=2",
            "engine.tensor_parallel_size=8",
            "optimizations.graph=eager",
        ],
    )
    case = case_of(loaded)
    batch = in_flight(case, decode_batch(case.scenario))[0]
    plans = plans_of(case, batch, stage=1 if last else 0)
    changed = alone_ranks(plans, last)
    assert isinstance(changed, RankPlans)
    one_by_one = [alone(plan, last) for plan in plans]
    assert list(changed) == one_by_one
    assert list(behind_ranks(changed, 5_000)) == [behind(plan, 5_000) for plan in one_by_one]
