"""Measured results become rows of the reference CSVs, which `whatif validate` reads and prices as what was measured."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.resolved import settings_of
from sim.accuracy.adopted import COLUMNS, joined, of_experiment, of_run, scenario_of
from sim.accuracy.rows.files import read_kernels, read_steps
from sim.accuracy.steps import case_of_row
from sim.accuracy.validate import Measurements
from sim.predict.scenario_result import first_result
from sim.report.outputs.adopt import adopt_outputs, adopted, bundle_outputs, of_bundle, pack

SHARED = Path(__file__).resolve().parents[4] / "shared"
NOTHING = Measurements()


def sample(us: float) -> dict[str, float]:
    return {"median_us": us, "low_us": 0.9 * us, "high_us": 1.2 * us}


@pytest.fixture(scope="module")
def predicted() -> Callable[..., dict[str, Any]]:
    def of(name: str, *sets: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(json.dumps(first_result(load_scenario(name, sets)).result))
        return document

    return of


def measured(result: dict[str, Any], backend: str = "cpu", **more: Any) -> dict[str, Any]:
    """The result as if it had been measured: 8 ms by the wall clock, 6 without other programs."""
    part = {
        "backend": backend, "unmarked_step": sample(8000.0), "steady_step": sample(6000.0), "on_cpu_share": 0.9,
        "repeats": 20, "weights": "random values of seed 0", "torch": "2.13.0",
        "ranks": {"in_scenario": 1, "measured": 1},
    }  # fmt: skip
    return {**result, "measured": {**part, **more}}


def rows(folder: Path, kind: str) -> list[dict[str, str]]:
    with (folder / f"{kind}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_measured_run_is_a_row_of_steps(predicted: Callable[..., dict[str, Any]]) -> None:
    result = measured(predicted("tiny_llama_cpu"))
    ((row,),) = (of_run(result, "", "bundle x").rows["steps"],)
    assert set(row) == set(COLUMNS["steps"])
    assert (row["hardware"], row["model"], row["phase"]) == ("cpu", "Tiny-Llama", "decode")
    assert (row["batch"], row["query_len"], row["context"]) == ("4", "1", "144")
    assert (row["step_ms"], row["scored"], row["fit"], row["source"]) == ("6", "yes", "no", "bundle x")
    assert "2.13.0" in row["conditions"]
    assert "optimizations.fusion.rope=false" in row["settings"].split(";")


@pytest.mark.parametrize(
    ("more", "step_ms", "scored"),
    [
        ({}, "8", "yes"),
        ({"ranks": {"in_scenario": 4, "measured": 1}}, "8", "no"),
        ({"on_cpu_share": 0.2}, "8", "no"),
    ],
)
def test_elsewhere_the_wall_clock_counts(
    predicted: Callable[..., dict[str, Any]], more: dict[str, Any], step_ms: str, scored: str
) -> None:
    (row,) = of_run(measured(predicted("qwen3_0_6b_decode"), "npu", **more), "atlas_a2_910b2", "x").rows["steps"]
    assert (row["step_ms"], row["scored"], row["hardware"]) == (step_ms, scored, "atlas_a2_910b2")


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("tiny_llama_cpu", ()),
        ("tiny_llama_cpu", ("workload.phase=prefill",)),
        ("qwen3_8b_decode", ()),
        ("qwen3_32b_w8a8_decode", ()),
        ("qwen3_30b_a3b_decode", ()),
    ],
)
def test_a_row_read_back_is_predicted_as_the_run_was(
    predicted: Callable[..., dict[str, Any]], tmp_path: Path, name: str, sets: tuple[str, ...]
) -> None:
    result = measured(predicted(name, *sets))
    file = tmp_path / "run.json"
    file.write_text(json.dumps(result), encoding="utf-8")
    _, files = adopt_outputs(file, "", tmp_path / "rows", NOTHING)
    assert files.steps is not None
    (row,) = read_steps(files.steps)
    case = case_of_row(row)
    assert not isinstance(case, str), case
    again = predicted_step_us(case)
    assert again == pytest.approx(result["step"]["total_us"], rel=1e-9)


def predicted_step_us(case: Any) -> float:
    from scenarios.batches import reported_batch
    from sim.predict.steps import step_ns

    return step_ns(case, reported_batch(case.scenario)) / 1000


def experiment(result: dict[str, Any]) -> dict[str, Any]:
    """An experiment on the scenario of `result`: one factor on, one off, one left out."""
    scenario = scenario_of(result["scenario"])
    on = settings_of(scenario)
    off = [*on, "optimizations.fusion.rms_norm=false"]
    gain = {"value": 1.2, "low": 1.1, "high": 1.3, "turns": 12}
    times = {"without": {"tpot_ms": 7.2, "ttft_ms": 40.0}, "with": {"tpot_ms": 6.0, "ttft_ms": 39.0}}
    told = {"measured": {"tpot": gain, "ttft": gain}, "metrics": times, "verdict": {"call": "adopt", "reason": ""}}
    paged = [pair for pair in on if "kv.layout" not in pair]
    return {
        "schema_version": 1,
        "kind": "experiment",
        "headline": "tpot",
        "baseline": {
            "scenario": result["scenario"],
            "hardware": "cpu",
            "weights": "random",
            "lengths": {"decode_context_tokens": 144},
        },
        "factors": [
            {"factor": "fusion.rms_norm", "settings": {"without": off, "with": on}, **told},
            {"factor": "kv.layout=paged", "settings": {"without": on, "with": paged}, **told},
            {
                "factor": "graph=ge_graph",
                "settings": {"without": on, "with": on},
                "status": "left out",
                "reason": "no time",
            },
        ],
    }


def test_each_measured_factor_is_a_row_of_ladders(predicted: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "experiment.json"
    file.write_text(json.dumps(experiment(predicted("tiny_llama_cpu"))), encoding="utf-8")
    adoption, files = adopt_outputs(file, "", tmp_path / "rows", NOTHING)
    first, second = rows(tmp_path / "rows", "ladders")
    assert first["step"] == "optimizations.fusion.rms_norm=true"
    assert second["step"] == "optimizations.kv.layout=paged"
    assert (first["base_ms"], first["step_ms"], first["context"]) == ("7.2", "6", "144")
    assert "12 alternating turns; adopt" in first["conditions"]
    assert adoption.left_out == ("tiny_llama_cpu: graph=ge_graph: no time",)
    from sim.accuracy.ablations import price_ablations, read_ablations

    assert files.ladders is not None
    priced, unpriced = price_ablations(read_ablations(files.ladders))
    assert not unpriced
    assert [round(row.measured_gain, 3) for row in priced] == [1.2, 1.2]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no folder ../shared beside the project")
def test_kernels_of_a_profile_are_rows_of_kernels(tmp_path: Path) -> None:
    profile = SHARED / "measured/profiles/qwen3_0.6b_train_pp2dp2/rank_0_ascend_pt"
    adoption, files = adopt_outputs(profile, "atlas_a2_910b4", tmp_path / "rows", NOTHING)
    assert files.kernels is not None
    kernels = read_kernels(files.kernels)
    assert len(kernels) == adoption.count > 20
    matmul = [row for row in kernels if row.op_type == "MatMulV2" or row.op_type == "MatMulV3"]
    assert matmul
    assert all(row.mean_us > 0 and row.input_shapes and row.hardware == "atlas_a2_910b4" for row in kernels)
    with pytest.raises(ScenarioError, match="kernels of which chip"):
        adopt_outputs(profile, "", tmp_path / "none", NOTHING)
    assert not (tmp_path / "none").exists()


@pytest.fixture
def bundle(predicted: Callable[..., dict[str, Any]], tmp_path: Path) -> Path:
    """A bundle's folder with a measured step, an experiment, and a trial that was refused."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    tiny = predicted("tiny_llama_cpu")
    trial = {"number": 2, "what": "INT8", "verdict": "refused", "says": "no kernel"}
    machine = {"tool": "0.1.0", "cann": "9.0.0", "driver": "25.5.1", "packages": {"torch": "2.13.0"}}
    document = {"kind": "bundle", "version": 1, "backend": "cpu", "machine": machine, "trials": [trial]}
    for name, text in (
        ("bundle.json", document), ("a.json", measured(tiny)), ("b.json", experiment(tiny)), ("c.json", {"x": 1}),
        ("d.json", tiny),
    ):  # fmt: skip
        (folder / name).write_text(json.dumps(text), encoding="utf-8")
    (folder / "profile").mkdir()
    (folder / "profile" / "note.txt").write_text("no capture", encoding="utf-8")
    return folder


