"""Hardware profiles: what ships, and what a user's mistakes are reported."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.ops.catalogue import CATALOGUE
from sim.hardware import HardwareError, hardware_names, load_hardware
from sim.hardware.files import rounded, write_numbers
from sim.hardware.profile import ALIASES, NEEDED_PROGRAMS, SHIPPED
from sim.hardware.sections import Chip

NAMES = [
    "950pr", "atlas_a2_910b1", "atlas_a2_910b2", "atlas_a2_910b3", "atlas_a2_910b4", "atlas_a2_910b4_64g",
    "atlas_a3_560t_die", "atlas_a3_die", "atlas_a3_die_20", "cpu", "generic", "h200_sxm",
]  # fmt: skip


def test_the_shipped_profiles() -> None:
    assert hardware_names() == NAMES


@pytest.mark.parametrize(
    ("name", "cores", "clock_mhz", "tflops", "gib"),
    [
        ("910b1", 24, 1850, 363.7, 64),
        ("910b2", 24, 1800, 353.9, 64),
        ("atlas_a2_376t", 24, 1800, 353.9, 64),
        ("910b3", 20, 1800, 294.9, 64),
        ("910b4", 20, 1500, 245.8, 32),
        ("910b4-1", 20, 1500, 245.8, 64),
        ("atlas_a3_die", 24, 1800, 353.9, 64),
        ("atlas_a3_die_20", 20, 1800, 294.9, 64),
        ("atlas_a3_560t_die", 20, 1500, 245.8, 64),
        ("950pr", 32, 1650, 432.5, 128),
    ],
)
def test_chips_by_all_their_names(name: str, cores: int, clock_mhz: float, tflops: float, gib: int) -> None:
    hw = load_hardware(name)
    assert (hw.chip.cube_cores, hw.chip.vector_cores, hw.chip.clock_mhz) == (cores, 2 * cores, clock_mhz)
    assert round(hw.chip.cube_flops_per_ns / 1000, 1) == tflops
    assert hw.chip.hbm_capacity_bytes == gib * 2**30


@pytest.mark.parametrize("name", NAMES)
def test_every_number_says_where_it_comes_from(name: str) -> None:
    numbers = load_hardware(name).profile.numbers()
    assert len(numbers) > (150 if name not in ("cpu", "h200_sxm") else 75)  # no kernel programs of their own
    assert all(len(number.origin) > 2 for number in numbers.values())
    assert all("fill in" not in number.origin for number in numbers.values())


def test_the_generic_profile_is_complete_and_claims_nothing() -> None:
    generic, base = load_hardware("generic").profile, load_hardware("atlas_a2_910b2").profile
    assert generic.extends is None
    assert set(generic.numbers()) == set(base.numbers())
    assert {n.source for n in generic.numbers().values()} == {"assumed"}


def test_the_cpu_profile_claims_nothing() -> None:
    assert {n.source for n in load_hardware("cpu").profile.numbers().values()} == {"assumed"}


def test_the_gpu_profile_has_the_data_sheet_and_claims_nothing_else() -> None:
    hw = load_hardware("h200_sxm")
    assert hw.profile.device == "cuda"
    assert round(hw.chip.cube_flops_per_ns / 1000) == 989  # TFLOPS, BF16 without sparsity
    assert (hw.chip.hbm_capacity_bytes, hw.memory.hbm_peak_gbps) == (141_000_000_000, 4800)
    numbers = hw.profile.numbers()
    assert {n.source for n in numbers.values()} == {"spec", "assumed"}
    assert {key for key, n in numbers.items() if n.source == "spec"} == {
        *(f"chip.{f.name}" for f in fields(Chip) if f.name not in ("ai_cpu_cores", "hbm_visible_bytes")),
        "memory.hbm_peak_gbps",
        *(
            f"collective.{name}"
            for name in ("dies_per_card", "dies_per_server", "dies_per_pod", "full_mesh", "hccs_peak_gbps")
        ),
    }


def test_programs_that_kinds_name_exist() -> None:
    programs = load_hardware("910b2").programs
    assert {kind.params for kind in CATALOGUE.values() if kind.params} <= set(programs)
    assert set(NEEDED_PROGRAMS) <= set(programs)


def test_aliases_name_shipped_profiles() -> None:
    assert set(ALIASES.values()) <= set(NAMES)
    assert load_hardware("910b2").name == "atlas_a2_910b2"


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(HardwareError, match=r"'910b5' is no profile and no file\. Did you mean '910b\d'"):
        load_hardware("910b5")


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_of_one_number_extends_a_shipped_profile(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name: mine\nextends: atlas_a2_910b2\nmemory:\n"
        '  hbm_gbps: {value: 900, source: measured, origin: "my benchmark"}\n',
    )
    mine, base = load_hardware(path), load_hardware("910b2")
    assert (mine.name, mine.memory.hbm_gbps) == ("mine", 900)
    assert mine.memory.core_hbm_gbps == base.memory.core_hbm_gbps
    # The replaced number brings nothing of the one it replaces: neither its source nor its interval.
    number = mine.profile.numbers()["memory.hbm_gbps"]
    assert (number.source, number.low, number.high) == ("measured", None, None)


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("  hbm_gbbs: {value: 1, source: spec, origin: abc}", "4:3", "Did you mean 'hbm_gbps'"),
        ("  hbm_gbps: {value: 1, source: guess, origin: abc}", "4:32", "assumed"),
        ("  hbm_gbps: {value: fast, source: spec, origin: abc}", "4:21", "memory.hbm_gbps.value"),
        ("  hbm_gbps: {value: -1, source: spec, origin: abc}", "4:21", "memory.hbm_gbps.value"),
        ("  hbm_gbps: {value: 1, source: spec}", "4:3", "origin"),
        ("  hbm_gbps: 1640", "4:13", "memory.hbm_gbps"),
        ("  hbm_gbps: {value: 9, source: spec, origin: abc, low: 10}", "4:13", "outside its interval"),
    ],
)
def test_mistakes_are_located(tmp_path: Path, line: str, place: str, message: str) -> None:
    path = write(tmp_path, f"name: mine\nextends: atlas_a2_910b2\nmemory:\n{line}\n")
    with pytest.raises(ScenarioError) as error:
        load_hardware(path)
    assert f"{path}:{place}: " in str(error.value)
    assert message in str(error.value)


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="chip"):
        load_hardware(write(tmp_path, "name: mine\n"))


def test_profiles_that_extend_one_another_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("name: other\nextends: mine.yaml\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match="circle"):
        load_hardware(write(tmp_path, "name: mine\nextends: other.yaml\n"))


def test_a_base_that_does_not_exist_is_located(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"mine\.yaml:2:10: extends: .*Did you mean '910b2'"):
        load_hardware(write(tmp_path, "name: mine\nextends: 910b22\n"))


def test_writing_numbers_keeps_the_rest_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        '# mine\nmemory:\n  a: {value: 1, source: spec, origin: "x"}\n  b: {value: 2, source: spec, origin: "y"}\n'
    )
    write_numbers(path, {"memory.b": 1234.567, "memory.c": 3}, {"memory.b": (1000, 1500.4)})
    assert path.read_text() == (
        '# mine\nmemory:\n  a: {value: 1, source: spec, origin: "x"}\n'
        '  b: {value: 1230, source: fitted, origin: "y", low: 1000, high: 1500}\n'
    )


def test_three_digits_are_stored() -> None:
    assert [rounded(v) for v in (0.012345, 1.23456, 123.456, 123456.0)] == [0.0123, 1.23, 123, 123000]


def test_every_yaml_of_the_folder_is_a_profile() -> None:
    assert all(load_hardware(path.stem).name == path.stem for path in SHIPPED.glob("*.yaml"))
