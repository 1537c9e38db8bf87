"""A question goes into a URL and comes back; what a link may ask is bounded."""

from __future__ import annotations

import pytest

from app_pages.parts import answers
from app_pages.parts.answers import Remembered
from app_pages.parts.state import FIRST_SCENARIO, MAX_VALUE, Question, is_question, question_of, unpacked, written
from scenarios.errors import ScenarioError

ASKED = Question(
    "qwen3_8b_prefill", (("model", "Qwen3-4B"), ("optimizations.kv.dtype", "int8"), ("workload.batch", "4"))
)


@pytest.mark.parametrize("question", [Question(), ASKED, Question("qwen3_8b_decode", (("workload.batch", "2"),))])
def test_a_question_comes_back_from_its_url_and_from_one_parameter(question: Question) -> None:
    assert question_of(question.params) == question
    assert unpacked(question.packed()) == question


def test_the_question_that_the_lab_opens_with_needs_no_parameter() -> None:
    assert Question().params == {}
    assert question_of({}).scenario == FIRST_SCENARIO


def test_parameters_are_those_of_the_command_line() -> None:
    assert ASKED.params == {
        "scenario": "qwen3_8b_prefill",
        "set.model": "Qwen3-4B",
        "optimizations.kv.dtype": "int8",
        "workload.batch": "4",
    }
    assert ASKED.command == (
        "whatif run qwen3_8b_prefill --set model=Qwen3-4B --set optimizations.kv.dtype=int8 --set workload.batch=4"
    )


def test_other_pages_parameters_are_no_settings() -> None:
    assert question_of({"model": "x", "batch": "8", "lang": "zh", "baseline": "y"}) == Question()
    assert [key for key in ("lang", "batch", "scenario", "workload.batch", "set.model") if is_question(key)] == [
        "scenario",
        "workload.batch",
        "set.model",
    ]


def test_a_value_is_cut_before_it_is_read() -> None:
    question = question_of({"workload.batch": "9" * 10_000, "scenario": "x" * 10_000})
    assert len(question.sets[0][1]) == len(question.scenario) == MAX_VALUE


@pytest.mark.parametrize(
    "question",
    [
        Question("/etc/passwd"),
        Question("../scenarios/qwen3_8b_decode.yaml"),
        Question(sets=(("model", "/etc"),)),
        Question(sets=(("hardware", "./sim/hardware/generic.yaml"),)),
    ],
)
def test_a_link_reads_no_file_of_this_machine(question: Question) -> None:
    with pytest.raises(ScenarioError, match="does not ship"):
        answers.first(question)


def test_a_slip_in_a_link_is_told_with_the_nearest_name() -> None:
    with pytest.raises(ScenarioError, match="Did you mean 'qwen3_8b_decode'"):
        answers.first(Question("qwen3_8b_decod"))


def test_values_are_written_as_the_command_takes_them() -> None:
    assert [written(value) for value in (True, False, 8, "int8")] == ["true", "false", "8", "int8"]


def test_answers_are_kept_under_the_validated_scenario_and_no_more_than_a_few() -> None:
    same = Question("tiny_llama_cpu"), Question("tiny_llama_cpu", (("workload.input_tokens", _input_tokens()),))
    assert answers.first(same[0]) is answers.first(same[1])
    cache: Remembered[int] = Remembered(3)
    result = [cache.get(n, lambda n=n: n * n) for n in (1, 2, 3, 1, 4, 1)]  # type: ignore[misc]
    assert result == [1, 4, 9, 1, 16, 1]
    assert len(cache) == 3
    assert cache.get(1, lambda: -1) == 1
    assert cache.get(2, lambda: -1) == -1


def _input_tokens() -> str:
    return str(answers.loaded(Question("tiny_llama_cpu")).scenario.workload.input_tokens)


def test_what_fails_is_not_kept() -> None:
    cache: Remembered[int] = Remembered(3)

    def fail() -> int:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        cache.get(1, fail)
    assert cache.get(1, lambda: 5) == 5


def test_the_whole_answer_is_that_of_the_command() -> None:
    from sim.predict.scenario_result import scenario_result
    from sim.report.files import to_json

    assert answers.json_text(Question("tiny_llama_cpu")) == to_json(scenario_result("tiny_llama_cpu").result)