def test_a_bundle_gives_the_rows_of_all_in_it(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "b.zip")
    for path in (bundle, tmp_path / "b.zip"):
        adoption = adopted(path, "")
        assert {kind: len(some) for kind, some in adoption.rows.items()} == {"steps": 1, "ladders": 2, "kernels": 0}
        source = adoption.rows["steps"][0]["source"]
        assert source == f"bundle {path.name}: tool 0.1.0, cann 9.0.0, driver 25.5.1, torch 2.13.0; a.json"
        lines = "\n".join(adoption.left_out)
        assert "trial 2 (INT8): refused: no kernel" in lines
        assert "predicted and not measured" in lines
        assert "profile: " in lines


def test_what_is_in_a_bundle_twice_is_a_row_once(bundle: Path) -> None:
    (bundle / "again.json").write_text((bundle / "a.json").read_text(encoding="utf-8"), encoding="utf-8")
    assert len(of_bundle(bundle, "", "b").rows["steps"]) == 1


def test_a_bundle_is_made_whole_or_not_at_all(bundle: Path, tmp_path: Path) -> None:
    def fill(folder: Path) -> tuple[str, bool]:
        for file in bundle.glob("*.json"):
            (folder / file.name).write_bytes(file.read_bytes())
        return "text\n", True

    out = tmp_path / "made.zip"
    text, passed, adoption = bundle_outputs(out, fill)
    assert (text, passed, adoption.count) == ("text\n", True, 3)
    with zipfile.ZipFile(out) as archive:
        assert {"bundle.json", "rows/steps.csv", "rows/ladders.csv"} <= set(archive.namelist())
    with pytest.raises(ScenarioError, match="is there already"):
        bundle_outputs(out, fill)

    def broken(folder: Path) -> tuple[str, bool]:
        raise KeyboardInterrupt

    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        bundle_outputs(tmp_path / "other.zip", broken)
    assert sorted(tmp_path.iterdir()) == before


