"""What a sweep remembers from point to point changes no row: each is what a process that knows nothing would say."""

from __future__ import annotations

import gc
from functools import _lru_cache_wrapper
from pathlib import Path
from random import Random

import pytest

from sim.predict import frames
from sim.sweep.point import Result, result_of, results_of
from sim.sweep.space import Point, grid_file, read_space

GRIDS = {
    "experts": "scenario: qwen3_30b_a3b_decode\ngrid:\n  workload.batch: [1, 3, 8]\n"
    "  optimizations.graph: [eager, aclgraph]\n  workload.expert_skew: [0, 0.5]\n",
    "stages": "scenario: llama_3_1_70b_tp4_pp2_decode\ngrid:\n  workload.batch: [2, 5]\n"
    "  optimizations.graph: [eager, aclgraph]\n",
    "serving": "scenario: serve_qwen3_14b_910b3\ngrid:\n  workload.batch: [1, 7]\n"
    "  engine.max_num_batched_tokens: [1024, 4096]\n",
}


def chosen(grid: str, folder: Path, count: int) -> tuple[str, list[Point]]:
    """The scenario of a grid and some of its points, in random order."""
    path = grid_file("qwen3_32b_a3")
    if grid in GRIDS:
        path = folder / f"{grid}.yaml"
        path.write_text(GRIDS[grid])
    space = read_space(path)
    return space.scenario, Random(0).sample(list(space.points()), count)


def forget() -> None:
    """Clear all that functions of this project remember."""
    for item in gc.get_objects():
        # Not isinstance: it asks objects of other libraries for their class, and torch warns of some.
        if type(item) is _lru_cache_wrapper and item.__module__.startswith(("sim.", "scenarios.")):
            item.cache_clear()


def alone(scenario: str, point: Point) -> Result:
    forget()
    return result_of(scenario, point)


@pytest.mark.parametrize("grid", ["qwen3_32b_a3", *GRIDS])
def test_rows_are_those_of_points_predicted_alone(grid: str, tmp_path: Path) -> None:
    scenario, points = chosen(grid, tmp_path, 4)
    forget()
    together = results_of(scenario, points)
    again = results_of(scenario, points[::-1])[::-1]
    assert together == again == [(point.place, alone(scenario, point)) for point in points]
    assert {result[1] for _, result in together} == {"done"}


SIZES = """
scenario: qwen3_8b_tp2_decode
grid:
  optimizations.graph: [eager, aclgraph, ge_graph]
  optimizations.kv.dtype: [auto, int8]
random:
  count: 6
  seed: 4
  of:
    workload.batch: {from: 1, to: 24}
    workload.input_tokens: {from: 1, to: 12000, log: true}
    workload.output_tokens: {from: 2, to: 400}
    engine.max_num_batched_tokens: [2048, 8192]
"""


def test_rows_of_frames_are_those_of_steps_that_are_built_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sizes.yaml"
    path.write_text(SIZES)
    space = read_space(path)
    points = list(space.points())
    forget()
    framed = results_of(space.scenario, points)
    assert frames._known.cache_info().currsize > 3
    forget()
    monkeypatch.setattr(frames, "ALONE", 10**9)
    assert results_of(space.scenario, points) == framed
    assert {result[1] for _, result in framed} <= {"done", "skipped"}
    assert sum(result[1] == "done" for _, result in framed) > 20
