"""`whatif compare`: scenarios and result files side by side, and where the difference lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from scenarios.trace import read_trace, write_trace

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


@pytest.mark.slow
def test_scenarios_are_predicted_with_the_settings_laid_on_both(compare: Compare, answer_file: AnswerFile) -> None:
    document, _ = compare(SEED, EAGER, "--set", "workload.batch=4")
    assert "workload.batch" not in {row["setting"] for row in document["settings"]}
    expected, _ = compare(answer_file(SEED, "workload.batch=4"), answer_file(EAGER, "workload.batch=4"))
    timelines, fallbacks = document.pop("timelines"), document.pop("fallbacks")  # which results do not hold
    assert (EAGER, "graph missed: issued call by call") in {(one["side"], one["name"]) for one in fallbacks}
    for side in "ab":
        assert (document[side].pop("kind"), expected[side].pop("kind")) == ("scenario", "result")
        assert timelines[side]["step_us"] == document["step"]["total_us"][side]
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


@pytest.mark.slow
def test_overlaps_of_both_sides_stand_below_the_causes(whatif: WhatIf, compare: Compare, tmp_path: Path) -> None:
    results = []
    for pieces in (1, 4):
        switches = "optimizations.fusion.matmul_all_reduce=false", f"optimizations.overlap.comm_chunks={pieces}"
        results.append(tmp_path / f"{pieces}.json")
        sets = [part for switch in switches for part in ("--set", switch)]
        assert whatif("run", "qwen3_8b_tp2_prefill_mc2", *sets, "--json", results[-1]).status == 0
    document, shown = compare(*results)
    assert document["overlaps"]["a"] == []
    assert [item["pass"] for item in document["overlaps"]["b"]] == ["overlap.comm_chunks"]
    assert "overlap.comm_chunks: ideal" in shown


def test_a_trace_is_compared_as_the_scenario_it_was_written_of(
    compare: Compare, trace_file: Callable[..., Path]
) -> None:
    document, shown = compare(trace_file(EAGER), EAGER)
    assert all(row["ratio"] in (1, None) for row in document["step"].values())
    assert all(row["a_us"] == row["b_us"] for row in document["timelines"]["causes"])
    kernels = document["timelines"]["kernels"]
    assert kernels["paired"] == kernels["same_shapes"] == document["counts"]["kernel_count"]["a"]
    assert not kernels["replaced"] + kernels["only_in_a"] + kernels["only_in_b"]
    assert "Kernels that both have take equally long" in shown


def test_of_a_fused_pattern_both_forms_are_told(compare: Compare, trace_file: Callable[..., Path]) -> None:
    document, shown = compare(trace_file(EAGER), trace_file(EAGER, "optimizations.fusion.add_rms_norm=true"))
    [row] = document["timelines"]["kernels"]["replaced"]
    assert (row["b"], row["count"]) == ("AddRmsNorm", 72)
    assert row["a"] == "Add, Cast, Pows, ReduceMean, Adds, Rsqrt, Mul, Cast, Mul"
    assert "1.21x faster, most of it device idle, host late" in shown


def test_a_result_and_a_trace_are_compared_by_op_type(
    compare: Compare, answer_file: AnswerFile, trace_file: Callable[..., Path]
) -> None:
    document, shown = compare(answer_file(EAGER), trace_file(EAGER))
    assert "timelines" not in document
    assert all(row["a_count"] == row["b_count"] for row in document["op_types"])
    assert all(row["a_us"] == pytest.approx(row["b_us"]) for row in document["op_types"] + document["causes"])
    assert "By op type only" in shown


def test_the_picture_is_svg_and_the_same_each_time(
    whatif: WhatIf, tmp_path: Path, trace_file: Callable[..., Path]
) -> None:
    pictures = []
    for number in range(2):
        file = tmp_path / f"{number}.svg"
        done = whatif("compare", trace_file(EAGER), SEED, "--plot", file)
        assert (done.status, done.err) == (0, "")
        pictures.append(file.read_text(encoding="utf-8"))
    assert pictures[0] == pictures[1]
    words = "".join(ElementTree.fromstring(pictures[0]).itertext())
    assert "B: qwen3_8b_decode" in words
    assert "NPU Stream 0" in words
    assert "device idle, host late" in words


def test_what_cannot_be_drawn_set_or_chosen_is_refused(
    whatif: WhatIf, tmp_path: Path, answer_file: AnswerFile, trace_file: Callable[..., Path]
) -> None:
    result, trace = answer_file(SEED), trace_file(EAGER)

    def refused(*arguments: object) -> str:
        done = whatif("compare", *arguments)
        assert (done.status, done.out) == (2, "")
        [line] = done.problems
        return str(line)

    assert refused(result, trace, "--plot", tmp_path / "x.svg").endswith("a result has no timeline to draw")
    assert "name a file that ends in .svg" in refused(trace, trace, "--plot", tmp_path / "x.png")
    assert "there is nothing to set" in refused(result, trace, "--set", "workload.batch=4")
    assert "would overwrite the input" in refused(trace, SEED, "--json", trace)
    assert refused(f"{trace}#2", SEED).endswith("there is no such timeline, only #1 simulated, rank 0")
    assert refused(f"{trace}#0", SEED).endswith("timelines count from 1")
    assert not list(tmp_path.iterdir())


def test_a_timeline_of_a_file_is_chosen_by_its_number(
    compare: Compare, tmp_path: Path, trace_file: Callable[..., Path]
) -> None:
    both = tmp_path / "both.json"
    write_trace(both, [read_trace(trace_file(name))[0] for name in (SEED, EAGER)])
    document, shown = compare(f"{both}#2", f"{both}#1")
    assert [document[side]["name"] for side in "ab"] == ["both.json#2", "both.json#1"]
    assert document["step"]["total_us"]["ratio"] == pytest.approx(0.218936, rel=1e-4)
    _, shown = compare(both, EAGER)
    assert "both.json: the first of 2 timelines; name another as" in shown


def test_a_side_against_itself_has_nothing_that_changed(whatif: WhatIf, tmp_path: Path) -> None:
    file = tmp_path / "o.json"
    assert whatif("compare", "qwen3_8b_decode", "qwen3_8b_decode", "--json", file).status == 0
    timelines = json.loads(file.read_text())["timelines"]
    assert timelines["kernels"]["changed"] == []
    # As `run` has it: a thread that waits for the device is not busy.
    python = timelines["lanes"][0]["a"]
    assert python["lane"].startswith("Python")
    assert python["busy_us"] < 0.2 * timelines["a"]["step_us"]


def guidellm(folder: Path, name: str, per_step_ms: float, *, in_flight: tuple[int, ...] = (1, 8, 32)) -> Path:
    """A made-up result in guidellm's form: a TPOT of per_step_ms + 0.3 ms for each request in flight."""

    def load(count: int) -> dict[str, Any]:
        means = {
            "request_concurrency": count, "prompt_token_count": 520, "output_token_count": 256,
            "time_to_first_token_ms": 150.0 + count, "inter_token_latency_ms": per_step_ms + 0.3 * count,
        }  # fmt: skip
        metrics = {key: {"successful": {"mean": mean}} for key, mean in means.items()}
        strategy = {"type_": "concurrent", "streams": count}
        return {"config": {"strategy": strategy}, "metrics": {**metrics, "request_totals": {"successful": 90}}}

    file = folder / name
    file.write_text(json.dumps({"benchmarks": [load(count) for count in in_flight]}), encoding="utf-8")
    return file


