"""`whatif validate` without its screen: the document's keys, every row accounted for, bounds, what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

import pytest

from scenarios.errors import ScenarioError
from sim.accuracy.families import FAMILIES
from sim.accuracy.reference import reference_csv
from sim.accuracy.validate import Bounds, Measurements, Validation
from sim.report.outputs.validate import validate_outputs

KERNELS = "hardware,op_type,input_shapes,dtype,mean_us,scored\n"
NORM = '910b2,RmsNorm,"16,5120;5120",DT_BF16;DT_BF16,9.0,yes\n'
NO_BOUNDS = Bounds()


def kernels_file(folder: Path, *rows: str) -> Path:
    path = folder / "kernels.csv"
    path.write_text(KERNELS + "".join(rows))
    return path


def of_kernels(path: Path, bounds: Bounds = NO_BOUNDS) -> Validation:
    return validate_outputs(Measurements(path), "", bounds)


@pytest.fixture(scope="module")
def validation() -> Validation:
    return validate_outputs(Measurements(), "", NO_BOUNDS)


@pytest.fixture(scope="module")
def reference(validation: Validation) -> dict[str, Any]:
    return validation.result


def test_every_scored_row_is_a_point_of_its_family(validation: Validation) -> None:
    points, result = validation.points, validation.result
    count = {name: sum(family == name for family, _ in points) for name in FAMILIES}
    assert count["collectives"] == result["collectives"]["rows"]
    assert count["whole steps"] == result["steps"]["scored"]
    assert len(points) - count["collectives"] - count["whole steps"] == result["kernels"]["rows"]
    assert all(count.values())
    errors = [abs(row.error) for family, row in points if family not in ("collectives", "whole steps")]
    assert median(errors) == pytest.approx(result["kernels"]["median"])


def lines_of(name: str) -> int:
    with reference_csv(name).open(newline="") as file:
        return len(list(csv.DictReader(file)))


def test_the_keys_of_the_contract(reference: dict[str, Any]) -> None:
    assert {"kernels", "collectives", "steps", "ladders", "overlaps", "coverage", "schema_version"} <= set(reference)
    assert {"rows", "unpriced", "unscored", "median", "p90", "by_kind"} <= set(reference["kernels"])
    for kind in reference["kernels"]["by_kind"].values():
        assert set(kind) == {"rows", "median", "p90", "worst", "bias", "roofline_median"}
    assert {"rows", "median", "p90"} <= set(reference["collectives"])
    assert {"rows", "median"} <= set(reference["steps"])
    for step in reference["steps"]["rows"]:
        assert {"id", "measured_ms", "predicted_ms", "error"} <= set(step)
    assert reference["coverage"]["nominal"] == 0.9


def test_kernels_that_no_fit_had_seen_are_told_apart_by_what_was_held_out(reference: dict[str, Any]) -> None:
    whole = {(line["way"], line["stack"]): line for line in reference["unseen"] if line["family"] == "all"}
    for stack in ("A3", "910B2"):
        seen, shape = whole["seen", stack], whole["shape", stack]
        assert seen["median"] < shape["median"] < 0.12
        for way in ("shape", "model", "stack"):
            assert 0.80 <= whole[way, stack]["coverage"] <= 0.95


def test_no_row_is_dropped_in_silence(reference: dict[str, Any]) -> None:
    kernels, steps, ablations, overlaps = (reference[name] for name in ("kernels", "steps", "ladders", "overlaps"))
    assert kernels["rows"] + kernels["unscored"] + len(kernels["unpriced"]) == lines_of("kernels")
    assert len(steps["rows"]) + len(steps["unpriced"]) == lines_of("steps")
    assert len(ablations["rows"]) + len(ablations["unpriced"]) == lines_of("ladders")
    assert len(overlaps["rows"]) + len(overlaps["unpriced"]) == lines_of("overlaps")
    assert sum(kind["rows"] for kind in kernels["by_kind"].values()) == kernels["rows"]
    for part in (kernels, steps, ablations, overlaps):
        assert all(item["row"] and item["reason"] for item in part["unpriced"])


def test_the_reference_set_holds_what_the_readme_claims(reference: dict[str, Any]) -> None:
    assert reference["kernels"]["median"] < 0.10
    assert reference["kernels"]["p90"] < 0.30
    assert reference["steps"]["median"] < 0.10
    assert reference["kernels"]["median"] < reference["kernels"]["roofline_median"] / 4


@pytest.mark.parametrize("name", ["kernels_a3", "steps"])
def test_no_row_of_the_shared_measurements_is_dropped(root: Path, name: str) -> None:
    path = root.parent / "shared" / "measured" / f"{name}.csv"
    if not path.exists():
        pytest.skip("no ../shared beside the project")
    with path.open(newline="") as file:
        lines = len(list(csv.DictReader(file)))
    files = Measurements(kernels=path) if name == "kernels_a3" else Measurements(steps=path)
    part = validate_outputs(files, "", NO_BOUNDS).result["kernels" if name == "kernels_a3" else "steps"]
    priced = part["rows"] + part["unscored"] if name == "kernels_a3" else len(part["rows"])
    assert priced + len(part["unpriced"]) == lines


def test_unpriced_and_unscored_rows_are_told_apart(tmp_path: Path) -> None:
    path = kernels_file(tmp_path, NORM, NORM.replace("yes", "no"), NORM.replace("RmsNorm", "MadeupMatMul"))
    kernels = of_kernels(path).result["kernels"]
    assert (kernels["rows"], kernels["unscored"], len(kernels["unpriced"])) == (1, 1, 1)
    assert "MadeupMatMul" in kernels["unpriced"][0]["reason"]


def test_files_that_were_not_given_have_no_rows(tmp_path: Path) -> None:
    result = of_kernels(kernels_file(tmp_path, NORM)).result
    assert {name for name, path in result["files"].items() if path} == {"kernels"}
    assert result["files"]["kernels"] == str(tmp_path / "kernels.csv")
    assert (result["steps"]["rows"], result["ladders"]["rows"]) == ([], [])


def test_bounds_hold_or_are_named_one_by_one(tmp_path: Path) -> None:
    path = kernels_file(tmp_path, NORM.replace("9.0", "1.0"))  # far less than any norm takes
    result = of_kernels(path, Bounds(kernel_median=0.1, kernel_p90=0.3))
    error = result.result["kernels"]["median"]
    assert result.broken == (
        f"kernels: median error {error:.1%} is over its bound 10.0%",
        f"kernels: 90th percentile of the error {error:.1%} is over its bound 30.0%",
    )
    assert of_kernels(path, Bounds(kernel_median=error)).broken == ()


def test_a_bound_on_nothing_is_not_shown_to_hold(tmp_path: Path) -> None:
    (line,) = of_kernels(kernels_file(tmp_path, NORM), Bounds(step_median=0.5)).broken
    assert line == "steps: median error: no row was scored, so the bound 50.0% is not shown to hold"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_a_bound_that_is_no_share_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(ScenarioError, match="--max-kernel-p90: must be a share"):
        of_kernels(kernels_file(tmp_path, NORM), Bounds(kernel_p90=value))


def test_what_is_written(tmp_path: Path) -> None:
    path = kernels_file(tmp_path, NORM)
    json_file, plot = tmp_path / "out.json", tmp_path / "out.svg"
    result = validate_outputs(Measurements(path), "", NO_BOUNDS, json_file, plot).result
    assert json.loads(json_file.read_text()) == result
    assert ElementTree.parse(plot).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    first = json_file.read_bytes(), plot.read_bytes()
    validate_outputs(Measurements(path), "", NO_BOUNDS, json_file, plot)
    assert (json_file.read_bytes(), plot.read_bytes()) == first


def test_a_plot_that_is_no_svg_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    json_file = tmp_path / "out.json"
    with pytest.raises(ScenarioError, match="the picture is SVG"):
        validate_outputs(Measurements(kernels_file(tmp_path, NORM)), "", NO_BOUNDS, json_file, tmp_path / "out.png")
    assert not json_file.exists()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ":1: no column hardware, op_type, input_shapes, mean_us; found "),
        ("hardware,op_type\n910b2,Add\n", ":1: no column input_shapes, mean_us; found hardware, op_type"),
        (KERNELS + NORM.replace("9.0", "fast"), ":2: mean_us: must be a positive number up to 1e12, got 'fast'"),
        (KERNELS + NORM.replace("9.0", "0"), ":2: mean_us: must be a positive number up to 1e12, got '0'"),
        (KERNELS + NORM + NORM.replace("9.0", "inf"), ":3: mean_us: must be a positive number up to 1e12, got 'inf'"),
        (KERNELS + NORM.replace('"', ""), ":2: more fields than the header has columns; quote commas"),
        (KERNELS + '910b2,RmsNorm,"16,5120', ":2: not CSV: unexpected end of data"),
    ],
)
def test_a_bad_file_is_one_line_with_its_place(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(text)
    with pytest.raises(ScenarioError) as refused:
        of_kernels(path)
    assert refused.value.messages == (f"{path}{what}",)


def test_the_prefill_whose_all_reduces_are_fused_is_priced_within_its_bound(reference: dict[str, Any]) -> None:
    (step,) = (row for row in reference["steps"]["rows"] if row["id"] == "qwen3_8b_prefill_a2_tp2")
    assert step["measured_ms"] == 437.72
    assert abs(step["error"]) <= 0.12
    assert step["low_ms"] <= step["measured_ms"] <= step["high_ms"]
