"""A device's run in the words of the prediction, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenarios.exchange.bench_result import bench_result
from scenarios.exchange.load_tests import read_load_tests
from scenarios.exchange.served import ServedRequest, ServedRun, ServedStep
from scenarios.traffic_settings import Slo
from sim.serving.measured import measured_block, measured_outcome, serving_errors
from tests.scenarios.making import scenario

MS = 1_000_000
ABOUT = {
    "backend": "cpu", "device": "a CPU", "torch": "2", "clock": "wall", "scaled_by": 1.0, "on_cpu_share": 1.0,
    "kv_cache_bytes": 1024,
}  # fmt: skip
#: Request 0 comes at 0 ms and is prefilled in 10; request 1 comes at 12 and rides with its second token.
RUN = ServedRun(
    about=ABOUT,
    requests=(
        ServedRequest(0, 0, 0, (10 * MS, 30 * MS, 36 * MS, 41 * MS), 100, (7, 8, 9, 7)),
        ServedRequest(1, 12 * MS, 12 * MS, (30 * MS, 36 * MS), 50, (5, 5)),
    ),
    steps=(
        ServedStep(0, 10 * MS, 9 * MS, 0, 1, 100, ""),
        ServedStep(12 * MS, 30 * MS, 16 * MS, 1, 1, 50, ""),
        ServedStep(30 * MS, 36 * MS, 5 * MS, 2, 0, 0, ""),
        ServedStep(36 * MS, 41 * MS, 4 * MS, 1, 0, 0, ""),
    ),
    rejected=1,
    preemptions=0,
    usage_peak=0.5,
    hit_tokens=30,
    asked_tokens=150,
)


def test_latencies_and_rates_are_those_of_the_definitions() -> None:
    block = measured_block(RUN, Slo(ttft_ms=15))
    assert (block["requests"], block["completed"], block["rejected"], block["steps"]) == (3, 2, 1, 4)
    assert block["duration_s"] == pytest.approx(0.041)
    assert block["output_throughput"] == pytest.approx(6 / 0.041)
    assert block["total_token_throughput"] == pytest.approx(156 / 0.041)
    assert block["request_goodput"] == pytest.approx(1 / 0.041)  # one has a TTFT of 18 ms
    assert block["ttft_ms"]["mean"] == pytest.approx((10 + 18) / 2)
    assert block["tpot_ms"]["mean"] == pytest.approx((31 / 3 + 6) / 2)
    assert block["itl_ms"]["mean"] == pytest.approx((20 + 6 + 5 + 6) / 4)
    assert block["e2el_ms"]["p50"] == pytest.approx((41 + 24) / 2)
    assert block["kv"] == {"usage_peak": 0.5, "hit_rate": 0.2, "pool_hit_rate": 0.0}
    assert block["engine"]["host_us"] == pytest.approx((1 + 2 + 1 + 1) / 4 * 1000)


def test_a_prefill_adds_what_its_step_takes_over_one_without() -> None:
    steps = measured_outcome(RUN).steps
    assert (steps.alone_ns / MS).tolist() == [0, 4, 5, 4]  # one request decodes in 4 ms, two in 5
    gap = measured_block(RUN, None)["gap"]
    assert gap["device_ms"] == pytest.approx((4 + 2 * 5 + 4) / 4)
    assert gap["prefill_ms"] == pytest.approx(12 / 4)
    assert gap["engine_ms"] == pytest.approx((2 + 2 * 1 + 1) / 4)


def test_errors_have_a_sign_and_none_where_nothing_was_measured() -> None:
    block = measured_block(RUN, None)
    errors = serving_errors(block | {"output_throughput": 0.9 * block["output_throughput"]}, block)
    assert errors["output_throughput"] == pytest.approx(-0.1)
    assert errors["ttft_ms"] == {"mean": 0, "p50": 0, "p90": 0, "p99": 0}
    assert errors["queue_ms"]["p50"] is None


def test_the_bench_file_reads_back_as_the_load_test_that_it_was(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    asked = scenario(workload__traffic={"arrival": "poisson", "rate": 80.0})
    file.write_text(json.dumps(bench_result(RUN, asked)))
    (test,) = read_load_tests(file)
    assert (test.tool, test.arrival, test.rate, test.requests) == ("vllm bench", "poisson", 80.0, 2)
    assert (test.input_tokens, test.output_tokens) == (75, 3)
    block = measured_block(RUN, None)
    assert test.ttft_ms == pytest.approx(block["ttft_ms"]["mean"])
    assert test.tpot_ms == pytest.approx(block["tpot_ms"]["mean"])
    assert test.output_throughput == pytest.approx(block["output_throughput"])
    closed = scenario(workload__traffic={"arrival": "closed", "concurrency": 2})
    file.write_text(json.dumps(bench_result(RUN, closed)))
    (test,) = read_load_tests(file)
    assert (test.arrival, test.concurrency) == ("closed", 2)
    trace = {"arrival": "trace", "trace": {"file": "azure.csv", "form": "azure"}}
    assert bench_result(RUN, scenario(workload__traffic=trace))["request_rate"] == pytest.approx(1 / 0.012)
