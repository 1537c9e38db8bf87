"""Files broken at random: read, or refused in one line; never a traceback, never half an answer."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.profile.read import read_captures
from sim.report.outputs.imported import import_outputs
from tests.scenarios.profile import making

WORDS = (
    b"-1", b"NaN", b"null", b"{}", b"[]", b'"x"', b"1e400", b"9" * 23, b"", b"\xff", b"\0", b",", b'"', b"}", b"true",
    b"-0", b"1.5", b"N/A",
)  # fmt: skip
MAKERS: dict[str, Callable[[Path], Path]] = {
    "torch_npu": lambda folder: making.torch_npu(folder),
    "level0": lambda folder: making.torch_npu(folder, level=0),
    "tables": lambda folder: making.torch_npu(folder, trace=False),
    "database": lambda folder: making.database(folder / "ascend_pytorch_profiler_0.db"),
    "pytorch": lambda folder: making.pytorch(folder / "a.pt.trace.json"),
    "gzip": lambda folder: making.pytorch(folder / "a.pt.trace.json.gz"),
    "msprof": lambda folder: making.op_summary(folder / "op_summary_1.csv"),
}


def broken(data: bytes, jitter: random.Random) -> bytes:
    """The bytes with one to five of them changed, cut out, put in, or cut off."""
    result = bytearray(data)
    for _ in range(jitter.choice((1, 1, 2, 5))):
        at = jitter.randrange(len(result) + 1)
        how = jitter.randrange(5)
        if how == 0 and at < len(result):
            result[at] = jitter.randrange(256)
        elif how == 1:
            del result[at : at + jitter.choice((1, 3, 50))]
        elif how == 2:
            result[at:at] = jitter.choice(WORDS)
        elif how == 3:  # the next number becomes something else
            start = next((i for i in range(at, len(result)) if chr(result[i]).isdigit()), at)
            end = next((i for i in range(start, len(result)) if result[i] not in b"0123456789."), len(result))
            result[start:end] = jitter.choice(WORDS)
        elif jitter.random() < 0.3:
            del result[at:]
    return bytes(result)


@pytest.mark.parametrize("kind", MAKERS)
def test_broken_files_are_read_or_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    jitter = random.Random(f"broken {kind}")
    good = tmp_path / "good"
    good.mkdir()
    MAKERS[kind](good)
    refused = 0
    for number in range(25):
        folder = tmp_path / str(number)
        shutil.copytree(good, folder)
        file = jitter.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        file.write_bytes(broken(file.read_bytes(), jitter))
        out = tmp_path / f"{number}.json"
        try:
            import_outputs(str(folder), "910b2", "", out, None)
        except ScenarioError as error:
            refused += 1
            [line] = error.messages
            assert "\n" not in line
            assert not out.exists()
    assert refused > 3


def test_a_trace_of_another_profiler_under_torch_npus_name_is_refused_in_one_line(tmp_path: Path) -> None:
    """Its calls lost all their kernels, and no call of an NPU gives them a name."""
    process = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 0, "tid": 1, "ts": 1150, "dur": 5}
    folder = tmp_path / "job"
    folder.mkdir()
    text = json.dumps({"traceEvents": [process, {**process, "pid": 1}, {**call, "args": {"correlation": 4}}]})
    (folder / "trace_view.json").write_text(text)
    with pytest.raises(ScenarioError, match="holds no"):
        read_captures(str(folder))