def test_two_load_tests_are_compared_load_by_load(compare: Compare, tmp_path: Path) -> None:
    document, shown = compare(guidellm(tmp_path, "a.json", 26), guidellm(tmp_path, "b.json", 37))
    assert document["a"]["kind"] == document["b"]["kind"] == "load test"
    assert [row["load"] for row in document["serving"]["loads"]] == [
        "1 request in flight", "8 requests in flight", "32 requests in flight",
    ]  # fmt: skip
    for row in document["serving"]["loads"]:
        e2el = row["metrics"]["e2el_ms"]
        assert sum(cause["change_ms"] for cause in row["causes"]) == pytest.approx(e2el["b"] - e2el["a"])
    assert "At 32 requests in flight a request of b.json takes 12,065 ms against 9,260 ms of a.json" in shown
    assert "A 26.00 + 0.300 x requests in flight ms, B 37.00 + 0.300 x requests in flight ms" in shown
    assert "graph missed, host starved, or slower kernels" in shown


def test_a_load_test_is_compared_with_what_a_scenario_serves(compare: Compare, tmp_path: Path) -> None:
    """The load of both is the same: 8 requests in flight, 520 tokens in, 256 out."""
    traffic = {"arrival": "closed", "concurrency": 8, "rate": "null", "requests": 24, "warmup_requests": 4}
    given = [item for key, value in traffic.items() for item in ("--set", f"workload.traffic.{key}={value}")]
    bench = guidellm(tmp_path, "a.json", 26, in_flight=(8,))
    document, shown = compare(bench, "serve_qwen3_14b_910b3", *given)
    (row,) = document["serving"]["loads"]
    assert row["metrics"]["tpot_ms"]["a"] == pytest.approx(28.4)
    assert 10 < row["metrics"]["tpot_ms"]["b"] < 100
    assert "What requests met" in shown


