"""Lengths from columns against the players of plans: equal to the nanosecond, contended or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from scenarios.batches import reported_batch
from scenarios.loader import load_scenario
from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off, on_value, passes_for, with_needs, without
from scenarios.schema import Scenario
from sim.predict.pipeline_steps import behind_ranks
from sim.predict.predict import forbidden
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, program_of
from sim.step import engine, fluid, kernel_times, lengths, meetings, ranks
from sim.step.host import make_plans
from sim.step.layout import Layout, layout
from sim.step.ranks import Variant
from tests.scenarios.making import program, scenario
from tests.sim.step.test_rank_plans import MODEL, NOISY, SETTINGS

VARIANTS = (Variant(), Variant(device=1.05), Variant(host=1.05), Variant(late=False))


def what_ifs(case: Case) -> Iterator[Case]:
    """The case with all off, and with each switch on and off."""
    states = [all_off(case.scenario, case.model)]
    for item in passes_for(case.model):
        base = with_needs(item, case.scenario)
        states += [without(item, base, case.model), set_switch(base, item.switch, on_value(item, case.scenario))]
    for state in dict.fromkeys(states):
        changed = case.with_scenario(state)  # type: ignore[arg-type]
        if not forbidden(changed):
            yield changed


def columns(case: Case, ranks_: int) -> tuple[Layout, list[engine.Schedule]]:
    batch = reported_batch(case.scenario)
    of = program_of(case.scenario, case.model, batch)
    conditions = replace(case.conditions, ranks=ranks_)
    laid = layout(of, case.hardware, conditions)
    assert laid is not None
    return laid, engine.times_of_ranks(make_plans(of, case.hardware, conditions))


def shorter(name: str, layers: int, *sets: str) -> Case:
    """A shipped scenario with fewer layers."""
    case = case_of(load_scenario(name, sets))
    return replace(case, model=replace(case.model, layers=layers))


def test_every_what_if_of_one_rank_is_as_long_as_simpy_says() -> None:
    played = contended = 0
    for sets in ((), ("optimizations.graph=aclgraph",), ("workload.phase=prefill", "workload.input_tokens=300")):
        for case in what_ifs(shorter("qwen3_8b_decode", 3, *sets)):
            laid, (schedule,) = columns(case, 1)
            assert fluid.end_ns(laid) == schedule.end_ns
            if not laid.several_streams:
                assert lengths.length_ns(laid) == schedule.end_ns
                times = kernel_times.of_one_rank(laid, schedule.end_ns)
                assert list(zip(times.starts, times.ends, strict=True)) == schedule.kernels
            played, contended = played + 1, contended + laid.several_streams
    assert played > 40
    assert contended > 5


@pytest.mark.parametrize("name", ["deepseek_v3_ep16_decode", "qwen3_30b_a3b_decode"])
def test_every_what_if_of_ranks_that_hold_other_experts_is_as_long_as_simpy_says(name: str) -> None:
    contended = 0
    for case in what_ifs(shorter(name, 5, "workload.expert_skew=0.5")):
        laid, schedules = columns(case, case.model.ranks)
        assert fluid.end_ns(laid) == schedules[0].end_ns
        if not laid.several_streams:
            assert lengths.lengths_of_ranks_ns(laid, VARIANTS[:1]) == [schedules[0].end_ns]
        contended += laid.several_streams
    assert contended


@pytest.mark.parametrize("block", [1, 7, meetings.BLOCK])
@pytest.mark.parametrize(("of", "conditions"), SETTINGS)
def test_all_variants_of_ranks_are_those_of_their_plans(
    of: Scenario, conditions: object, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meetings, "BLOCK", block)
    laid_program = program(of, MODEL)
    once = replace(conditions, host_scale=1.0, device_scale=1.0)  # type: ignore[type-var]
    laid = layout(laid_program, NOISY, once)
    if once.synchronize != "step":
        assert laid is None
        return
    assert laid is not None
    plans = make_plans(laid_program, NOISY, once)
    assert lengths.lengths_of_ranks_ns(laid, VARIANTS) == ranks.totals_ns(plans, VARIANTS)
    walk = lengths.walk_of_ranks(laid, VARIANTS)
    assert walk is not None
    if not laid.several_streams:
        times, schedule = kernel_times.of_first_rank(laid, walk), ranks.times(plans)[0]
        assert list(zip(times.starts, times.ends, strict=True)) == schedule.kernels
        assert {number: times.arrivals[number] for number in schedule.arrivals} == schedule.arrivals


def test_a_queue_that_fills_up_is_walked_entry_by_entry() -> None:
    short = replace(NOISY, host=replace(NOISY.host, queue_depth=2, launch_us=200.0, rank_skew_us=0.0))
    model = replace(shard(load_model("Qwen3-8B"), 1), layers=4)
    case = Case(scenario(workload__batch=4), model, short)
    laid, (schedule,) = columns(case, 1)
    assert lengths.length_ns(laid) == fluid.end_ns(laid) == schedule.end_ns
    deep = replace(short, host=replace(short.host, queue_depth=4096))
    free_hand, _ = columns(replace(case, hardware=deep), 1)
    assert lengths.host_walk(free_hand, 1.0)[0][-1] < lengths.host_walk(laid, 1.0)[0][-1] == schedule.host[-2][1]
    several, _ = columns(replace(case, model=replace(MODEL, layers=4), hardware=short), 4)
    assert lengths.lengths_of_ranks_ns(several, VARIANTS) is None


@pytest.mark.parametrize("ranks_", [1, 4])
@pytest.mark.parametrize("graph", ["eager", "aclgraph"])
@pytest.mark.parametrize("prefetch", ["true", "false"])
def test_a_step_behind_a_busy_device_is_as_long_as_simpy_says(prefetch: str, graph: str, ranks_: int) -> None:
    sets = (f"optimizations.graph={graph}", f"optimizations.overlap.prefetch={prefetch}")
    case = shorter("llama_3_1_70b_tp4_pp2_decode", 4, "engine.pipeline_parallel_size=1", *sets)
    of = program_of(case.scenario, case.model, reported_batch(case.scenario))
    conditions = replace(case.conditions, ranks=ranks_, host_scale=1.05, device_scale=0.95)
    plans, laid = make_plans(of, case.hardware, conditions), layout(of, case.hardware, conditions)
    assert laid is not None
    assert laid.several_streams == (prefetch == "true")
    for busy_ns in (300_000, 10**12):
        ends = engine.times_of_ranks(behind_ranks(plans, busy_ns))[0].end_ns
        busy = replace(laid, busy_ns=busy_ns)
        assert fluid.end_ns(busy) == ends
        if not laid.several_streams:
            known = lengths.lengths_of_ranks_ns(busy, VARIANTS[:1]) if ranks_ > 1 else [lengths.length_ns(busy)]
            assert known == [ends]
