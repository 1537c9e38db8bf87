"""`whatif calibrate --bench`: a load test in, an engine profile out that scenarios can name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.exchange.load_tests import read_load_tests
from sim.engines.profile import load_engine
from sim.fitting import bench_file

SCENARIO = """
model: Qwen3-0.6B
hardware: 910b2
workload: {input_tokens: 128, output_tokens: 64, traffic: {arrival: closed, concurrency: 4, requests: 8}}
engine: {max_num_seqs: 16, max_model_len: 1024}
optimizations: {graph: aclgraph}
"""
BENCH = {
    "model_id": "Qwen3-0.6B", "request_rate": "inf", "max_concurrency": 4, "duration": 60.0, "completed": 80,
    "total_input_tokens": 20480, "total_output_tokens": 10240, "output_throughput": 130.0, "mean_ttft_ms": 150.0,
    "mean_tpot_ms": 30.0,
}  # fmt: skip


def put(folder: Path, bench: Any = BENCH) -> tuple[Path, Path, Path]:
    scenario, result = folder / "s.yaml", folder / "bench.json"
    scenario.write_text(SCENARIO, encoding="utf-8")
    result.write_text(json.dumps(bench), encoding="utf-8")
    return scenario, result, folder / "engine.yaml"


@pytest.mark.parametrize("requests", [40, 300, 100_000])
def test_a_load_test_is_fitted_to_at_the_rate_that_it_had(tmp_path: Path, requests: int) -> None:
    bench = {
        **BENCH,
        "request_rate": 4.0,
        "max_concurrency": None,
        "completed": requests,
        "total_output_tokens": 64 * requests,
    }
    _, path, _ = put(tmp_path, bench)
    load = bench_file._requests(read_load_tests(path)[0])
    first, last = load.requests[0].arrival_ns, load.requests[-1].arrival_ns
    assert (len(load.requests) - 1) / (last - first) * 1e9 == pytest.approx(4.0, rel=0.05)


@pytest.mark.slow
def test_a_load_test_gives_an_engine_that_a_scenario_takes(whatif: Callable[..., Any], tmp_path: Path) -> None:
    scenario, bench, out = put(tmp_path)
    done = whatif("calibrate", "--bench", bench, "--scenario", scenario, "--out", out)
    assert (done.status, done.err) == (0, "")
    assert "Calibrated engine engine, from unknown" in done.out
    assert f"--set engine.profile={out}" in done.out
    engine = load_engine(str(out))
    assert 20e6 < engine.costs().per_step_ns < 31e6  # 30 ms of a step that takes the device 6
    assert engine.profile.step.launch_us.source == "fitted"
    before = out.read_bytes()
    whatif("calibrate", "--bench", bench, "--scenario", scenario, "--out", out)
    assert out.read_bytes() == before
    run = whatif("run", scenario, "--set", f"engine.profile={out}")
    assert (run.status, run.err) == (0, "")


def test_the_errors_shown_are_of_the_requests_that_the_fit_has_served(tmp_path: Path) -> None:
    """Not of its closed form, in which the fit below looks a tenth short of the load test that it meets."""
    bench = {
        **BENCH, "model_id": "Tiny-Llama", "request_rate": 3.4, "max_concurrency": None, "completed": 60,
        "duration": 18.0, "total_input_tokens": 60 * 85, "total_output_tokens": 60 * 29, "output_throughput": 97.0,
        "mean_ttft_ms": 60.0, "mean_tpot_ms": 13.0,
    }  # fmt: skip
    _, path, out = put(tmp_path, bench)
    (shown,) = bench_file.calibrate_engine(path, "serve_tiny_cpu", (), out).compared
    assert shown.after.tpot_ms == pytest.approx(13.0, rel=0.03)
    assert shown.before.tpot_ms < 0.8 * 13.0
    prior, (case,) = bench_file._benches("serve_tiny_cpu", (), read_load_tests(path))
    assert prior.name == "plain"
    assert case.expect(load_engine(str(out)).costs()).tpot_ms < 0.92 * 13.0


def test_a_wrong_file_or_half_a_question_is_one_line(whatif: Callable[..., Any], tmp_path: Path) -> None:
    scenario, bench, out = put(tmp_path, {"a": 1})
    done = whatif("calibrate", "--bench", bench, "--scenario", scenario, "--out", out)
    assert done.status == 2
    assert len(done.err.splitlines()) == 1
    assert "its keys are a" in done.err
    assert not out.exists()
    for arguments in (["--bench", bench], ["--scenario", scenario], []):
        done = whatif("calibrate", *arguments, "--out", out)
        assert done.status == 2
        assert len(done.err.splitlines()) == 1


def test_a_load_test_of_another_model_is_refused(whatif: Callable[..., Any], tmp_path: Path) -> None:
    """Where it is one that we know: a name that an engine gave its model is taken."""
    scenario, bench, out = put(tmp_path, {**BENCH, "model_id": "/data/models/qwen3-32b"})
    done = whatif("calibrate", "--bench", bench, "--scenario", scenario, "--out", out)
    assert done.status == 2
    assert done.err.strip() == f"{bench}:1:14: is a load test of Qwen3-32B, and the scenario deploys Qwen3-0.6B"


def test_tests_past_saturation_tell_nothing_of_the_engine(whatif: Callable[..., Any], tmp_path: Path) -> None:
    scenario, bench, out = put(tmp_path, {**BENCH, "request_rate": 20.0, "max_concurrency": None})
    done = whatif("calibrate", "--bench", bench, "--scenario", scenario, "--out", out)
    assert done.status == 2
    assert "past saturation" in done.err


def test_validate_serving_as_a_user_meets_it(whatif: Callable[..., Any], tmp_path: Path) -> None:
    rows = tmp_path / "served.csv"
    rows.write_text(
        "id,deployment,engine,hardware,model,settings,input_tokens,output_tokens,arrival,concurrency,tpot_ms\n"
        "a,mine,vllm-ascend 0.18,910b2,Qwen3-0.6B,optimizations.graph=aclgraph,128,1024,closed,4,30\n"
        "b,mine,vllm-ascend 0.18,910b2,Qwen3-0.6B,optimizations.graph=aclgraph,128,1024,closed,8,31\n"
        "c,mine,vllm-ascend 0.18,910b2,GPT-9,,128,64,closed,8,31\n",
        encoding="utf-8",
    )
    out = tmp_path / "v.json"
    done = whatif("validate", "--serving", rows, "--calibrated", "--json", out)
    assert (done.status, done.err) == (0, "")
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["serving"]["tpot"]["rows"] == 2
    assert result["serving_calibrated"]["tpot"]["rows"] == 1
    assert result["serving_calibrated"]["tpot"]["median"] < 0.05
    assert result["serving"]["unpriced"][0]["id"] == "c"
    assert whatif("validate", "--calibrated").status == 2
