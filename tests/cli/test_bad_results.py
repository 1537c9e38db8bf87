"""Result files that `whatif compare` refuses, in a line that names the field, and odd ones that it reads."""

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

SEED = "qwen3_8b_decode"


@pytest.fixture
def result(answer_file: Callable[..., Path], tmp_path: Path) -> dict[str, Any]:
    """A good document, saved as good.json too."""
    text = answer_file(SEED).read_text(encoding="utf-8")
    write(tmp_path / "good.json", text)
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "bad.json:1:1: not JSON: Expecting value"),
        (b"{", r"bad.json:1:2: not JSON: Expecting property name enclosed in double quotes"),
        (b'{"schema_version": 1, "st', None),
        (b"[]", "bad.json: not a result of `whatif run --json`"),
        (b"{}", "bad.json: not a result of `whatif run --json`"),
        (b"\xff\xfe", "bad.json: not JSON: not UTF-8 text"),
        (b"NaN", "bad.json: not a result of `whatif run --json`"),
        (b'{"schema_version": ' + b"9" * 5000 + b"}", "bad.json: not a result of `whatif run --json`"),
        (b"[" * 100_000, "bad.json: not a result of `whatif run --json`"),
        (b'{"schema_version": 99}', "bad.json: schema_version is 99, this version reads 1"),
        (b'{"schema_version": true}', "bad.json: schema_version is true, this version reads 1"),
        (b'{"schema_version": "1"}', "bad.json: schema_version is '1', this version reads 1"),
        (
            b'{"schema_version": 1}',
            "bad.json: scenario: Field required, so not a result of `whatif run --json`",
        ),
    ],
)
@pytest.mark.usefixtures("result")
def test_a_broken_result_file(
    refused: Callable[..., list[str]], tmp_path: Path, content: bytes, line: str | None
) -> None:
    write(tmp_path / "bad.json", content)
    for order in (("good.json", "bad.json"), ("bad.json", "good.json")):
        [outcome] = refused("compare", *order)
        assert outcome == line or (line is None and re.match(r"bad\.json:1:\d+: not JSON: ", outcome))


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        (("step",), 3, "step"),
        (("step", "total_us"), 0, "step.total_us"),
        (("step", "total_us"), -1, "step.total_us"),
        (("step", "total_us"), 1e300, "step.total_us"),
        (("step", "extra_us"), "x", "step.extra_us"),
        (("metrics", "tpot_ms"), None, "metrics.tpot_ms"),
        (("metrics", "tpot_ms", "value"), "fast", "metrics.tpot_ms.value"),
        (("kernels",), {}, "kernels"),
        (("kernels", 0, "total_us"), "x", "kernels.0.total_us"),
        (("kernels", 0), 7, "kernels.0"),
        (("scenario",), "x", "scenario"),
        (("scenario", "name"), None, "scenario.name"),
        (("bottleneck",), [], "bottleneck"),
        (("hardware",), {}, "hardware"),
        (("launches",), True, "launches"),
    ],
)
def test_a_result_file_with_a_wrong_value(
    refused: Callable[..., list[str]],
    result: dict[str, Any],
    tmp_path: Path,
    where: tuple[str | int, ...],
    value: object,
    named: str,
) -> None:
    inner: Any = result
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    write(tmp_path / "bad.json", json.dumps(result))
    [line] = refused("compare", "good.json", "bad.json")
    assert line.startswith(f"bad.json: {named}: ")
    assert line.endswith(", so not a result of `whatif run --json`")


def test_a_result_file_nested_without_end(
    refused: Callable[..., list[str]], result: dict[str, Any], tmp_path: Path
) -> None:
    nested: Any = 1
    for _ in range(200):
        nested = {"x": nested}
    result["scenario"]["deep"] = nested
    write(tmp_path / "bad.json", json.dumps(result))
    [line] = refused("compare", "good.json", "bad.json")
    assert line == "bad.json: nested deeper than 32 levels, so not a result of `whatif run --json`"


@pytest.mark.usefixtures("result")
def test_a_result_file_that_is_huge_or_no_file(refused: Callable[..., list[str]], tmp_path: Path) -> None:
    with (tmp_path / "bad.json").open("wb") as file:
        file.truncate(65 << 20)
    assert refused("compare", "good.json", "bad.json") == [
        "bad.json: larger than 67108864 bytes, so not a result of `whatif run --json`"
    ]
    (tmp_path / "bad.json").unlink()
    (tmp_path / "bad.json").mkdir()
    assert refused("compare", "good.json", "bad.json") == ["bad.json: is a folder"]
    os.mkfifo(tmp_path / "pipe.json")
    assert refused("compare", "good.json", "pipe.json") == ["pipe.json: is not a regular file"]
    assert refused("compare", "good.json", "nowhere.json") == ["nowhere.json: no such file"]


def test_names_in_a_result_file_are_shown_and_not_obeyed(
    whatif: WhatIf, result: dict[str, Any], tmp_path: Path
) -> None:
    result["scenario"]["name"] = result["scenario"]["model"] = "[red]x\x1b[31m\n:smile:"
    mine = write(tmp_path / "mine.json", json.dumps(result))
    done = whatif("compare", tmp_path / "good.json", mine)
    assert (done.status, done.err) == (0, "")
    assert "[red]x\\x1b[31m :smile:" in done.out
    assert "\x1b" not in done.out


def test_a_result_file_without_any_time_but_its_total(whatif: WhatIf, result: dict[str, Any], tmp_path: Path) -> None:
    """No kernels and nothing free: odd, but nothing to crash on."""
    result["kernels"], result["step"]["free_us"] = [], 0
    bare = write(tmp_path / "bare.json", json.dumps(result))
    done = whatif("compare", bare, bare)
    assert (done.status, done.err) == (0, "")
