"""Ranks that are alike cost no more than one: folding them changes no byte of any answer."""

from __future__ import annotations

import json

import pytest

from scenarios.batches import reported_batch
from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from scenarios.trace import trace_text
from sim.predict import steps
from sim.predict.explain import advise, diagnose
from sim.predict.gains import gains_of
from sim.predict.predict import cold_start, predict
from sim.predict.result import run_result
from sim.predict.steps import Case, plans_of, program_of, rank_schedules
from sim.step import engine, ranks
from sim.step.host import make_plans
from tests.scenarios.making import scenario
from tests.sim.hardware_maker import hardware

#: Nothing in it varies from rank to rank; costs that are no round numbers.
ALIKE = hardware("atlas_a3_die", kernel__jitter_sigma=0.0, host__aten_python_us=17.12345, host__launch_us=9.87651)


def case(ranks_: int, **settings: object) -> Case:
    result = scenario(
        model="Qwen3-32B", hardware="atlas_a3_die", workload__batch=16, engine__tensor_parallel_size=ranks_, **settings
    )
    return Case(result, shard(load_model("Qwen3-32B"), ranks_), ALIKE)


def answer(item: Case) -> str:
    """All that `whatif run` writes, the trace included."""
    for memory in (*vars(steps).values(), cold_start):
        getattr(memory, "cache_clear", lambda: None)()
    prediction = predict(item)
    gains = gains_of(item)
    result = run_result(prediction, diagnose(prediction), gains, advise(prediction, gains), "folded")
    return json.dumps(result) + trace_text(prediction.timeline)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"optimizations__graph": "aclgraph"},
        {"workload__phase": "prefill", "workload__input_tokens": 64, "engine__sequence_parallel": True},
    ],
)
def test_folding_changes_no_byte_of_the_answer(monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]) -> None:
    item = case(4, **settings)
    assert rank_schedules(item) == 1
    folded = answer(item)
    monkeypatch.setattr("sim.predict.steps.rank_schedules", lambda value: value.model.tensor_parallel)
    assert len(plans_of(item, reported_batch(item.scenario))) == 4
    assert answer(item) == folded


@pytest.mark.parametrize("graph", ["eager", "aclgraph"])
def test_64_ranks_that_are_alike_play_as_one(graph: str) -> None:
    item = case(64, optimizations__graph=graph)
    batch = reported_batch(item.scenario)
    (plan,) = plans_of(item, batch)
    alone = engine.times(plan)
    conditions = item.conditions
    many = make_plans(
        program_of(item.scenario, item.model, batch), ALIKE, type(conditions)(conditions.task_queue_enable, ranks=64)
    )
    assert len(many) == 64
    for schedule in engine.times_of_ranks(many):
        assert schedule == alone
    assert ranks.total_ns(many) == alone.end_ns


def test_any_luck_forbids_folding() -> None:
    for where in ("host__jitter_sigma", "kernel__jitter_sigma", "host__rank_skew_us"):
        quiet = {"kernel__jitter_sigma": 0.0} | {where: 0.1}
        item = Case(case(4).scenario, case(4).model, hardware("atlas_a3_die", **quiet))
        assert rank_schedules(item) == 4, where
