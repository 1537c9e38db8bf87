"""Results of load tests in the forms of their tools; samples here have those forms and made-up numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
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
    assert read(tmp_path, {**VLLM, "request_rate": 4.0, "max_concurrency": None})[0].arrival == "poisson"
    assert read(tmp_path, {**VLLM, "max_concurrency": None})[0].arrival == "burst"


@pytest.mark.parametrize(
    ("burstiness", "arrival"),
    [(1.0, "poisson"), (0.5, "poisson"), (float("inf"), "constant"), (1000, "constant"), (None, "poisson")],
)
def test_vllm_bench_says_how_evenly_requests_came(tmp_path: Path, burstiness: float | None, arrival: str) -> None:
    run = {**VLLM, "request_rate": 2.0, "max_concurrency": None, "burstiness": burstiness}
    assert read(tmp_path, run)[0].arrival == arrival


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


def test_vllm_bench_with_both_a_rate_and_a_concurrency(tmp_path: Path) -> None:
    """100 requests in 41.2 s, 3.3 s each: 8 in flight. At a concurrency of 8 that, not the rate, sends the next one."""
    (bound,) = read(tmp_path, {**VLLM, "request_rate": 10.0})
    assert (bound.arrival, bound.concurrency, bound.rate) == ("closed", 8, None)
    (free,) = read(tmp_path, {**VLLM, "request_rate": 2.5, "max_concurrency": 64})
    assert (free.arrival, free.concurrency, free.rate) == ("poisson", None, 2.5)


def test_a_sweep_of_vllm_bench_is_a_list(tmp_path: Path) -> None:
    tests = read(tmp_path, [{**VLLM, "max_concurrency": n} for n in (1, 8)])
    assert [test.concurrency for test in tests] == [1, 8]


def test_runs_that_answered_nothing_are_left_out(tmp_path: Path) -> None:
    failed = {**VLLM, "completed": 0, "total_output_tokens": 0, "mean_ttft_ms": 0.0}
    assert len(read(tmp_path, "\n".join(json.dumps(run) for run in (failed, VLLM)))) == 1
    empty = guidellm(2.0, 0.0)
    empty["metrics"]["request_totals"] = {"successful": 0, "errored": 300, "total": 300}
    assert [test.rate for test in read(tmp_path, {"benchmarks": [empty, guidellm(1.0, 44.5)]})] == [1.0]
    (tmp_path / "bench.csv").write_text(AISBENCH_CSV, encoding="utf-8")
    for content in (failed, {"benchmarks": [empty]}, {**AISBENCH, "Success Requests": {"total": 0}}):
        with pytest.raises(ScenarioError, match="none of its 1 load tests has a request that ended well"):
            read(tmp_path, content)


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    (test,) = read(tmp_path, {**VLLM, "mean_tpot_ms": float("nan"), "output_throughput": 10**400})
    assert (test.tpot_ms, test.output_throughput) == (VLLM["mean_itl_ms"], None)


def test_aiperf_names_the_unit_of_each_time(tmp_path: Path) -> None:
    (test,) = read(tmp_path, {**AIPERF, "time_to_first_token": {"unit": "s", "avg": 0.25}})
    assert test.ttft_ms == 250.0
    with pytest.raises(ScenarioError, match=r"time_to_first_token\.unit: 'furlong' is none of"):
        read(tmp_path, {**AIPERF, "time_to_first_token": {"unit": "furlong", "avg": 0.25}})
    text = AIPERF_CSV.replace("Time to First Token (ms),250.00", "Time to First Token (s),0.25")
    assert read(tmp_path, text, "in_seconds.csv")[0].ttft_ms == 250.0


def test_aiperf_of_other_versions(tmp_path: Path) -> None:
    """Loads as phases (2026), metrics under `records` (2025), GenAI-Perf's stimulus and its numbers with commas."""
    (phases,) = read(tmp_path, {**AIPERF, "input_config": {"phases": {"profiling": {"concurrency": 40}}}})
    assert phases.concurrency == 40
    records = {key: value for key, value in AIPERF.items() if key != "input_config"}
    assert read(tmp_path, {"input_config": AIPERF["input_config"], "records": records}) == read(tmp_path, AIPERF)
    older = {**records, "request_latency": {"unit": "ms", "avg": 4000.0, "count": 9}}
    del older["request_count"]
    older["input_config"] = {"perf_analyzer": {"stimulus": {"concurrency": 4}}}
    (test,) = read(tmp_path, older)
    assert (test.concurrency, test.requests) == (4, 9)
    (commas,) = read(tmp_path, AIPERF_CSV.replace("4000.00", '"4,000.00"'), "commas.csv")
    assert commas.concurrency == 8


