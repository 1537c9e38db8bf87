"""What a number of a hardware profile may be: a bound for each, and a finite result at both of its ends."""

from __future__ import annotations

import json
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import load_text
from sim.hardware import load_hardware
from sim.hardware.bounds import bounds_of
from sim.hardware.profile import SECTIONS
from sim.predict.scenario_result import first_result

NUMBERS = [(section, f.name, f.type) for section, cls in SECTIONS.items() for f in fields(cls)]
#: A step with collectives, a graph and attention: most numbers of a profile have a part in it.
STEP = "engine.tensor_parallel_size=2", "workload.batch=4", "model=Tiny-Llama"


def profile(folder: Path, section: str, name: str, value: object) -> str:
    path = folder / "chip.yaml"
    number = json.dumps({"value": value, "source": "assumed", "origin": "a test"})
    path.write_text(f"name: chip\nextends: atlas_a2_910b2\n{section}:\n  {name}: {number}\n")
    return str(path)


def refusal(path: str) -> str:
    with pytest.raises(ScenarioError) as refused:
        load_hardware(path)
    return str(refused.value)


@pytest.mark.parametrize(("section", "name", "kind"), NUMBERS, ids=[f"{s}.{n}" for s, n, _ in NUMBERS])
def test_a_number_at_either_end_of_its_bound_predicts_something_finite(
    section: str, name: str, kind: str, tmp_path: Path
) -> None:
    smallest, largest = bounds_of(SECTIONS[section].__name__, name)
    for at, value in enumerate((smallest, largest)):
        folder = tmp_path / str(at)
        folder.mkdir()
        path = profile(folder, section, name, int(value) if kind == "int" else value)
        if (name, at) in (("hbm_capacity_bytes", 0), ("hbm_visible_bytes", 0), ("hbm_visible_bytes", 1)):
            continue  # a model does not fit one MiB; no more is seen than there is
        predicted = first_result(load_text("{}\n", "test", [f"hardware={path}", *STEP]))
        finite(predicted.result)
        json.dumps(predicted.result, allow_nan=False)


def finite(value: Any) -> None:
    if isinstance(value, dict):
        for part in value.values():
            finite(part)
    elif isinstance(value, list | tuple):
        for part in value:
            finite(part)
    elif isinstance(value, float):
        assert isfinite(value)


@pytest.mark.parametrize(("section", "name", "kind"), NUMBERS, ids=[f"{s}.{n}" for s, n, _ in NUMBERS])
def test_a_number_beyond_its_bound_is_refused(section: str, name: str, kind: str, tmp_path: Path) -> None:
    _, largest = bounds_of(SECTIONS[section].__name__, name)
    said = refusal(profile(tmp_path, section, name, int(largest) * 2 if kind == "int" else largest * 2))
    assert said.startswith(f"{tmp_path}/chip.yaml:4:")
    assert f"{section}.{name}.value: must be at most" in said


def test_a_decimal_is_no_count(tmp_path: Path) -> None:
    said = refusal(profile(tmp_path, "chip", "cube_cores", 23.9))
    assert said == f"{tmp_path}/chip.yaml:4:25: chip.cube_cores.value: must be a whole number, got 23.9"


def test_a_divisor_of_zero_is_refused(tmp_path: Path) -> None:
    said = refusal(profile(tmp_path, "memory", "hbm_peak_gbps", 0))
    assert said == f"{tmp_path}/chip.yaml:4:28: memory.hbm_peak_gbps.value: must be at least 0.001, got 0"


def test_a_name_without_a_bound_says_where_to_put_one() -> None:
    with pytest.raises(KeyError, match=r"name one in sim/hardware/bounds\.py"):
        bounds_of("Chip", "colour")


def test_the_cases_of_the_shared_folder_are_refused_at_their_place(shared: Path) -> None:
    places = {"hw_decimal_count": "4:23", "hw_decimal_count_truncated": "4:23", "hw_zero_divisor": "4:26"}
    for name, line in places.items():
        assert f"{name}.yaml:{line}: " in refusal(str(shared / "cases" / f"{name}.yaml"))
