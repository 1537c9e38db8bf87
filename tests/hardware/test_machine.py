"""Which profile describes the device that is here, by the name that it gives itself."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from sim.hardware.profile import hardware_names, load_hardware
from tests.hardware.machine import CHIPS, VARIABLE, profile_here


@pytest.fixture(autouse=True)
def _unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize(("backend", "chip", "profile"), [
    ("npu", "Ascend910B2, 8 in this machine", "atlas_a2_910b2"),
    ("npu", "Ascend910B2C", "atlas_a2_910b2"),
    ("npu", "Ascend910B4-1", "atlas_a2_910b4_64g"),
    ("npu", "Ascend910_9382, 16 in this machine", "atlas_a3_die"),
    ("npu", "Ascend910_9392", "atlas_a3_die"),
    ("npu", "Ascend910_9372", "atlas_a3_die_20"),
    ("npu", "Ascend910_9362", "atlas_a3_560t_die"),
    ("npu", "Ascend950PR_9589", "950pr"),
    ("cuda", "NVIDIA H200, 1 in this machine", "h200_sxm"),
    ("cuda", "NVIDIA H200 NVL", None),
    ("npu", "Ascend310P3", None),
    ("npu", "Ascend910B", None),  # the first generation's second name, not a 910B1 to B4
    ("cpu", "", "cpu"),
])  # fmt: skip
def test_a_chip_has_the_profile_of_its_name(backend: str, chip: str, profile: str | None) -> None:
    assert profile_here(backend, chip) == profile


def test_the_variable_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "mine.yaml")
    assert profile_here("npu", "Ascend910B2") == "mine.yaml"


def test_every_profile_of_a_chip_is_named_by_one() -> None:
    assert set(CHIPS.values()) == set(hardware_names()) - {"cpu", "generic"}
    for chip, profile in CHIPS.items():
        assert load_hardware(profile).profile.device == ("cuda" if "NVIDIA" in chip else "npu")


def test_chips_have_as_many_cores_as_their_profiles(shared: Path) -> None:
    """Every Atlas A2 and A3 of CANN's platform files has its profile."""
    with (shared / "measured" / "platform_config.csv").open(encoding="utf-8") as file:
        cores = {row["soc"]: int(row["SoCInfo.ai_core_cnt"]) for row in csv.DictReader(file)}
    assert {soc for soc in cores if re.fullmatch(r"Ascend910(B\d.*|_93\d\d)", soc)} <= set(CHIPS)
    for chip, profile in CHIPS.items():
        if chip in cores:
            assert load_hardware(profile).chip.cube_cores == cores[chip], chip
