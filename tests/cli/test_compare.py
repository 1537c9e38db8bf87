"""`whatif compare`: scenarios and result files side by side, and where the difference lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WhatIf = Callable[..., Any]
AnswerFile = Callable[..., Path]
Compare = Callable[..., tuple[dict[str, Any], str]]

EAGER, SEED = "qwen3_8b_910b2_eager", "qwen3_8b_decode"


@pytest.fixture
def compare(whatif: WhatIf, tmp_path: Path) -> Compare:
    """`compare(*arguments)` -> (the document, what is shown)."""

    def run(*arguments: object) -> tuple[dict[str, Any], str]:
        file = tmp_path / "compared.json"
        done = whatif("compare", *arguments, "--json", file)
        assert (done.status, done.err) == (0, "")
        return json.loads(file.read_text(encoding="utf-8")), " ".join(done.out.split())

    return run


def test_a_result_compared_with_itself_does_not_differ(compare: Compare, answer_file: AnswerFile) -> None:
    document, shown = compare(answer_file(SEED), answer_file(SEED))
    assert document["settings"] == []
    assert all(row["ratio"] == 1 for row in document["metrics"].values())
    assert all(row["a_us"] == row["b_us"] for row in document["causes"])
    assert "as fast. Both are HBM-bound." in shown
    assert "The settings are the same" in shown


def test_two_results_differ_by_their_settings_and_the_causes_sum(compare: Compare, answer_file: AnswerFile) -> None:
    document, shown = compare(answer_file(SEED), answer_file(EAGER))
    settings = {row["setting"]: (row["a"], row["b"]) for row in document["settings"]}
    assert settings["optimizations.graph"] == ("ge_graph", "eager")
    assert settings["hardware"] == ("atlas_a3_die_20", "atlas_a2_910b2")
    assert not {"name", "description", "model"} & set(settings)
    step = document["step"]["total_us"]
    assert sum(row["b_us"] - row["a_us"] for row in document["causes"]) == pytest.approx(step["b"] - step["a"])
    assert document["causes"][0]["cause"] == "device idle"
    assert f"{step['ratio']:.2f}x slower, most of it device idle" in shown
    assert "The bottleneck goes from HBM-bound to host-bound." in shown


def test_the_other_way_round_is_the_inverse(compare: Compare, answer_file: AnswerFile) -> None:
    there, _ = compare(answer_file(SEED), answer_file(EAGER))
    back, shown = compare(answer_file(EAGER), answer_file(SEED))
    for key, row in there["metrics"].items():
        assert back["metrics"][key]["ratio"] == pytest.approx(1 / row["ratio"])
    assert "x faster, most of it device idle (-" in shown


def test_scenarios_are_predicted_with_the_settings_laid_on_both(compare: Compare, answer_file: AnswerFile) -> None:
    document, _ = compare(SEED, EAGER, "--set", "workload.batch=4")
    assert "workload.batch" not in {row["setting"] for row in document["settings"]}
    expected, _ = compare(answer_file(SEED, "workload.batch=4"), answer_file(EAGER, "workload.batch=4"))
    assert document == expected


def test_the_cause_named_pulls_in_the_direction_of_the_change(compare: Compare, answer_file: AnswerFile) -> None:
    """With the fused kernel the time of `rope` appears, which is no reason for being faster."""
    document, shown = compare(answer_file(SEED, "optimizations.fusion.rope=false"), answer_file(SEED))
    named = shown.partition("x faster, most of it ")[2].partition(" (")[0]
    [cause] = [row for row in document["causes"] if row["cause"] == named]
    assert cause["b_us"] < cause["a_us"]


def test_a_longer_list_of_causes_is_cut_with_its_sum(compare: Compare, answer_file: AnswerFile) -> None:
    document, shown = compare(answer_file(SEED), answer_file(EAGER))
    moved = [row["b_us"] - row["a_us"] for row in document["causes"] if row["b_us"] != row["a_us"]]
    assert len(moved) > 14
    assert f"and {len(moved) - 14} more kinds: {sum(moved[14:]):+,.1f} us" in shown


def test_overlaps_of_both_sides_stand_below_the_causes(whatif: WhatIf, compare: Compare, tmp_path: Path) -> None:
    results = []
    for pieces in (1, 4):
        switches = "optimizations.fusion.matmul_all_reduce=false", f"optimizations.overlap.comm_chunks={pieces}"
        results.append(tmp_path / f"{pieces}.json")
        sets = [part for switch in switches for part in ("--set", switch)]
        assert whatif("run", "qwen3_8b_tp2_prefill_mc2", *sets, "--json", results[-1]).status == 0
    document, shown = compare(*results)
    assert document["overlaps"]["a"] == []
    assert [it["pass"] for it in document["overlaps"]["b"]] == ["overlap.comm_chunks"]
    assert "overlap.comm_chunks: ideal" in shown
