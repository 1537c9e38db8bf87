"""Grid files: which points they have, in which order, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from sim.sweep.space import read_space, text_of


def space(folder: Path, text: str):  # type: ignore[no-untyped-def]
    path = folder / "grid.yaml"
    path.write_text(f"scenario: qwen3_8b_decode\n{text}")
    return read_space(path)


def test_points_are_all_combinations_and_the_last_key_changes_first(tmp_path: Path) -> None:
    points = list(
        space(tmp_path, "grid:\n  workload.batch: [1, 2]\n  optimizations.graph: [eager, aclgraph]\n").points()
    )
    assert [point.sets for point in points] == [
        ("workload.batch=1", "optimizations.graph=eager"),
        ("workload.batch=1", "optimizations.graph=aclgraph"),
        ("workload.batch=2", "optimizations.graph=eager"),
        ("workload.batch=2", "optimizations.graph=aclgraph"),
    ]
    assert [point.place for point in points] == [0, 1, 2, 3]


def test_zip_goes_together_and_a_list_one_after_the_other(tmp_path: Path) -> None:
    text = (
        "set: [workload.batch=4]\n"
        "zip:\n  - {workload.input_tokens: [10, 20], workload.output_tokens: [1, 2]}\n"
        "list:\n  - {optimizations.weights: bf16}\n  - {optimizations.kv.dtype: int8}\n"
    )
    assert [point.sets[1:] for point in space(tmp_path, text).points()] == [
        ("workload.input_tokens=10", "workload.output_tokens=1", "optimizations.weights=bf16"),
        ("workload.input_tokens=10", "workload.output_tokens=1", "optimizations.kv.dtype=int8"),
        ("workload.input_tokens=20", "workload.output_tokens=2", "optimizations.weights=bf16"),
        ("workload.input_tokens=20", "workload.output_tokens=2", "optimizations.kv.dtype=int8"),
    ]


def test_steps_reach_their_end_where_they_meet_it(tmp_path: Path) -> None:
    text = "grid:\n  workload.batch: {from: 1, to: 20, times: 4}\n  workload.input_tokens: {from: 5, to: 9, step: 2}\n"
    points = list(space(tmp_path, text).points())
    assert [p.values["workload.batch"] for p in points[::3]] == [1, 4, 16]
    assert [p.values["workload.input_tokens"] for p in points[:3]] == [5, 7, 9]


def test_draws_follow_from_their_seed_alone(tmp_path: Path) -> None:
    drawn = "workload.batch: {from: 1, to: 64, log: true}, workload.output_tokens: [2, 3]"
    text = f"random: {{count: 50, seed: 7, of: {{{drawn}}}}}\n"
    first, again = (list(space(tmp_path, text).points()) for _ in range(2))
    other = list(space(tmp_path, text.replace("seed: 7", "seed: 8")).points())
    assert first == again != other
    assert {p.values["workload.output_tokens"] for p in first} == {2, 3}
    assert all(isinstance(p.values["workload.batch"], int) and 1 <= p.values["workload.batch"] <= 64 for p in first)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grid:\n  workload.bach: [1]\n", "3:3: unknown key 'workload.bach'. Did you mean 'workload.batch'?"),
        ("grid:\n  workload.batch: []\n", "3:19: grid.workload.batch: holds no value"),
        ("zip:\n  - {workload.batch: [1, 2], workload.input_tokens: [3]}\n",
         "3:5: zip[0]: values go together: workload.batch 2, workload.input_tokens 1"),
        ("grid:\n  workload.batch: {from: 1, to: 4}\n", "3:19: grid.workload.batch: give either times or step"),
        ("random: {count: 1, of: {workload.batch: {from: 4, to: 1}}}\n",
         "2:41: random.of.workload.batch: from 4 to 1 is no range to draw from"),
        ("grid:\n  workload.batch: {from: 1, to: 2000000, step: 1}\n",
         "1:1: 1,000,001 points, more than 1,000,000; sweep fewer"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        space(tmp_path, text)
    assert refused.value.messages == (f"{tmp_path}/grid.yaml:{said}",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (4, "4"),
        ("w8a8", "w8a8"),
        ("true", '"true"'),
        ("a b", '"a b"'),
        ((1, 2), "[1, 2]"),
        (0.5, "0.5"),
    ],
)
def test_a_value_is_written_as_a_setting_that_means_it(value: object, text: str) -> None:
    assert text_of(value) == text  # type: ignore[arg-type]
