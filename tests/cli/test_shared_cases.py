"""Inputs of ../shared/cases that are read by no other test: each ends with the right answer, or with its one line."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.loader import load_scenario
from sim.predict.scenario_result import first_result

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no folder ../shared beside the project")
WhatIf = Callable[..., Any]

#: What `whatif run` answers to a scenario that cannot run, behind the name of the file.
REFUSED = {
    "scenario_grouped_digits_beyond_64_bits.yaml": (
        ":2:10: workload.batch: must be a whole number of requests, got '99,999,999,999,999,999,999'"
    ),
    "scenario_quoted_number_beyond_64_bits.yaml": (
        ":2:10: workload.batch: must be a whole number of requests, got '99999999999999999999'"
    ),
    "scenario_quoted_number_1e999.yaml": ":2:16: workload.expert_skew: must be a number, got '1e999'",
    "scenario_long_hardware_name.yaml": ":1:11: hardware: 'aaaa",
    "qwen3_14b_32gib.yaml": ":2:8: model: does not fit: ",
    "qwen3_8b_910b4_overload.yaml": ":4:34: workload.batch: does not fit: ",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_scenario_that_cannot_run_is_one_line(whatif: WhatIf, name: str) -> None:
    done = whatif("run", CASES / name)
    assert (done.status, done.out) == (2, "")
    (line,) = done.problems
    assert line.startswith(f"{CASES / name}{REFUSED[name]}")
    assert len(line) <= 1000


def test_weights_that_leave_nothing_and_requests_that_are_too_many_are_distinguished(whatif: WhatIf) -> None:
    """vLLM reports -0.87 GiB for the cache of the first; the second fits with fewer requests at a time."""
    (weights,) = whatif("run", CASES / "qwen3_14b_32gib.yaml").problems
    assert weights.endswith("not even one request fits: shrink the weights")
    assert "weights 27.5" in weights
    (requests,) = whatif("run", CASES / "qwen3_8b_910b4_overload.yaml").problems
    assert requests.endswith("at most 23 requests of this length fit")


@pytest.mark.slow
def test_a_stage_of_dense_layers_only_runs_with_an_overlap_switch() -> None:
    commands = [
        shlex.split(line)
        for line in (CASES / "pp_dense_first_stage_with_overlap.sh").read_text(encoding="utf-8").splitlines()
        if line.startswith("whatif run ")
    ]
    assert len(commands) == 3
    for _, _, name, *options in commands:
        result = first_result(load_scenario(name, options[1::2])).result
        assert result["pipeline"] is not None
        assert result["step"]["total_us"] > 0


def test_a_name_in_a_csv_header_is_text(whatif: WhatIf) -> None:
    done = whatif("import", CASES / "app_markdown_in_csv_header.csv")
    assert (done.status, done.out) == (2, "")
    (line,) = done.problems
    assert ":1: has no column 'Name'; found: a, ![x](http" in line


def test_a_name_of_a_host_call_is_text(whatif: WhatIf) -> None:
    """The lab shows it as text too: tests/app/test_names_of_files.py."""
    done = whatif("import", CASES / "app_markdown_in_host_call")
    assert (done.status, done.err) == (0, "")
    assert "Step 0.450 ms" in done.out
    assert "\x1b" not in done.out


def test_every_shared_case_is_named_by_a_test(root: Path) -> None:
    texts = "\n".join(file.read_text(encoding="utf-8") for file in (root / "tests").rglob("test_*.py"))
    missing = [case.name for case in CASES.iterdir() if case.name.partition(".")[0] not in texts]
    assert not missing
