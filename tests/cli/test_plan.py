"""`whatif plan` from the outside: a plan, its files, and refusals in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Done

WhatIf = Callable[..., Done]

SMALL = ("plan", "qwen3_0_6b_decode", "--cards", "1", "--set", "optimizations.weights=bf16", "--set",
         "optimizations.kv.dtype=auto")  # fmt: skip


def test_a_plan_is_shown_and_written_and_its_scenario_runs(whatif: WhatIf, tmp_path: Path) -> None:
    answer, scenario = tmp_path / "plan.json", tmp_path / "best.yaml"
    result = whatif(*SMALL, "--slo", "tpot_ms=30", "--json", str(answer), "--out", str(scenario))
    assert result.status == 0, result.err
    plan = json.loads(answer.read_text(encoding="utf-8"))
    assert plan["best"]["meets_slo"] is True
    assert plan["best"]["metrics"]["tpot_ms"] <= 30
    assert plan["fixed"] == ["optimizations.kv.dtype", "optimizations.weights"]
    assert "vllm serve" in result.out
    assert "vllm serve" in plan["best"]["command"]["0.18"]["text"]
    again = whatif("run", str(scenario), "--json", str(tmp_path / "run.json"))
    assert again.status == 0, again.err
    ran = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert ran["scenario"]["workload"]["batch"] == plan["best"]["batch"]


@pytest.mark.parametrize(
    ("slo", "what"), [("tpt_ms=30", "--slo: no limit 'tpt_ms'"), ("tpot_ms=-1", "--slo: tpot_ms must be milliseconds")]
)
def test_a_wrong_slo_is_one_line_and_writes_nothing(whatif: WhatIf, tmp_path: Path, slo: str, what: str) -> None:
    result = whatif(*SMALL, "--slo", slo, "--json", str(tmp_path / "plan.json"))
    assert result.status == 2
    assert what in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("cards", "fixed", "nearest"),
    [
        (3, ["engine.tensor_parallel_size=2"], 2),
        (7, ["engine.tensor_parallel_size=2", "engine.data_parallel_size=2"], 8),
        (22, ["engine.tensor_parallel_size=2", "engine.data_parallel_size=1"], 16),
    ],
)
def test_cards_that_what_is_set_does_not_divide_are_one_line(
    whatif: WhatIf, cards: int, fixed: list[str], nearest: int
) -> None:
    sets = [word for pair in fixed for word in ("--set", pair)]
    done = whatif("plan", "qwen3_32b_tp16_decode", "--cards", str(cards), *sets)
    named = ", ".join(sorted(fixed))
    assert (done.status, done.out) == (2, "")
    assert done.err == f"--cards {cards}: no layout with {named} takes them all; nearest: {nearest}\n"


def test_an_slo_that_nothing_meets_is_status_1(whatif: WhatIf) -> None:
    result = whatif(*SMALL, "--slo", "ttft_ms=0.5,tpot_ms=0.5")
    assert result.status == 1
    assert "nothing meets the SLO; this is nearest" in " ".join(result.out.split())
