"""What `--json` and `--trace` write: whole or not at all, the same bytes each time, and readable again."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.loader import load_scenario
from scenarios.timeline import step_time
from scenarios.trace import read_trace
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of

WhatIf = Callable[..., Any]
AnswerFile = Callable[..., Path]

SEED, EAGER = "qwen3_8b_decode", "qwen3_8b_910b2_eager"


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("scenario", [SEED, EAGER, "qwen2_5_7b_mixed"])
def test_a_trace_is_the_predicted_timeline(
    whatif: WhatIf, answer_file: AnswerFile, tmp_path: Path, scenario: str
) -> None:
    assert whatif("run", scenario, "--trace", tmp_path / "trace.json").status == 0
    [timeline] = read_trace(tmp_path / "trace.json")
    document = json.loads(answer_file(scenario).read_text(encoding="utf-8"))
    assert timeline.label == "SIMULATED"
    assert len(timeline.device_spans) == document["kernel_count"]
    step = step_time(timeline)
    for key, value in document["step"].items():
        assert value == getattr(step, key.replace("_us", "_ns")) / 1000, key
    predicted = predict(case_of(load_scenario(scenario))).timeline
    assert [(s.name, s.start_ns, s.end_ns) for s in timeline.spans] == [
        (s.name, s.start_ns, s.end_ns) for s in predicted.spans
    ]


def test_the_same_bytes_each_time_and_under_any_hash_seed(process: Callable[..., Any], tmp_path: Path) -> None:
    written = []
    for seed in ("0", "1"):
        done = process("run", EAGER, "--json", f"{seed}.json", "--trace", f"{seed}.trace", env={"PYTHONHASHSEED": seed})
        assert (done.returncode, done.stderr) == (0, b"")
        written.append(
            ((tmp_path / f"{seed}.json").read_bytes(), (tmp_path / f"{seed}.trace").read_bytes(), done.stdout)
        )
    assert written[0] == written[1]


def test_the_same_bytes_within_one_process(whatif: WhatIf, answer_file: AnswerFile, tmp_path: Path) -> None:
    again = tmp_path / "again.json"
    assert whatif("run", SEED, "--json", again).status == 0
    assert again.read_bytes() == answer_file(SEED).read_bytes()


def test_a_file_that_is_there_is_replaced_and_keeps_its_permissions(whatif: WhatIf, tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    file.write_text("of yesterday", "utf-8")
    file.chmod(0o640)
    assert whatif("run", SEED, "--json", file).status == 0
    assert json.loads(file.read_text(encoding="utf-8"))["schema_version"] == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert files(tmp_path) == {"answer.json"}


def test_names_with_spaces_and_of_any_script(whatif: WhatIf, tmp_path: Path) -> None:
    file = tmp_path / "ответ 回答 1.json"
    assert whatif("run", SEED, "--json", file).status == 0
    assert files(tmp_path) == {"ответ 回答 1.json"}


def test_a_refused_scenario_leaves_what_was_there(whatif: WhatIf, tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    file.write_text("of yesterday", "utf-8")
    assert whatif("run", SEED, "--set", "workload.batch=0", "--json", file, "--trace", tmp_path / "t").status == 2
    assert file.read_text(encoding="utf-8") == "of yesterday"
    assert files(tmp_path) == {"answer.json"}


def test_an_interrupt_while_predicting_leaves_nothing(
    whatif: WhatIf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.predict.scenario_result.gains_of", interrupted)
    done = whatif("run", SEED, "--json", tmp_path / "a", "--trace", tmp_path / "b")
    assert (done.status, done.out, done.err) == (130, "", "")
    assert files(tmp_path) == set()


def test_an_interrupt_while_writing_leaves_what_was_there(
    whatif: WhatIf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "answer.json"
    file.write_text("of yesterday", "utf-8")
    monkeypatch.setattr(os, "fsync", interrupted)
    assert whatif("run", SEED, "--json", file).status == 130
    assert file.read_text(encoding="utf-8") == "of yesterday"
    assert files(tmp_path) == {"answer.json"}


def test_a_result_never_replaces_what_it_comes_from(whatif: WhatIf, root: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_bytes((root / "scenarios/qwen3_8b_decode.yaml").read_bytes())
    before = scenario.read_bytes()
    (tmp_path / "link.json").symlink_to(scenario)
    for option in ("--json", "--trace"):
        for target in (scenario, tmp_path / "link.json", tmp_path / "." / "mine.yaml"):
            done = whatif("run", scenario, option, target)
            assert (done.status, done.out) == (2, "")
            assert done.problems == [f"{option} {target}: would overwrite the input {scenario}"]
    assert scenario.read_bytes() == before


def test_a_base_file_is_an_input_too(whatif: WhatIf, root: Path, tmp_path: Path) -> None:
    base, scenario = tmp_path / "base.yaml", tmp_path / "mine.yaml"
    base.write_bytes((root / "scenarios/qwen3_8b_decode.yaml").read_bytes())
    scenario.write_text("extends: base.yaml\nworkload: {batch: 2}\n", "utf-8")
    done = whatif("run", scenario, "--json", base)
    assert (done.status, done.problems) == (2, [f"--json {base}: would overwrite the input {base}"])


def test_two_results_never_share_a_file(whatif: WhatIf, tmp_path: Path) -> None:
    same = tmp_path / "same.json"
    done = whatif("run", SEED, "--json", same, "--trace", same)
    assert (done.status, done.problems) == (2, [f"--trace {same}: would overwrite the output of --json"])
    assert files(tmp_path) == set()


def test_a_comparison_never_replaces_what_it_compares(whatif: WhatIf, answer_file: AnswerFile, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_bytes(answer_file(SEED).read_bytes())
    done = whatif("compare", mine, mine, "--json", mine)
    assert (done.status, done.problems) == (2, [f"--json {mine}: would overwrite the input {mine}"])
    assert mine.read_bytes() == answer_file(SEED).read_bytes()


def test_json_goes_to_standard_output_where_that_is_asked_for(process: Callable[..., Any]) -> None:
    done = process("explain", SEED, "--json", "/dev/stderr")
    assert done.returncode == 0
    assert json.loads(done.stderr)["scenario"]["name"] == SEED
