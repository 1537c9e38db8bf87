"""Bad input ends with status 2, nothing on standard output, and a line for each problem: where, what, nearest valid."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import write

WhatIf = Callable[..., Any]

SEED, EAGER = "qwen3_8b_decode", "qwen3_8b_910b2_eager"


# Scenario files


@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "s.yaml: is empty: it must be a mapping of keys to values"),
        (b"\x00\x01\x02", "s.yaml: is binary (byte 0 is zero), not YAML text"),
        (b"\xff\xfea\x00", "s.yaml: is UTF-16; save it as UTF-8"),
        (b"model: caf\xe9\n", "s.yaml:1:11: byte 0xe9 is not UTF-8"),
        (b"worklod: {}\n", "s.yaml:1:1: worklod: unknown key 'worklod'. Did you mean 'workload'?"),
        (
            b"workload:\n  bach: 2\n",
            "s.yaml:2:3: workload.bach: unknown key 'bach'. Did you mean 'batch'?",
        ),
        (
            b"optimizations:\n  graph: ge_grph\n",
            "s.yaml:2:10: optimizations.graph: 'ge_grph' is not one of eager, aclgraph, npugraph_ex, ge_graph. "
            "Did you mean 'ge_graph'?",
        ),
        (
            b"workload:\n  batch: 0\n",
            "s.yaml:2:10: workload.batch: must be at least 1, got 0",
        ),
    ],
)
def test_a_broken_scenario_is_located(
    refused: Callable[..., list[str]], tmp_path: Path, command: str, content: bytes, line: str
) -> None:
    write(tmp_path / "s.yaml", content)
    assert refused(command, "s.yaml") == [line]


def test_all_problems_are_said_at_once(refused: Callable[..., list[str]], tmp_path: Path) -> None:
    write(tmp_path / "s.yaml", "modle: Qwen3-8B\nworkload:\n  batch: two\n  input_tokens: -1\n")
    lines = refused("run", "s.yaml", "--set", "engine.max_num_seqs=x")
    assert [line.split(": ")[0] for line in lines] == [
        "s.yaml:1:1",
        "s.yaml:3:10",
        "s.yaml:4:17",
        "--set engine.max_num_seqs=x",
    ]


def test_a_scenario_that_is_not_there(refused: Callable[..., list[str]], tmp_path: Path) -> None:
    write(tmp_path / "mine.yaml", "model: Qwen3-8B\n")
    assert refused("run", "mien.yaml") == ["mien.yaml: no such scenario. Did you mean 'mine.yaml'?"]
    assert refused("run", "qwen3_8b_decod") == ["qwen3_8b_decod: no such scenario. Did you mean 'qwen3_8b_decode'?"]
    assert refused("run", "") == ["no scenario given: name a file or a shipped scenario"]


def test_a_folder_or_a_pipe_is_no_scenario(refused: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert refused("run", "folder") == ["folder: is a folder, not a YAML file"]
    os.mkfifo(tmp_path / "pipe.yaml")
    assert refused("run", "pipe.yaml") == ["pipe.yaml: is not a regular file"]


# Settings


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("workload.batch", "must be key=value with a dotted key, such as workload.batch=4"),
        ("=4", "must be key=value with a dotted key, such as workload.batch=4"),
        ("workload.batch=two", "workload.batch: must be a whole number of requests, got 'two'"),
        ("workload.batch=1.5", "workload.batch: must be a whole number of requests, got 1.5"),
        ("workload.bacth=2", "workload.bacth: unknown key 'bacth'. Did you mean 'batch'?"),
        ("workload.batch=65537", "workload.batch: must be at most 65536, got 65537"),
        ("optimizations.fusion=true", "optimizations.fusion: must be a mapping"),
        ("extends=other", "extends can only stand in a file"),
        ("description=a\x1b[31mb", "control characters are not allowed"),
    ],
)
def test_a_bad_setting_names_itself(refused: Callable[..., list[str]], setting: str, problem: str) -> None:
    [line] = refused("run", SEED, "--set", setting)
    assert line.startswith("--set ")
    assert problem in line
    assert "\x1b" not in line


# Models and hardware


def test_an_unknown_model_and_hardware_get_the_nearest_names(refused: Callable[..., list[str]], tmp_path: Path) -> None:
    write(tmp_path / "s.yaml", "model: Qwen3-9B\nhardware: atlas_a2_910b7\n")
    model, hardware = refused("run", "s.yaml")
    assert re.fullmatch(r"s\.yaml:1:8: model: .*'Qwen3-9B'.* Did you mean 'Qwen3-8B'\?", model)
    assert re.match(
        r"s\.yaml:2:11: hardware: 'atlas_a2_910b7' is no profile and no file\. Did you mean 'atlas_a2_910b\d'\?",
        hardware,
    )


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{", r"config\.json:1:2: not JSON: .*"),
        ("[]", r"config\.json: not a Hugging Face config\.json .*"),
        ('{"model_type": "gpt9"}', r"config\.json: model_type 'gpt9' is not modelled\. .*Qwen3.*"),
        ('{"model_type": ["qwen3"]}', r"config\.json: model_type a list is not modelled\. .*"),
        ("{}", r"config\.json: model_type nothing is not modelled\. .*"),
        (b"\xff\xfe\x00", r"config\.json: not a Hugging Face config\.json"),
    ],
)
def test_a_broken_model_config_is_located(
    refused: Callable[..., list[str]], tmp_path: Path, config: str | bytes, problem: str
) -> None:
    write(tmp_path / "m" / "config.json", config)
    write(tmp_path / "s.yaml", "workload: {batch: 1}\nmodel: m\n")
    [line] = refused("run", "s.yaml")
    assert re.fullmatch(rf"s\.yaml:2:8: model: m/{problem}", line)


def test_every_missing_size_of_a_model_is_said(refused: Callable[..., list[str]], root: Path, tmp_path: Path) -> None:
    config = json.loads((root / "scenarios/models/Qwen3-8B/config.json").read_text(encoding="utf-8"))
    del config["hidden_size"]
    config["vocab_size"] = "many"
    write(tmp_path / "m" / "config.json", json.dumps(config))
    write(tmp_path / "s.yaml", "model: m\n")
    lines = refused("run", "s.yaml")
    assert len(lines) == 2
    assert "hidden_size: must be a whole number" in lines[0]
    assert "vocab_size: must be a whole number" in lines[1]
    assert "'many'" in lines[1]


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ("name: [", r"hw\.yaml:\d+:\d+: not valid YAML: .*"),
        ("", r"hw\.yaml: .*empty.*"),
        (b"\x00\x01", r"hw\.yaml: is binary .*"),
        ("extends: nowhere\nname: x\n", r"hw\.yaml:1:10: extends: .*'nowhere'.*"),
        ("extends: hw.yaml\nname: x\n", r"hw\.yaml.*extends: .*circle.*"),
        ("extends: generic\nname: x\nchip: 3\n", r"hw\.yaml:3:7: chip: must be a mapping .*"),
        (
            "extends: generic\nname: x\nchip:\n  cube_cors: {value: 3, source: spec, origin: mine}\n",
            r"hw\.yaml:4:3: chip\.cube_cors: unknown key 'cube_cors'\. Did you mean 'cube_cores'\?",
        ),
        (
            "extends: generic\nname: x\nchip:\n  cube_cores: {value: -3, source: spec, origin: mine}\n",
            r"hw\.yaml:4:23: chip\.cube_cores\.value: must be at least 1, got -3",
        ),
        (
            "extends: generic\nname: x\nchip:\n  cube_cores: {value: 24, source: guess, origin: mine}\n",
            r"hw\.yaml:4:\d+: chip\.cube_cores\.source: 'guess' is not one of spec, measured, fitted, assumed",
        ),
        (
            "extends: generic\nname: x\nchip:\n  clock_mhz: {value: 0, source: spec, origin: mine}\n",
            r"hw\.yaml.*clock_mhz.*must be at least 1.*",
        ),
    ],
)
def test_a_broken_hardware_profile_is_located(
    refused: Callable[..., list[str]], tmp_path: Path, profile: str | bytes, problem: str
) -> None:
    write(tmp_path / "hw.yaml", profile)
    write(tmp_path / "s.yaml", "model: Qwen3-8B\nhardware: hw.yaml\n")
    [line] = refused("run", "s.yaml")
    assert re.fullmatch(rf"s\.yaml:2:11: hardware: {problem}", line), line


def test_folders_are_no_model_and_no_hardware(refused: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "s.yaml", "model: empty\nhardware: empty\n")
    model, hardware = refused("run", "s.yaml")
    assert model.startswith("s.yaml:1:8: model: empty/config.json: ")
    assert hardware.startswith("s.yaml:2:11: hardware: ")


# Memory


def test_what_does_not_fit_says_by_how_much_and_what_would(
    refused: Callable[..., list[str]], whatif: WhatIf, tmp_path: Path
) -> None:
    text = "model: Qwen3-8B\nhardware: atlas_a2_910b2\nworkload:\n  batch: 200\n  input_tokens: 8192\n"
    write(tmp_path / "s.yaml", text)
    [line] = refused("run", "s.yaml")
    match = re.fullmatch(
        r"s\.yaml:4:10: workload\.batch: does not fit: ([\d.]+) GiB needed \(.*\) of ([\d.]+) GiB usable on "
        r"atlas_a2_910b2: ([\d.]+) GiB too much; at most (\d+) requests of this length fit",
        line,
    )
    assert match
    assert float(match[1]) - float(match[2]) == pytest.approx(float(match[3]), abs=0.11)
    most = int(match[4])
    assert whatif("run", "s.yaml", "--set", f"workload.batch={most}").status == 0
    [line] = refused("run", "s.yaml", "--set", f"workload.batch={most + 1}")
    assert line.startswith(f"--set workload.batch={most + 1}: workload.batch: does not fit")


def test_weights_alone_that_do_not_fit(refused: Callable[..., list[str]]) -> None:
    [line] = refused("run", "llama_3_1_70b_w4a16_decode", "--set", "optimizations.weights=bf16")
    assert re.match(r"\S+llama_3_1_70b_w4a16_decode\.yaml:\d+:8: model: does not fit: ", line)
    assert line.endswith("not even one request fits: shrink the weights")


@pytest.mark.timeout(20)
def test_absurd_sizes_are_refused_at_once(refused: Callable[..., list[str]]) -> None:
    """Billions of prefill chunks are counted, not listed one by one; thousands are refused by memory."""
    sizes = {
        "workload.batch": 65_536,
        "engine.max_num_seqs": 65_536,
        "workload.input_tokens": 40_000,
        "workload.phase": "prefill",
    }
    options = [part for key, value in sizes.items() for part in ("--set", f"{key}={value}")]
    [line] = refused("run", "qwen3_8b_prefill", *options, "--set", "engine.max_num_batched_tokens=1")
    assert line == (
        "--set engine.max_num_batched_tokens=1: engine.max_num_batched_tokens: the prefill of 2621440000 prompt tokens "
        "in steps of max_num_batched_tokens 1 takes 2621440000 steps, more than 10000: at least 262144 tokens a step "
        "are needed"
    )
    [line] = refused("run", "qwen3_8b_prefill", *options, "--set", "engine.max_num_batched_tokens=262144")
    assert line.startswith("--set workload.batch=65536: workload.batch: does not fit")
    assert "not even one request fits beside the weights" in line


# Outputs


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_an_output_that_cannot_be_written(refused: Callable[..., list[str]], tmp_path: Path, option: str) -> None:
    (tmp_path / "folder").mkdir()
    write(tmp_path / "file", "text")
    for target, why in (
        ("nowhere/a.json", "its folder does not exist"),
        ("folder", "is a folder"),
        ("file/a.json", "part of its path is a file, not a folder"),
    ):
        [line] = refused("run", SEED, option, target)
        assert line == f"{target}: cannot be written: {why}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(refused: Callable[..., list[str]], tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    assert refused("run", SEED, "--json", "locked/a.json") == ["locked/a.json: cannot be written: permission denied"]


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="no /sys, where not even root may make a file")
def test_a_place_where_nobody_may_write(refused: Callable[..., list[str]]) -> None:
    [line] = refused("run", SEED, "--json", "/sys/kernel/a.json")
    assert re.fullmatch(r"/sys/kernel/a\.json: cannot be written: .*(denied|not permitted|read-only)", line)


def test_a_device_that_refuses(refused: Callable[..., list[str]]) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    [line] = refused("run", SEED, "--json", "/dev/full")
    assert line == "/dev/full: cannot be written: no space left on the device"


# The command line


@pytest.mark.parametrize(
    ("backend", "hint"), [("npus", ". Did you mean 'npu'?"), ("mps", ""), ("smi", ". Did you mean 'sim'?"), ("", "")]
)
def test_a_backend_that_is_not_there(refused: Callable[..., list[str]], backend: str, hint: str) -> None:
    expected = f"--backend: '{backend}' is not available; this version has: sim, cpu, cuda, npu{hint}"
    assert refused("run", SEED, "--backend", backend) == [expected]


def test_the_process_itself_ends_with_status_2(process: Callable[..., Any]) -> None:
    done = process("run", "nowhere.yaml")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"nowhere.yaml: no such scenario")
    assert done.stderr.count(b"\n") == 1


# Names that the system cannot look up, and numbers that fit nowhere


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "~nouser", "~nouser/x", "\0"])
@pytest.mark.parametrize(
    "before",
    [
        ("run",),
        ("explain",),
        ("import",),
        ("compare", SEED),
        ("list",),
        ("validate", "--kernels"),
        ("validate", "--plot"),
        ("validate", "--hardware"),
        ("app", "--profiles"),
        ("doctor", "--backend"),
        ("calibrate", "--backend", "cpu", "--hardware", "none", "--out"),
        ("calibrate", "--backend", "cpu", "--out", "o.yaml", "--hardware"),
    ],
    ids=" ".join,
)
def test_a_name_that_cannot_be_looked_up_is_refused_in_short_lines(
    refused: Callable[..., list[str]], before: tuple[str, ...], name: str
) -> None:
    assert max(map(len, refused(*before, name))) <= 1000


@pytest.mark.parametrize("field", ["model", "hardware"])
@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "~nouser", "~nouser/x"])
def test_a_scenario_may_name_what_cannot_be_looked_up(
    refused: Callable[..., list[str]], tmp_path: Path, field: str, name: str
) -> None:
    write(tmp_path / "s.yaml", f"{field}: {name}\n")
    assert [line.split(": ")[:2] for line in refused("run", "s.yaml")] == [[f"s.yaml:1:{len(field) + 3}", field]]
    assert refused("run", SEED, "--set", f"{field}={name}")


@pytest.mark.parametrize(
    "number", ["99999999999999999999", "1e999", "'1e999'", "'99,999,999,999,999,999,999'", "9" * 5000, "0x" + "f" * 90]
)
@pytest.mark.parametrize("field", ["workload.batch", "workload.expert_skew", "protocol.seed"])
def test_a_number_that_fits_nowhere_is_named(refused: Callable[..., list[str]], field: str, number: str) -> None:
    (line,) = refused("run", SEED, "--set", f"{field}={number}")
    assert line.startswith("--set ")
    assert re.search("must be|does not fit 64 bits|is too large for a number", line)
    assert len(line) <= 1000


def test_the_rows_of_a_calibration_may_hold_no_infinity(tmp_path: Path) -> None:
    from scenarios.errors import ScenarioError
    from scenarios.exchange.timings import read_timings

    head = {
        "kind": "microbenchmarks",
        "version": 1,
        "about": {"backend": "cpu"},
        "plan": "p",
        "complete": True,
        "done": [],
        "refused": [],
    }
    row = {"kind": "copy", "trial": "a", "form": "", "median_us": 1, "low_us": 1, "high_us": 1, "raw_us": 1}
    row |= {"reference_us": 1, "repeats": 1, "count": "@", "values": {}, "ops": []}
    file = write(tmp_path / "o.rows.json", json.dumps({**head, "rows": [row]}).replace('"@"', "1e999"))
    with pytest.raises(ScenarioError, match="damaged"):
        read_timings(file)
