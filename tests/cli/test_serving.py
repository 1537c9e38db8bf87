"""`whatif run` of a scenario with traffic: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WhatIf = Callable[..., Any]

NAME = "serve_qwen3_14b_910b3"
QUICK = ("--set", "workload.traffic.requests=30", "--set", "workload.traffic.warmup_requests=0")


def test_it_prints_what_a_benchmark_prints_and_what_limits(whatif: WhatIf, tmp_path: Path) -> None:
    result, trace = tmp_path / "result.json", tmp_path / "trace.json"
    done = whatif("run", NAME, *QUICK, "--json", result, "--trace", trace)
    assert done.status == 0
    for words in ("30 requests completed", "TTFT (from arrival)", "Limited by: device", "highest rate under the SLO"):
        assert words in done.out
    assert json.loads(result.read_text())["serving"]["completed"] == 30
    assert {event["ph"] for event in json.loads(trace.read_text())} == {"M", "X", "C"}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("workload.traffic.rate=null", "workload.traffic.rate: is needed with arrival poisson"),
        ("engine.max_num_batched_tokens=100", "must be at least engine.max_num_seqs 256, got 100"),
        ("engine.profile=vllm_ascend_018", "Did you mean 'vllm_ascend_0_18'?"),
        ("workload.traffic.trace={file: nothere.csv, form: azure}", "cannot read 'nothere.csv'"),
        ("workload.traffic.arival=burst", "arrival"),
    ],
)
def test_bad_traffic_is_one_line(whatif: WhatIf, setting: str, message: str) -> None:
    done = whatif("run", NAME, "--set", setting)
    assert (done.status, len(done.problems)) == (2, 1)
    assert message in done.problems[0]
