"""Results of load tests in the forms of their tools; samples here have those forms and made-up numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.errors import ScenarioError
from scenarios.exchange.load_tests import LoadTest, is_load_test, read_load_tests

VLLM = {
    "date": "20260301-101500", "endpoint_type": "openai", "model_id": "Qwen3-8B", "num_prompts": 100,
    "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8, "duration": 41.2, "completed": 100,
    "total_input_tokens": 51200, "total_output_tokens": 25600, "request_throughput": 2.43,
    "output_throughput": 621.4, "total_token_throughput": 1864.1, "mean_ttft_ms": 180.5, "median_ttft_ms": 170.1,
    "p99_ttft_ms": 400.2, "mean_tpot_ms": 12.25, "median_tpot_ms": 12.2, "p99_tpot_ms": 13.0, "mean_itl_ms": 12.25,
}  # fmt: skip


def statistics(mean: float) -> dict[str, Any]:
    return {"successful": {"mean": mean, "median": mean, "std_dev": 0.0, "percentiles": {"p50": mean}}}


def guidellm(rate: float, itl: float) -> dict[str, Any]:
    return {
        "type_": "generative_benchmark",
        "duration": 300.0,
        "config": {"strategy": {"type_": "constant", "rate": rate}},
        "metrics": {
            "request_totals": {"successful": 290, "errored": 0, "incomplete": 10, "total": 300},
            "request_concurrency": statistics(11.5),
            "prompt_token_count": statistics(520.0),
            "output_token_count": statistics(256.0),
            "time_to_first_token_ms": statistics(178.0),
            "inter_token_latency_ms": statistics(itl),
            "output_tokens_per_second": statistics(247.1),
        },
    }


AIPERF = {
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "request_latency": {"unit": "ms", "avg": 4000.0, "p50": 3990.0},
    "time_to_first_token": {"unit": "ms", "avg": 250.0, "p50": 240.0},
    "inter_token_latency": {"unit": "ms", "avg": 29.5},
    "input_sequence_length": {"unit": "tokens", "avg": 550.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 256.0},
    "request_count": {"unit": "requests", "avg": 200.0},
    "input_config": {"loadgen": {"concurrency": 8}},
}
AIPERF_CSV = """Metric,avg,min,max,p1,p5,p10,p25,p50,p75,p90,p95,p99,std
Request Latency (ms),4000.00,3900.00,4100.00,1,1,1,1,1,1,1,1,1,1
Time to First Token (ms),250.00,200.00,300.00,1,1,1,1,1,1,1,1,1,1
Inter Token Latency (ms),29.50,29.00,30.00,1,1,1,1,1,1,1,1,1,1
Input Sequence Length (tokens),550.00,550.00,550.00,1,1,1,1,1,1,1,1,1,1
Output Sequence Length (tokens),128.00,128.00,128.00,1,1,1,1,1,1,1,1,1,1