def test_results_that_served_requests_say_which_part_of_a_request_changed(
    compare: Compare, whatif: WhatIf, tmp_path: Path
) -> None:
    files = []
    for speed in (2, 20):
        files.append(tmp_path / f"{speed}.json")
        done = whatif("run", "serve_tiny_cpu", "--set", f"workload.traffic.trace.speed={speed}", "--json", files[-1])
        assert done.status == 0
    document, shown = compare(*files)
    (row,) = document["serving"]["loads"]
    assert {cause["cause"] for cause in row["causes"]} <= {
        "queue", "prefill", "more output tokens",
        "decode: device", "decode: prefill", "decode: engine", "decode: other",
    }  # fmt: skip
    assert "Where a request's time changed" in shown
    assert document["step"]  # the steps are compared as well


@pytest.mark.parametrize("other", ["qwen3_0_6b_decode", "result"])
def test_a_load_test_has_nothing_in_common_with_a_step(
    whatif: WhatIf, answer_file: AnswerFile, tmp_path: Path, other: str
) -> None:
    file = guidellm(tmp_path, "a.json", 26)
    given = answer_file(SEED) if other == "result" else other
    done = whatif("compare", file, given)
    assert done.status == 2
    assert done.err.strip().endswith("compare it with another load test or a scenario with workload.traffic")
    assert len(done.err.strip().splitlines()) == 1


def test_a_load_test_has_no_timelines(whatif: WhatIf, tmp_path: Path) -> None:
    file = guidellm(tmp_path, "a.json", 26)
    numbered = whatif("compare", f"{file}#2", file)
    assert (numbered.status, "holds no timelines to choose from" in numbered.err) == (2, True)
    drawn = whatif("compare", file, file, "--plot", tmp_path / "x.svg")
    assert (drawn.status, len(drawn.err.strip().splitlines())) == (2, 1)
    assert not (tmp_path / "x.svg").exists()


def test_a_result_whose_requests_were_edited_is_refused(whatif: WhatIf, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    assert whatif("run", "serve_tiny_cpu", "--json", file).status == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    document["serving"]["ttft_ms"]["mean"] = "fast"
    file.write_text(json.dumps(document), encoding="utf-8")
    done = whatif("compare", file, file)
    assert done.status == 2
    assert "serving.ttft_ms.mean" in done.err
