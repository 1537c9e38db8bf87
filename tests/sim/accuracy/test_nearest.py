"""The measured step next to a prediction: the same, or the nearest and in what it differs; none where none is near."""

from __future__ import annotations

from scenarios.loader import load_scenario
from sim.accuracy.nearest import nearest_measured
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case


def case(name: str, *sets: str) -> Case:
    return case_of(load_scenario(name, sets))


def test_the_seed_workload_was_measured() -> None:
    found = nearest_measured(case("qwen3_8b_decode"))
    assert found is not None
    assert (found.id, found.step_ms, found.differs) == ("qwen3_8b_seed_ge_graph", 14.74, ())
    assert found.fitted


def test_what_differs_is_said_with_the_values_of_the_row() -> None:
    found = nearest_measured(case("qwen3_8b_910b2_eager", "workload.batch=3"))
    assert found is not None
    assert (found.id, found.differs) == ("qwen3_8b_910b2_eager_b4", ("batch: 4",))


def test_a_model_that_nobody_measured_has_no_row() -> None:
    assert nearest_measured(case("llama_3_1_8b_decode")) is None
    assert nearest_measured(case("tiny_llama_cpu")) is None
