"""`whatif import --what-if` and profiles in `whatif compare`: from the files of profilers to the changed step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.trace import read_trace
from tests.scenarios.profile import making

WhatIf = Callable[..., Any]

MAKERS: dict[str, Callable[[Path], Path]] = {
    "torch_npu": lambda folder: making.torch_npu(folder, steps=(7,)),
    "tables alone": lambda folder: making.torch_npu(folder, steps=(7,), trace=False),
    "database": lambda folder: making.database(folder / "profile.db", steps=(7,)),
    "msprof": lambda folder: making.op_summary(folder / "op_summary_1.csv"),
    "pytorch": lambda folder: making.pytorch(folder / "trace.json", steps=(7,)),
}


@pytest.mark.parametrize("form", MAKERS)
def test_every_form_of_profile_replays_and_lists_what_to_try(whatif: WhatIf, tmp_path: Path, form: str) -> None:
    out = tmp_path / "import.json"
    done = whatif("import", MAKERS[form](tmp_path), "--json", out)
    assert (done.status, done.err) == (0, "")
    load = json.loads(out.read_text(encoding="utf-8"))["what_if"]
    assert load["replay"]["error"] == 0
    ratios = [row["alone_ratio"] for row in load["rows"]]
    assert ratios == sorted(ratios, reverse=True)
    assert "remove_host_gaps" in {row["what_if"] for row in load["rows"]}
    assert "What if: measured" in done.out


def test_the_changed_step_lies_behind_the_measured_one_in_the_trace(whatif: WhatIf, tmp_path: Path) -> None:
    profile, trace, out = making.torch_npu(tmp_path, steps=(7,)), tmp_path / "trace.json", tmp_path / "import.json"
    options = ["--what-if", "no_waits", "--what-if", "scale:MatMulV3,factor=0.5"]
    done = whatif("import", profile, *options, "--trace", trace, "--json", out)
    assert (done.status, done.err) == (0, "")
    measured, changed = read_trace(trace)
    assert (measured.label, changed.label) == ("MEASURED", "SIMULATED")
    rows = json.loads(out.read_text(encoding="utf-8"))["what_if"]["rows"]
    assert [(row["what_if"], row["made"]) for row in rows] == [("no_waits", 1), ("scale:MatMulV3", 1)]
    shorter = measured.end_ns - measured.start_ns - (changed.end_ns - changed.start_ns)
    assert sum(row["waterfall_us"] for row in rows) == pytest.approx(shorter / 1000)
    assert "Assumed" in done.out
    compared = whatif("compare", f"{trace}#1", f"{trace}#2", "--plot", tmp_path / "both.svg")
    assert (compared.status, compared.err) == (0, "")
    assert "faster" in compared.out


def test_a_what_if_that_is_none_ends_in_one_line_and_writes_nothing(whatif: WhatIf, tmp_path: Path) -> None:
    profile = making.torch_npu(tmp_path, steps=(7,))
    done = whatif("import", profile, "--what-if", "fuse:rmsnorm", "--json", tmp_path / "import.json")
    assert (done.status, done.out) == (2, "")
    [line] = done.problems
    assert line == (
        "--what-if fuse:rmsnorm: 'rmsnorm' is not one of add_rms_norm, rms_norm, swiglu, rope. Did you mean 'rms_norm'?"
    )
    assert not (tmp_path / "import.json").exists()


@pytest.mark.parametrize("form", MAKERS)
def test_any_profile_is_compared_with_a_scenario(whatif: WhatIf, tmp_path: Path, form: str) -> None:
    out = tmp_path / "compared.json"
    done = whatif("compare", MAKERS[form](tmp_path), "qwen3_8b_decode", "--json", out)
    assert (done.status, done.err) == (0, "")
    document = json.loads(out.read_text(encoding="utf-8"))
    assert (document["a"]["kind"] in ("profile", "trace"), document["b"]["kind"]) == (True, "scenario")
    timelines = document["timelines"]
    assert timelines["a"]["label"] == "measured"
    for side in "ab":
        total = sum(row[f"{side}_us"] for row in timelines["causes"])
        assert total == pytest.approx(timelines[side]["step_us"])


def test_ranks_of_a_folder_are_compared_by_number(whatif: WhatIf, tmp_path: Path) -> None:
    making.torch_npu(tmp_path / "run", 0, steps=(7,))
    making.torch_npu(tmp_path / "run", 1, steps=(7,), late_us=20)
    done = whatif("compare", f"{tmp_path / 'run'}#1", f"{tmp_path / 'run'}#2", "--json", tmp_path / "out.json")
    assert (done.status, done.err) == (0, "")
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [document["timelines"][side]["rank"] for side in "ab"] == [0, 1]


def test_a_folder_that_is_no_profile_is_refused_in_one_line(whatif: WhatIf, tmp_path: Path) -> None:
    done = whatif("compare", tmp_path, "qwen3_8b_decode")
    assert (done.status, done.out) == (2, "")
    [line] = done.problems
    assert "holds no profile" in line