Metric,Value
Output Token Throughput (tokens/sec),256.00
Request Count (requests),200.00
Request Throughput (requests/sec),2.00
"""
AISBENCH = {
    "Benchmark Duration": {"total": "40152.7 ms"},
    "Total Requests": {"total": 32},
    "Success Requests": {"total": 32},
    "Concurrency": {"total": 15.8},
    "Max Concurrency": {"total": 16},
    "Request Throughput": {"total": "0.797 req/s"},
    "Total Input Tokens": {"total": 16384},
    "Total generated tokens": {"total": 8192},
    "Output Token Throughput": {"total": "204.1 token/s"},
}
AISBENCH_CSV = """Performance Parameters,Stage,Average,Min,Max,Median,P75,P90,P99,N
E2EL,total,7503.7 ms,1,2,3,4,5,6,32
TTFT,total,146.1 ms,1,2,3,4,5,6,32
TPOT,total,28.9 ms,1,2,3,4,5,6,32
"""


def read(folder: Path, content: Any, name: str = "bench.json") -> list[LoadTest]:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_load_tests(path)


def test_vllm_bench_with_a_concurrency(tmp_path: Path) -> None:
    (test,) = read(tmp_path, VLLM)
    assert (test.tool, test.arrival, test.concurrency, test.rate) == ("vllm bench", "closed", 8, None)
    assert (test.input_tokens, test.output_tokens, test.requests) == (512, 256, 100)
    assert (test.ttft_ms, test.tpot_ms, test.output_throughput) == (180.5, 12.25, 621.4)


def test_vllm_bench_with_a_rate_or_all_at_once(tmp_path: Path) -> None:
    assert read(tmp_path, {**VLLM, "request_rate": 4.0})[0].arrival == "poisson"
    assert read(tmp_path, {**VLLM, "max_concurrency": None})[0].arrival == "burst"


def test_vllm_bench_appends_lines(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({**VLLM, "max_concurrency": n}) for n in (1, 8, 64))
    assert [test.concurrency for test in read(tmp_path, lines)] == [1, 8, 64]


def test_guidellm_sweeps(tmp_path: Path) -> None:
    tests = read(tmp_path, {"metadata": {"version": 1}, "benchmarks": [guidellm(1.0, 44.5), guidellm(2.0, 51.2)]})
    assert [(test.arrival, test.rate, test.tpot_ms) for test in tests] == [
        ("constant", 1.0, 44.5),
        ("constant", 2.0, 51.2),
    ]
    assert (tests[0].window_s, tests[0].input_tokens, tests[0].requests) == (300.0, 520, 290)


def test_guidellm_keeps_a_concurrency(tmp_path: Path) -> None:
    benchmark = guidellm(1.0, 44.5)
    benchmark["config"]["strategy"] = {"type_": "concurrent", "streams": 12}
    (test,) = read(tmp_path, {"benchmarks": [benchmark]})
    assert (test.arrival, test.concurrency, test.window_s) == ("closed", 12, None)


def test_aiperf_as_json_and_as_csv_say_the_same(tmp_path: Path) -> None:
    (from_json,) = read(tmp_path, AIPERF)
    (from_csv,) = read(tmp_path, AIPERF_CSV, "profile_export_aiperf.csv")
    # The CSV does not say the concurrency; 2 requests/s of 4 s are 8 in flight.
    assert from_json == from_csv
    assert (from_json.arrival, from_json.concurrency, from_json.tpot_ms) == ("closed", 8, 29.5)


def test_aisbench_has_its_latencies_in_a_csv(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.csv").write_text(AISBENCH_CSV, encoding="utf-8")
    (test,) = read(tmp_path, AISBENCH, "gsm8k.json")
    assert (test.concurrency, test.input_tokens, test.output_tokens) == (16, 512, 256)
    assert (test.ttft_ms, test.tpot_ms, test.output_throughput) == (146.1, 28.9, 204.1)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "bench.json:1:2: not JSON: Expecting property name"),
        ([1], "bench.json: a result of vllm bench serve, guidellm, AIPerf or AISBench is due, and it holds no JSON"),
        ({"a": 1}, "is due; its keys are a"),
        ({**VLLM, "total_output_tokens": 0}, "bench.json: total_output_tokens: a number above 0 is due, got '0'"),
        ({**VLLM, "completed": None}, "bench.json: completed: a number above 0 is due, and there is none"),
        ({"benchmarks": []}, "bench.json: holds no load test"),
        ({"benchmarks": [{"metrics": {}}]}, "bench.json: benchmarks[0].metrics.request_concurrency: a number"),
        (AISBENCH, "bench.json: AISBench writes TTFT and TPOT to bench.csv next to it; it has none"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, content: Any, line: str) -> None:
    with pytest.raises(ScenarioError) as error:
        read(tmp_path, content)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_a_csv_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"bench.csv:1: .* a CSV is AIPerf's"):
        read(tmp_path, "a,b\n1,2\n", "bench.csv")


@pytest.mark.parametrize(
    ("content", "name", "known"),
    [
        (VLLM, "bench.json", True),
        (AIPERF, "bench.json", True),
        (AISBENCH, "bench.json", True),
        ({"benchmarks": [guidellm(1.0, 12.0)]}, "bench.json", True),
        (AIPERF_CSV, "bench.csv", True),
        ({"schema_version": 1, "serving": {"completed": 1, "total_input_tokens": 2}}, "run.json", False),
        ({"traceEvents": [{"args": {"completed": 1, "total_input_tokens": 2}}]}, "trace.json", False),
        ("Name,Type,Duration(us)\n", "kernel_details.csv", False),
        ("", "empty.json", False),
    ],
)
def test_a_load_test_is_known_by_its_keys(tmp_path: Path, content: Any, name: str, known: bool) -> None:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    assert is_load_test(path) is known


def test_what_cannot_be_read_is_no_load_test(tmp_path: Path) -> None:
    assert not is_load_test(tmp_path)
    assert not is_load_test(tmp_path / "absent.json")
    assert not is_load_test(Path("x" * 300))
    assert not is_load_test(Path("a\0b"))