def test_a_run_without_streaming_has_its_throughput(tmp_path: Path) -> None:
    whole = {key: value for key, value in AIPERF.items() if key not in ("time_to_first_token", "inter_token_latency")}
    (test,) = read(tmp_path, whole)
    assert (test.ttft_ms, test.tpot_ms, test.output_throughput) == (None, None, 256.0)
    del whole["output_token_throughput"]
    with pytest.raises(ScenarioError, match="has no TTFT, no TPOT and no output tokens/s"):
        read(tmp_path, whole)


def test_the_csv_of_aisbench_leads_to_its_json(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.json").write_text(json.dumps(AISBENCH), encoding="utf-8")
    assert read(tmp_path, AISBENCH_CSV, "gsm8k.csv")[0].tpot_ms == 28.9


def test_a_file_with_every_request_in_it_is_read(tmp_path: Path) -> None:
    """`--save-detailed` and guidellm keep each request with its text: megabytes."""
    (test,) = read(tmp_path, {**VLLM, "generated_texts": ["x" * 20_000] * 100})
    assert test.requests == 100


def broken(document: Any) -> Iterator[Any]:
    """`document` with one of its values missing or of another kind, for each."""
    values: tuple[Any, ...] = (None, "x", -1, 0, float("nan"), float("inf"), [], {}, True, 10**400)
    for place in list(places(document)):
        for value in values:
            copy = json.loads(json.dumps(document))
            node = copy
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = value
            yield copy


def places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*above, key)
        yield from places(value, (*above, key))


def read_or_refused(folder: Path, content: Any) -> tuple[list[LoadTest], tuple[str, ...]]:
    try:
        return read(folder, content), ()
    except ScenarioError as error:
        return [], tuple(error.messages)


