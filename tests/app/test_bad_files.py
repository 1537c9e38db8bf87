"""Whatever is dropped is read or refused in one line, in the reader's language and without a place of this machine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator

import pytest
import streamlit as st

from app_pages.parts import dropped, measuring, profiles, sides
from app_pages.parts.texts.refusals import ORIGINAL, in_words
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import SHIPPED

ESCAPES = "<img src=x>![x](http://127.0.0.1:9/e.png)\x1b[2J"
SCENARIO = b"model: Qwen3-8B\nhardware: atlas_a3_die\n"
CONFIG = (SHIPPED / "Qwen3-8B" / "config.json").read_bytes()
LOAD_TEST = {
    "model_id": "m", "max_concurrency": 8, "completed": 100, "duration": 41.0, "total_input_tokens": 51200,
    "total_output_tokens": 25600, "mean_ttft_ms": 180.0, "mean_tpot_ms": 40.0, "output_throughput": 620.0,
}  # fmt: skip
BAD = {
    "nothing": b"",
    "blanks": b"  \n\n",
    "zeros": b"\0" * 50,
    "every byte": bytes(range(256)) * 4,
    "UTF-16": SCENARIO.decode().encode("utf-16"),
    "Latin-1": "model: Qwen3-8B # é\n".encode("latin-1"),
    "byte-order mark": b"\xef\xbb\xbf" + CONFIG,
    "list": b"[1, 2]",
    "number": b"42",
    "object": b"{}",
    "cut off": CONFIG[:100],
    "deep list": b"[" * 5000,
    "deep object": b'{"a":' * 5000,
    "NaN": b'{"a": NaN}',
    "escapes": json.dumps({ESCAPES: 1}).encode(),
    "table of escapes": ESCAPES.encode() + b",b\n1,2\n",
    "gzip, cut off": gzip.compress(b"[" + b"1," * 1000)[:20],
    "one cell": b"x" * (1 << 20) + b"yz",
    "zip": b"PK\x03\x04" + bytes(60),
    "SQLite": b"SQLite format 3\0" + bytes(100),
    "tag": b"!!python/object/apply:os.system ['ls']\n",
    "two documents": b"model: Qwen3-8B\n---\nmodel: x\n",
    "twice": b"model: Qwen3-8B\nmodel: Qwen3-8B\n",
    "file of this machine": b"model: /etc/passwd\nhardware: /etc/passwd\n",
    "extends itself": b"extends: x.yaml\nworkload: {batch: 1}\n",
    "long name": b"hardware: " + b"a" * 5000 + b"\n",
    "quoted number": b'workload:\n  batch: "99999999999999999999"\n',
    "a profile without its source": b"name: m\nextends: atlas_a2_910b2\nmemory:\n  hbm_peak_gbps: 1800\n",
    "an infinite rate": b"name: m\nextends: atlas_a2_910b2\nmemory:\n"
    b"  hbm_peak_gbps: {value: .inf, source: assumed, origin: nobody}\n",
    "no size": json.dumps({**json.loads(CONFIG), "vocab_size": "abc"}).encode(),
    "no epsilon": json.dumps({**json.loads(CONFIG), "rms_norm_eps": -1}).encode(),
    "a part of a request": json.dumps({**LOAD_TEST, "completed": 1e-3}).encode(),
    "no clients": json.dumps({**LOAD_TEST, "max_concurrency": 1e-3}).encode(),
    "endless clients": json.dumps({**LOAD_TEST, "max_concurrency": 1e200}).encode(),
    "other units": json.dumps({**LOAD_TEST, "mean_tpot_ms": 4e7}).encode(),
    "endless times": json.dumps({**LOAD_TEST, "mean_tpot_ms": 1e200}).encode(),
    "half of AISBench": b'{"Request Throughput": {"total": "0.7 req/s"}, "Success Requests": {"total": 32}, '
    b'"Concurrency": {"total": 8}}',
    "an event at no time": b'[{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Ascend Hardware"}}, '
    b'{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": "\\u001b]0;", "dur": 1, "args": {"Task Type": "AI_CORE"}}]',
}


def _drop(name: str, data: bytes) -> None:
    said = dropped.add_all([(name, data)])
    if said:
        raise ScenarioError(said)


def _profile(name: str, data: bytes) -> None:
    given = profiles.uploaded([(name, data)])
    profiles.shown(given, "", "", "")


READERS: dict[str, tuple[Callable[[str, bytes], object], tuple[str, ...]]] = {
    "drop": (_drop, ("mine.yaml", "mine.json", "folder/config.json")),
    "compare": (lambda name, data: sides.uploaded([(name, data)]), ("a b.json", "a.csv", "a.db", "a.json.gz")),
    "compare a folder": (lambda name, data: sides.uploaded_folder([(name, data)]), ("job/trace_view.json",)),
    "measure": (measuring.result_of, ("result.json",)),
    "measure a load test": (
        lambda name, data: measuring.fitted([(name, data)], "serve_qwen3_14b_910b3"),
        ("bench.json", "bench.csv"),
    ),
    "profile": (_profile, ("trace.json", "table.csv", "a.db", "a.json.gz", "trace_view.json")),
}


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "session_state", {})


def refusals(read: Callable[[str, bytes], object], names: tuple[str, ...]) -> Iterator[str]:
    for data in BAD.values():
        for name in names:
            try:
                read(name, data)
            except ScenarioError as error:
                yield from error.messages


@pytest.mark.parametrize(
    "reader", [pytest.param(name, marks=[pytest.mark.slow] * (name == "measure a load test")) for name in READERS]
)
def test_bad_bytes_are_refused_in_the_readers_language(reader: str) -> None:
    said = list(refusals(*READERS[reader]))
    assert len(said) > len(BAD) / 2  # what one reader refuses another may take
    assert [line for line in said if "/tmp" in line or "whatif-own" in line] == []
    assert [line for line in said if not line.isprintable()] == []
    assert [line for line in said if ORIGINAL in in_words(line, "zh")] == []


def test_a_load_test_in_two_files_is_read_from_both() -> None:
    """AISBench keeps its latencies in a table next to the result."""
    result = {
        "Request Throughput": {"total": "0.797 req/s"}, "Success Requests": {"total": 32}, "Concurrency": {"total": 16},
        "Total Input Tokens": {"total": 16384}, "Total generated tokens": {"total": 8192},
    }  # fmt: skip
    table = "Performance Parameters,Stage,Average\nTTFT,total,146.1 ms\nTPOT,total,48.9 ms\n"
    files = [("run.csv", table.encode()), ("run.json", json.dumps(result).encode())]
    [row] = measuring.fitted(files, "serve_qwen3_14b_910b3").calibration.compared
    assert (row.test.concurrency, row.test.tpot_ms) == (16, 48.9)
    [load] = sides.uploaded(files).loads
    assert (load.in_flight, load.tpot_ms) == (16, 48.9)
    with pytest.raises(ScenarioError, match="one file is due"):
        sides.uploaded([files[0], ("other.json", files[1][1])])
    with pytest.raises(ScenarioError, match=r"AISBench writes TTFT and TPOT to run\.csv"):
        sides.uploaded(files[1:])
