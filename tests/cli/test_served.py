"""`whatif run --backend cpu` of a scenario with traffic: requests are served for real, next to their prediction."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("torch")]

NAME = "serve_tiny_cpu"
#: Few and short, so that all of it takes a second.
SMALL = (
    "--set", "workload.traffic.trace.speed=0.5", "--set", "workload.traffic.requests=8", "--set", "workload.batch=1",
    "--set", "workload.traffic.warmup_requests=1", "--set", "workload.traffic.output.high=6",
)  # fmt: skip
DRAFTS = "{method: ngram, num_speculative_tokens: 2}"
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "queue_ms")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def served(folder: Path, whatif: Callable[..., Any]) -> dict[str, Any]:
    """One served run: its document, and what the terminal showed."""
    files = [option for name in ("json", "trace", "bench") for option in (f"--{name}", folder / f"{name}.json")]
    done = whatif("run", NAME, "--backend", "cpu", "--clock", "steady", *files, *SMALL)
    assert (done.status, done.err) == (0, "")
    return {"result": json.loads((folder / "json.json").read_text()), "out": done.out}


@pytest.mark.slow
def test_what_was_served_has_the_keys_of_what_was_predicted(served: dict[str, Any]) -> None:
    predicted, measured = served["result"]["serving"], served["result"]["measured"]["serving"]
    assert set(predicted) - set(measured) == {"captures", "highest_rate"}
    assert all(set(predicted[name]) == set(measured[name]) for name in (*LATENCIES, "kv", "gap"))
    assert predicted["completed"] == measured["completed"] == 8
    for name in LATENCIES:
        assert measured[name]["low"] <= measured[name]["mean"] <= measured[name]["high"]
        assert 0 <= measured[name]["p50"] <= measured[name]["p90"] <= measured[name]["p99"]
    assert measured["engine"]["host_us"] > 0
    assert measured["clock"] == "steady"
    assert measured["scaled_by"] > 0


@pytest.mark.slow
def test_errors_are_of_the_prediction_over_the_measurement(served: dict[str, Any]) -> None:
    result = served["result"]
    predicted, measured, errors = (
        result["serving"], result["measured"]["serving"], result["measured"]["serving_errors"],
    )  # fmt: skip
    for name in ("output_throughput", "request_throughput"):
        assert errors[name] == pytest.approx(predicted[name] / measured[name] - 1)
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"):
        assert errors[name]["p99"] == pytest.approx(predicted[name]["p99"] / measured[name]["p99"] - 1)
    assert result["measured"]["ops"]  # the reported step was measured too: what explains a difference


@pytest.mark.slow
def test_the_terminal_shows_both(served: dict[str, Any]) -> None:
    for words in (
        "Serving, measured",
        "without other programs and waiting",
        "8 requests completed",
        "Requests, predicted and measured",
    ):
        assert words in served["out"]


@pytest.mark.slow
def test_the_trace_has_the_requests_of_both(served: dict[str, Any], folder: Path) -> None:
    events = json.loads((folder / "trace.json").read_text())
    names = {event["args"]["name"]: event["pid"] for event in events if event["ph"] == "M"}
    assert len(names) == len(set(names.values())) == 4
    for side in ("SIMULATED", "MEASURED"):
        pid = names[f"{side} requests: serve_tiny_cpu"]
        shown = {event["args"]["request"] for event in events if event["pid"] == pid and event["ph"] == "X"}
        assert shown == set(range(8))


@pytest.mark.slow
def test_the_bench_file_calibrates_the_engine(served: dict[str, Any], folder: Path, whatif: Callable[..., Any]) -> None:
    engine = folder / "engine.yaml"
    done = whatif("calibrate", "--bench", folder / "bench.json", "--scenario", NAME, "--out", engine)
    assert (done.status, done.err) == (0, "")
    assert "Calibrated engine engine, from plain" in done.out
    assert "Tiny-Llama" in done.out
    again = whatif("run", NAME, *SMALL, "--set", f"engine.profile={engine}", "--json", folder / "again.json")
    assert again.status == 0
    calibrated = json.loads((folder / "again.json").read_text())["serving"]
    assert calibrated["engine"]["profile"] == "engine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--clock", "stedy", "--backend", "cpu"), "--clock: 'stedy' is none of wall, steady. Did you mean 'steady'?"),
        (("--clock", "steady"), "--clock: sim serves nothing for real; take --backend cpu"),
        (("--bench", "b.json"), "--bench: sim serves nothing for real; take --backend cpu"),
        (
            ("--backend", "cpu", "--set", "engine.tensor_parallel_size=2"),
            "engine.tensor_parallel_size: requests are served by one rank on --backend cpu, got 2; set it to 1",
        ),
        (
            ("--backend", "cpu", "--set", "engine.disaggregated_prefill={instances: 1}"),
            "engine.disaggregated_prefill: is predicted, but not served on --backend cpu; remove it",
        ),
        (
            ("--backend", "cpu", "--set", f"engine.speculative_config={DRAFTS}"),
            "engine.speculative_config: drafts are not measured yet; set it to null",
        ),
    ],
)
def test_what_is_not_served_is_refused_in_one_line(
    whatif: Callable[..., Any], arguments: tuple[str, ...], message: str
) -> None:
    done = whatif("run", NAME, *SMALL, *arguments)
    assert (done.status, done.out) == (2, "")
    (line,) = done.problems
    assert line.endswith(message)


def test_a_bench_file_wants_traffic(whatif: Callable[..., Any], tmp_path: Path) -> None:
    done = whatif("run", "tiny_llama_cpu", "--backend", "cpu", "--bench", tmp_path / "b.json")
    assert (done.status, done.problems) == (2, ["--bench: the scenario serves no requests; it needs workload.traffic"])
    assert not list(tmp_path.iterdir())
