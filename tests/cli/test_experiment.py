"""`whatif experiment`: a small one for real, its report on disk, and what is refused before anything is measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from sim.predict.shares import Name

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("torch")]

TINY = "scenarios/tiny_llama_cpu.yaml"
SMALL = ("--set", "workload.batch=2", "--set", "workload.input_tokens=16", "--set", "workload.output_tokens=8")
CPU = ("--backend", "cpu")
REPORT = ["gains.svg", "report.json", "report.md", "warm_up.svg"]


@pytest.fixture
def few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device.experiment.alternating.MIN_TURNS", 8)
    monkeypatch.setattr("device.experiment.alternating.MAX_TURNS", 8)
    monkeypatch.setattr("device.measure.measure.MAX_REPEATS", 5)


@pytest.mark.slow
@pytest.mark.usefixtures("few_turns")
def test_an_experiment_measures_what_it_predicts_and_reports_both(whatif: Callable[..., Any], tmp_path: Path) -> None:
    factors = "kv.dtype,weight_format"
    folder, out = tmp_path / "report", tmp_path / "out.json"
    done = whatif(
        "experiment", TINY, "--backend", "cpu", "--factors", factors, "--out", folder, "--json", out, *SMALL
    )  # fmt: skip
    assert done.status == 0
    said = done.err.splitlines()
    assert said[0] == "warming up the baseline"
    assert "factor 1 of 1: kv.dtype=int8" in said
    assert sorted(path.name for path in folder.iterdir()) == REPORT
    result = json.loads(out.read_text())
    assert out.read_bytes() == (folder / "report.json").read_bytes()
    rows = {row["factor"]: row for row in result["factors"]}
    assert list(rows) == ["kv.dtype=int8", "weight_format=nz"]
    assert rows["weight_format=nz"]["status"] == "refused"
    assert "FRACTAL_NZ" in rows["weight_format=nz"]["reason"]
    row = rows["kv.dtype=int8"]
    assert row["status"] == "measured"
    assert row["verdict"]["call"] in ("adopt", "do not adopt", "not distinguishable")
    for part in ("tpot", "ttft"):
        measured, predicted = row["measured"][part], row["predicted"][part]
        assert 0 < measured["low"] <= measured["value"] <= measured["high"]
        assert 0 < predicted["low"] <= predicted["value"] <= predicted["high"]
    assert row["numerics"]["state"] in ("as before", "within limits")
    assert row["sides"]["with"]["errors"]["relative"] < 0.05
    assert row["metrics"]["with"]["kv_cache_bytes"] < 0.6 * row["metrics"]["without"]["kv_cache_bytes"]
    assert result["metrics"]["measured"]["kv_cache_bytes"] == result["metrics"]["predicted"]["kv_cache_bytes"]["value"]
    assert result["profile"]["bottleneck"]["measured"] in get_args(Name)
    assert (result["baseline"]["weights"], result["baseline"]["concurrency"]) == ("seeded random", 2)
    assert "Factors, one at a time: TPOT without / with" in done.out


@pytest.mark.usefixtures("few_turns")
def test_an_interrupted_experiment_leaves_no_report(
    whatif: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C while the baseline is prepared."""
    from device.experiment.workbench import Workbench

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Workbench, "_prepare", interrupted)
    done = whatif(
        "experiment", TINY, "--backend", "cpu", "--out", tmp_path / "report", "--json", tmp_path / "out.json", *SMALL
    )
    assert done.status == 130
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


# ---- bad input, refused before anything is measured ----


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--backend", "sim"), r"--backend sim: an experiment measures; name a device: cpu.*"),
        (("--backend", "cpi"), r"--backend: 'cpi' is not available; .*Did you mean 'cpu'\?"),
        ((*CPU, "--budget-s", "5"), r"--budget-s: must be 10 to 86400 seconds, got 5"),
        ((*CPU, "--budget-s", "nan"), r"--budget-s: must be 10 to 86400 seconds, got nan"),
        ((*CPU, "--factors", "fusion.rop"), r"--factors: 'fusion.rop' is no optimisation switch.*"),
        ((*CPU, "--hardware", "atlas_a3_die"), r"--set hardware=atlas_a3_die: hardware: \w+ is a profile for npu, .*"),
        ((*CPU, "--set", "engine.pipeline_parallel_size=2"), r"--backend cpu: engine.pipeline_parallel_size: 2 .*"),
        ((*CPU, "--set", "optimizations.weight_format=nz"), r"the baseline does not run here: .*weight_format: .*"),
        ((*CPU, "--out", "/nowhere/at/all"), r"--out /nowhere/at/all: cannot be written: its folder does not exist"),
        ((*CPU, "--out", "cli.py"), r"--out cli.py: cannot be written: is a file, not a folder"),
        ((*CPU, "--json", "docs"), r"--json docs: cannot be written: is a folder"),
        ((*CPU, "--json", TINY), r"--json scenarios/tiny_llama_cpu.yaml: would overwrite the input .*"),
    ],
)
def test_bad_input_is_one_line_and_costs_no_measurement(
    whatif: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, root: Path, arguments: tuple[str, ...], line: str
) -> None:
    monkeypatch.chdir(root)
    monkeypatch.setattr("device.experiment.bench.DeviceBench.warm_up", lambda *_: pytest.fail("measured"))
    done = whatif("experiment", TINY, *arguments)
    assert (done.status, done.out) == (2, "")
    assert len(done.problems) == 1
    assert re.fullmatch(line, done.problems[0]), done.problems[0]


# ---- long ones ----


@pytest.mark.study
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch's compiler uses what torch deprecates
def test_every_factor_of_the_shipped_scenario_is_tried(whatif: Callable[..., Any], tmp_path: Path) -> None:
    done = whatif("experiment", TINY, "--backend", "cpu", "--out", tmp_path / "report")
    assert done.status == 0
    result = json.loads((tmp_path / "report" / "report.json").read_text())
    tried = [row for row in result["factors"] if row["status"] in ("measured", "left out")]
    assert len(tried) >= 12
    assert {f"factor {row['factor']}" for row in tried if row["status"] == "left out"} <= set(result["left_out"])
    assert all(row["status"] != "failed" for row in result["factors"])


@pytest.mark.study
@pytest.mark.timeout(600)
def test_two_ranks_are_compared_too(whatif: Callable[..., Any], tmp_path: Path) -> None:
    pair = ("--set", "engine.tensor_parallel_size=2", *SMALL)
    out = tmp_path / "out.json"
    done = whatif(
        "experiment",
        TINY,
        "--backend",
        "cpu",
        "--factors",
        "fusion.rms_norm,fusion.matmul_all_reduce",
        "--json",
        out,
        *pair,
    )
    assert done.status == 0
    rows = {row["factor"]: row for row in json.loads(out.read_text())["factors"]}
    assert rows["fusion.rms_norm"]["status"] == "measured"
    assert rows["fusion.rms_norm"]["numerics"]["state"] == "as before"
    assert rows["fusion.matmul_all_reduce"]["status"] == "refused"