@pytest.mark.parametrize("document", [VLLM, {"benchmarks": [guidellm(1.0, 44.5)]}, AIPERF, AISBENCH])
def test_whatever_a_value_is_there_is_a_load_test_or_one_line(tmp_path: Path, document: Any) -> None:
    (tmp_path / "bench.csv").write_text(AISBENCH_CSV, encoding="utf-8")
    for content in broken(document):
        tests, messages = read_or_refused(tmp_path, content)
        assert bool(tests) != bool(messages)
        assert "\n" not in "".join(messages)
        assert len(messages) <= 1
        for test in tests:
            assert test.requests > 0
            assert min(test.input_tokens, test.output_tokens) >= 1
            assert bool(test.concurrency) >= (test.arrival == "closed")
            assert bool(test.rate) == (test.arrival in ("constant", "poisson"))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "bench.json:1:2: not JSON: Expecting property name"),
        (
            [1],
            "bench.json:1:1: a result of vllm bench serve, guidellm, AIPerf or AISBench is due, and it holds no JSON",
        ),
        ({"a": 1}, "is due; its keys are a"),
        ({**VLLM, "total_output_tokens": 0}, "bench.json:1:252: total_output_tokens: a number above 0 is due, got '0'"),
        ({**VLLM, "completed": None}, "bench.json:1:195: completed: a number above 0 is due, and there is none"),
        (
            {"completed": 8, "mean_ttft_ms": 9.0},
            "bench.json:1:1: total_input_tokens: a number above 0 is due, and there",
        ),
        ({**VLLM, "mean_tpot_ms": -1.5}, "mean_tpot_ms: a number above 0 is due, got '-1.5'"),
        ({**VLLM, "request_rate": "fast"}, "request_rate: a number is due, got 'fast'"),
        ({"benchmarks": []}, "bench.json:1:1: holds no load test"),
        ({"benchmarks": [{"metrics": {}}]}, "bench.json:1:29: benchmarks[0].metrics.request_concurrency: a number"),
        (AISBENCH, "bench.json:1:1: AISBench writes TTFT and TPOT to bench.csv next to it; it has none"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, content: Any, line: str) -> None:
    with pytest.raises(ScenarioError) as error:
        read(tmp_path, content)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_an_error_stands_where_the_value_does(tmp_path: Path) -> None:
    """In a file with lines, of the second of two documents, and in a row of a CSV."""
    spread = json.dumps({"benchmarks": [guidellm(1.0, 44.5), guidellm(2.0, -1.0)]}, indent=2)
    line = next(n for n, text in enumerate(spread.splitlines(), 1) if '"mean": -1.0' in text)
    with pytest.raises(ScenarioError, match=rf"json:{line}:\d+: benchmarks\[1\]\.metrics\.inter_token_latency_ms"):
        read(tmp_path, spread)
    with pytest.raises(ScenarioError, match=r"bench\.json:3:1: a result of .* is due; its keys are completed"):
        read(tmp_path, "\n".join([json.dumps(VLLM), "", json.dumps({"completed": 3})]))
    text = AIPERF_CSV.replace("Time to First Token (ms),250.00", "Time to First Token (furlong),250.00")
    with pytest.raises(ScenarioError, match=r"bench\.csv:3:1: time_to_first_token\.unit"):
        read(tmp_path, text, "bench.csv")


def test_the_model_of_a_load_test(tmp_path: Path) -> None:
    assert read(tmp_path, VLLM)[0].model == "Qwen3-8B"
    named = guidellm(1.0, 44.5)
    named["config"]["backend"] = {"target": "http://localhost:8000", "model": "/models/Qwen3-14B"}
    assert read(tmp_path, {"benchmarks": [named]})[0].model == "/models/Qwen3-14B"
    endpoint = {"loadgen": {"concurrency": 8}, "endpoint": {"model_names": ["Qwen3-32B"]}}
    assert read(tmp_path, {**AIPERF, "input_config": endpoint})[0].model == "Qwen3-32B"


def test_a_csv_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"bench.csv:1:1: .* a CSV is AIPerf's"):
        read(tmp_path, "a,b\n1,2\n", "bench.csv")


@pytest.mark.parametrize(
    ("content", "name", "known"),
    [
        (VLLM, "bench.json", True),
        (AIPERF, "bench.json", True),
        ({"schema_version": "1.5", "aiperf_version": "0.14.0", **AIPERF}, "bench.json", True),
        (AISBENCH_CSV, "bench.csv", True),
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completed": 0.001}, "completed: a number of at least 1 is due, got '0.001'"),
        ({"max_concurrency": 0.001}, "0 requests in flight: more than 0 and at most 1,000,000 are due"),
        ({"max_concurrency": 1e200}, "1e+200 requests in flight: more than 0 and at most 1,000,000 are due"),
        ({"mean_tpot_ms": 1e200}, "1e+200 ms of TPOT: more than 0 and at most 1,000,000,000 are due"),
        ({"total_input_tokens": 1e200}, "input tokens a request: more than 0 and at most 100,000,000 are due"),
    ],
)
def test_what_no_load_test_reports_is_refused(tmp_path: Path, change: dict[str, float], said: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(said)):
        read(tmp_path, {**VLLM, **change})
