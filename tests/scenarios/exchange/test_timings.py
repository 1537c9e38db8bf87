"""Files of timed operations: what is written is read, and nothing that is damaged is taken for whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.exchange.timings import STEP, Timing, Timings, pieces_of, read_timings
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Op, Tensor

ATTENTION = Op(
    "attention",
    "attention",
    (
        Tensor("q", (3, 4, 16), "bf16"),
        Tensor("k", (3, 40, 2, 16), "bf16", "kv_cache"),
        Tensor("v", (3, 40, 2, 16), "bf16", "kv_cache"),
    ),
    (Tensor("y", (3, 4, 16), "bf16"),),
    (("groups", ((3, 1, 30),)), ("heads", 4), ("kv_heads", 2), ("head_dim", 16), ("block_size", 0)),
)
ROW = Timing(
    kind="attention",
    trial="a trial",
    form="fused",
    ops=(ATTENTION,),
    median_us=80.5,
    low_us=78.0,
    high_us=91.25,
    raw_us=120.0,
    reference_us=500.0,
    repeats=15,
    count=2,
)
STEPS = Timing(
    kind=STEP,
    trial="a trial",
    form="eager",
    ops=(),
    median_us=900.0,
    low_us=880.0,
    high_us=990.0,
    raw_us=2000.0,
    reference_us=500.0,
    repeats=15,
    values={"units": 44.0},
)
MADE = Timings({"backend": "cpu", "threads": 1}, "abc", False, (ROW, STEPS), ("a trial",), (("x", "why"),))


def written(path: Path, timings: Timings = MADE) -> Path:
    path.write_text("".join(pieces_of(timings)))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    timings = read_timings(written(tmp_path / "rows.json"))
    assert replace(timings, rows=()) == replace(MADE, rows=())
    row, step = timings.rows
    assert step == STEPS
    assert work_of(row.op) == work_of(ATTENTION)
    assert row.op.signature == ATTENTION.signature
    assert replace(row, ops=()) == replace(ROW, ops=())


def test_a_row_a_line(tmp_path: Path) -> None:
    lines = written(tmp_path / "rows.json").read_text().splitlines()
    assert len(lines) == 1 + 2 + 1
    assert json.loads(lines[1].rstrip(","))["kind"] == "attention"


def test_no_rows_is_a_file_too(tmp_path: Path) -> None:
    assert read_timings(written(tmp_path / "rows.json", replace(MADE, rows=()))).rows == ()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "not a whole file of microbenchmarks"),
        (lambda text: "", "not a whole file of microbenchmarks"),
        (lambda text: "[1, 2]", "not a file of microbenchmarks"),
        (lambda text: text.replace("80.5", "NaN"), "not a file of microbenchmarks"),
        (lambda text: text.replace("80.5", "-80.5"), "a row or its head is damaged (attention: a time that cannot be)"),
        (lambda text: text.replace("500.0", "0"), "a row or its head is damaged (attention: a time that cannot be)"),
        (lambda text: text.replace('"kind": "attention", "inputs"', '"kind": "dance", "inputs"'), "unknown kind dance"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "version 2 of its kind, and this program reads 1"),
        (lambda text: text.replace('"kv_cache"', '"basement"'), "unknown word basement"),
        (lambda text: text.replace('"backend": "cpu", ', ""), "a row or its head is damaged ('backend')"),
        (lambda text: "[" * 100_000, "not a file of microbenchmarks"),
    ],
)
def test_damage_is_one_line(tmp_path: Path, damage: object, said: str) -> None:
    path = written(tmp_path / "rows.json")
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with pytest.raises(ScenarioError) as told:
        read_timings(path)
    (line,) = told.value.messages
    assert line.startswith(str(path))
    assert said in line


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"cannot be read: No such file"):
        read_timings(tmp_path / "none.json")