BAD: dict[str, tuple[str, bytes, str]] = {
    "no file": ("none.zip", b"", "no such file"),
    "not a bundle": ("x.zip", b"zip", "holds no bundle.json"),
    "a cut archive": ("x.zip", b"cut", "x.zip"),
    "another json": ("x.json", b'{"a": 1}', "x.json"),
    "no json": ("x.json", b"{", "not JSON"),
    "predicted only": ("x.json", b"predicted", "predicted and not measured"),
    "a run of another version": ("x.json", b'{"schema_version": 1, "scenario": 3}', "no result of this version"),
    "an experiment without factors": ("x.json", b'{"schema_version": 1, "kind": "experiment"}', "no result of this"),
    "a text": ("x.txt", b"hello", "x.txt"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_gives_no_row_is_one_line(
    predicted: Callable[..., dict[str, Any]], bundle: Path, tmp_path: Path, case: str
) -> None:
    name, content, wanted = BAD[case]
    path = tmp_path / name
    if content == b"predicted":
        content = json.dumps(predicted("tiny_llama_cpu")).encode()
    if content == b"zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "a")
    elif content == b"cut":
        pack(bundle, path)
        path.write_bytes(path.read_bytes()[:-40])
    elif content:
        path.write_bytes(content)
    with pytest.raises(ScenarioError, match=wanted) as caught:
        adopt_outputs(path, "", tmp_path / "rows", NOTHING)
    (line,) = caught.value.messages
    assert "\n" not in line
    assert not (tmp_path / "rows").exists()


def test_an_archive_with_names_outside_of_it_stays_inside(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "a") as archive:
        archive.writestr("../outside.json", "{}")
    adopted(tmp_path / "b.zip", "")
    assert not list(tmp_path.rglob("outside.json"))


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(ScenarioError, match="go together"):
        adopt_outputs(Path("x"), "", None, NOTHING)
    with pytest.raises(ScenarioError, match="leave --steps out"):
        adopt_outputs(Path("x"), "", Path("y"), Measurements(steps=Path("z")))


def test_joined_rows_keep_their_order() -> None:
    assert joined([]).count == 0
    assert of_experiment({**experiment_stub(), "headline": "step"}, "", "").left_out


def experiment_stub() -> dict[str, Any]:
    from scenarios.schema import Scenario

    return {"baseline": {"scenario": {"name": "x", **Scenario().model_dump(mode="json")}}, "factors": []}
