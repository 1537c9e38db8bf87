"""Bad profiles: one line each, exit status 2, nothing written, no traceback."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scenarios.profile.read import files
from tests.scenarios.profile import making

Whatif = Callable[..., Any]


def refused(whatif: Whatif, path: Path, *said: str) -> None:
    """`whatif import path` ends with status 2 and one line that says all of `said`; it writes nothing."""
    out, trace = path.parent / "never.json", path.parent / "never.trace.json"
    done = whatif("import", path, "--json", out, "--trace", trace)
    assert done.status == 2, done.out
    [line] = done.problems
    for part in said:
        assert part in line, line
    assert not out.exists()
    assert not trace.exists()
    assert "Traceback" not in done.err


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """ASCEND_PROFILER_OUTPUT of a good profile of one rank, to be spoilt."""
    return making.torch_npu(tmp_path / "good", steps=(7,)) / "ASCEND_PROFILER_OUTPUT"


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_no_such_path(whatif: Whatif, tmp_path: Path) -> None:
    refused(whatif, tmp_path / "nowhere", "no such file")


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000, "\udcff"])
def test_impossible_names(whatif: Whatif, tmp_path: Path, name: str) -> None:
    done = whatif("import", f"{tmp_path}/{name}")
    assert (done.status, len(done.problems)) == (2, 1)


def test_a_folder_that_is_no_profile(whatif: Whatif, tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "notes.txt").write_text("hello")
    refused(whatif, tmp_path / "x", "holds no profile", "ASCEND_PROFILER_OUTPUT")


@pytest.mark.parametrize(("name", "data"), [("a.txt", b"hello"), ("a.json", b""), ("a.png", b"\x89PNG\r\n\x1a\n\0\0")])
def test_a_file_that_is_no_profile(whatif: Whatif, tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    refused(whatif, tmp_path / name, name)


def test_a_scenario_is_no_profile(whatif: Whatif, root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "scenarios" / "qwen3_8b_decode.yaml", tmp_path)
    refused(whatif, tmp_path / "qwen3_8b_decode.yaml", "is no profile")


def test_an_answer_is_no_profile(whatif: Whatif, tmp_path: Path) -> None:
    assert whatif("run", "qwen3_8b_decode", "--json", tmp_path / "run.json").status == 0
    refused(whatif, tmp_path / "run.json", "holds no events")


def test_a_pipe_is_not_opened(whatif: Whatif, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    refused(whatif, tmp_path / "pipe.json", "is not a regular file")


def test_links_in_a_circle_end(whatif: Whatif, tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    folder.mkdir()
    (folder / "again").symlink_to(folder)
    (folder / "round.pt.trace.json").symlink_to("round.pt.trace.json")
    refused(whatif, folder, "round.pt.trace.json", "cannot be read")
    (folder / "round.pt.trace.json").unlink()
    refused(whatif, folder, "holds no profile")


def test_an_output_folder_without_its_files(whatif: Whatif, output: Path) -> None:
    (output / "trace_view.json").unlink()
    (output / "kernel_details.csv").unlink()
    refused(whatif, output, "has neither trace_view.json nor kernel_details.csv")


@pytest.mark.parametrize("at", [0.5, 0.99])
def test_a_trace_that_is_cut_off(whatif: Whatif, output: Path, at: float) -> None:
    path = output / "trace_view.json"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * at)])
    refused(whatif, output, "trace_view.json: event", "cut off")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"dur": 900.0', '"dur": -900.0', "dur -900.0 is negative"),
        ('"dur": 900.0', '"dur": NaN', "holds NaN or Infinity"),
        ('"dur": 900.0', '"dur": Infinity', "holds NaN or Infinity"),
        ('"dur": 900.0', '"dur": 1e300', "not finite or too large"),
        ('"dur": 900.0', '"dur": [9]', "Expected `float | str | null`, got `array`, at `.dur`"),
        ('"dur": 900.0', '"dur": "x"', "'x' is not a number"),
        ('"name": "aten::add"', '"name": 7', "Expected `str`, got `int`, at `.name`"),
        (f'"ts": "{making.us(10)}"', '"ts": "-5.000"', "ts -5.000 is negative"),
        (f'"ts": "{making.us(10)}"', '"ts": "nan"', "ts nan is not a finite number"),
        (f'"ts": "{making.us(10)}"', '"ts": "soon"', "ts 'soon' is not a number"),
        (f'"ts": "{making.us(10)}"', f'"ts": "{2**64}"', "is too large"),
    ],
)
def test_times_and_types_of_a_trace(whatif: Whatif, output: Path, old: str, new: str, said: str) -> None:
    spoil(output / "trace_view.json", old, new)
    refused(whatif, output, "trace_view.json", said)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("kernel_details.csv", "Start Time(us)", "Start(us)", "kernel_details.csv:1: has no column 'Start Time(us)'"),
        ("kernel_details.csv", ",50.0,", ",-50.0,", "kernel_details.csv:2: Duration(us): -50.0 is negative"),
        ("kernel_details.csv", ",50.0,", ",NaN,", "kernel_details.csv:2: Duration(us): NaN is not a finite number"),
        ("kernel_details.csv", ",50.0,", ",fast,", "kernel_details.csv:2: Duration(us): 'fast' is not a number"),
        ("kernel_details.csv", ",50.0,", ",50.0,7,", "kernel_details.csv:2: has 20 fields where the header has 19"),
        ("kernel_details.csv", "Name,", "Type,", "no column 'Name'"),
        ("step_trace_time.csv", "Computing", "Compute", "step_trace_time.csv:1: has no column 'Computing'"),
        ("step_trace_time.csv", ",250.0,", ",N/A,", "step_trace_time.csv:2: Computing: 'N/A' is not a number"),
        ("communication.json", '"Elapse Time(ms)": 0.15', '"Elapse Time(ms)": -0.15', "(ms): -0.15 is negative"),
        ("communication.json", '"Elapse Time(ms)": 0.15', '"Elapse Time(ms)": NaN', "NaN is no JSON number"),
        ("api_statistic.csv", "400.5", "-1", "api_statistic.csv:3: Time(us): -1 is negative"),
        ("api_statistic.csv", "API Name", "Call", "api_statistic.csv:1: has no column 'API Name'"),
        ("op_statistic.csv", "100.0", "nan", "op_statistic.csv:3: Total Time(us): nan is not a finite number"),
        ("communication.json", '{"step7"', '["step7"', "communication.json:1:"),
        ("communication.json", '"Wait Time(ms)": 0.1', '"Wait Time(ms)": "a"', "Wait Time(ms)"),
    ],
)
def test_tables_with_other_columns_and_values(
    whatif: Whatif, output: Path, file: str, old: str, new: str, said: str
) -> None:
    spoil(output / file, old, new)
    refused(whatif, output, said)


def test_tables_that_are_no_text(whatif: Whatif, output: Path) -> None:
    (output / "kernel_details.csv").write_bytes(b"Name,Type\n\xff\xfe\0\0")
    refused(whatif, output, "kernel_details.csv")
    (output / "kernel_details.csv").write_bytes(b"")
    refused(whatif, output, "kernel_details.csv:1: has no column 'Name'", "found: nothing")


def test_info_that_is_broken(whatif: Whatif, output: Path) -> None:
    (output.parent / "profiler_info_0.json").write_text("{")
    refused(whatif, output.parent, "profiler_info_0.json:1:2: is not JSON")


def test_ranks_that_are_there_twice(whatif: Whatif, tmp_path: Path) -> None:
    making.torch_npu(tmp_path / "p" / "a")
    making.torch_npu(tmp_path / "p" / "b")
    refused(whatif, tmp_path / "p", "rank 0 is there twice")


def test_ranks_of_two_runs_and_of_two_profilers(whatif: Whatif, tmp_path: Path) -> None:
    making.torch_npu(tmp_path / "p", rank=0, world_size=2)
    making.torch_npu(tmp_path / "p", rank=1, world_size=4)
    refused(whatif, tmp_path / "p", "mixes the ranks of two runs")
    making.torch_npu(tmp_path / "q" / "a", rank=0)
    (tmp_path / "q" / "b").mkdir()
    making.pytorch(tmp_path / "q" / "b" / "x.pt.trace.json", rank=1)
    refused(whatif, tmp_path / "q", "mixes a profile of torch_npu", "with one of pytorch")


def test_devices_mixed_in_one_table(whatif: Whatif, tmp_path: Path) -> None:
    path = making.op_summary(tmp_path / "op_summary_1.csv")
    spoil(path, "\n0,", "\n1,")
    refused(whatif, path, "mixes the kernels of devices 0, 1")


def test_devices_mixed_in_one_trace(whatif: Whatif, output: Path) -> None:
    path = output / "trace_view.json"
    events = json.loads(path.read_text(encoding="utf-8"))
    other = [{**event, "pid": 999} for event in events if event["pid"] == making.DEVICE]
    path.write_text(json.dumps(events + other), encoding="utf-8")
    refused(whatif, output, "trace_view.json", "mixes the kernels of 2 devices (NPU 0, NPU 0)")


def test_a_newer_version_is_read_and_said_to_be_newer(whatif: Whatif, output: Path) -> None:
    spoil(output.parent / "profiler_info_0.json", '"2.7.1"', '"9.1.0"')
    done = whatif("import", output.parent)
    assert done.status == 0
    assert "written by torch_npu 9.1.0, newer than 2.13" in done.out


def test_bombs_and_broken_archives(whatif: Whatif, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.pt.trace.json.gz"
    bomb.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 50_000_000 + b"]}"))
    assert bomb.stat().st_size < 100_000
    refused(whatif, bomb, "refused as a bomb")
    bomb.write_bytes(b"\x1f\x8b\0 hello hello hello")
    refused(whatif, bomb, "is not gzip")
    (tmp_path / "a.zip").write_bytes(b"PK\3\4" + b"\0" * 100)
    refused(whatif, tmp_path / "a.zip", "is no profile")


def test_more_events_than_the_limit(whatif: Whatif, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(files.LIMITS, events=10)
    for module in ("build", "kernel_details", "json_events", "files"):
        monkeypatch.setattr(f"scenarios.profile.read.{module}.LIMITS", limits)
    refused(whatif, output, "holds more than 10 events; profile fewer steps")
    (output / "trace_view.json").unlink()
    making.write_csv(output / "kernel_details.csv", making.kernel_details(range(4), 2))
    refused(whatif, output, "holds more than 10 kernels; profile fewer steps")


def test_names_that_take_too_much_memory(whatif: Whatif, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.profile.read.build.LIMITS", replace(files.LIMITS, text_bytes=1000))
    refused(whatif, output, "names and shapes take more than")


def test_a_database_that_is_none(whatif: Whatif, tmp_path: Path) -> None:
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    path.write_text("hello")
    refused(whatif, path, "is no SQLite database")
    path.write_bytes(b"SQLite format 3\0" + b"\1" * 5000)
    refused(whatif, path, "is no readable SQLite database")
    path.unlink()
    sqlite3.connect(path).execute("CREATE TABLE other (a)").connection.close()
    refused(whatif, path, "no table TASK. Found other")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE TASK RENAME COLUMN startNs TO begin", "table TASK has no column 'startNs'"),
        ("UPDATE TASK SET startNs = 'soon'", "TASK.startNs is 'soon', not a whole number"),
        ("UPDATE TASK SET startNs = -5", "TASK.startNs is -5, not a whole number"),
        ("UPDATE TASK SET endNs = startNs - 1", "before its start"),
        ("UPDATE COMMUNICATION_OP SET endNs = 1.5", "COMMUNICATION_OP.endNs is 1.5, not a whole number"),
        ("UPDATE CANN_API SET startNs = NULL", "CANN_API.startNs is None, not a whole number"),
        ("UPDATE TASK SET deviceId = rowid", "mixes the tasks of devices"),
        ("DELETE FROM TASK", "holds no tasks of a device"),
        ("DROP TABLE COMPUTE_TASK_INFO", ""),
    ],
)
def test_databases_with_other_columns_and_values(whatif: Whatif, tmp_path: Path, statement: str, said: str) -> None:
    path = making.database(tmp_path / "ascend_pytorch_profiler_0.db", steps=(7,))
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    if said:
        refused(whatif, path, said)
    else:  # collectives are left
        assert whatif("import", path).status == 0


def test_a_view_that_never_ends_is_not_asked(whatif: Whatif, tmp_path: Path) -> None:
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    connection = sqlite3.connect(path)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x AS deviceId FROM n"
    connection.execute(f"CREATE VIEW TASK AS {endless}")
    connection.commit()
    connection.close()
    refused(whatif, path, "no table TASK")


def test_a_trace_without_a_device(whatif: Whatif, tmp_path: Path) -> None:
    events = [{"ph": "X", "name": "aten::add", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2}]
    (tmp_path / "a.pt.trace.json").write_text(json.dumps({"traceEvents": events}))
    refused(whatif, tmp_path / "a.pt.trace.json", "holds no kernels of a device")


def test_unknown_hardware_and_outputs_over_inputs(whatif: Whatif, output: Path) -> None:
    done = whatif("import", output, "--hardware", "910b9")
    assert (done.status, len(done.problems)) == (2, 1)
    trace = output / "trace_view.json"
    before = trace.read_bytes()
    done = whatif("import", trace, "--json", trace)
    assert (done.status, trace.read_bytes()) == (2, before)
    for name in ("kernel_details.csv", "trace_view.json"):
        done = whatif("import", output, "--trace", output / name)
        assert done.status == 2, name
        assert "overwrite" in done.problems[0]
