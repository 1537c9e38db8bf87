"""TPOT in a serving engine: the longer of host and step where one hides the other, else their sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import Loaded, load_scenario, load_text
from sim.engines.profile import load_engine
from sim.predict.in_engine import InEngine, in_engine
from sim.predict.predict import Metric
from sim.predict.scenario_result import first_result

STEP = Metric(7.0, 6.0, 10.0)
CASE = Path(__file__).resolve().parents[4] / "shared" / "cases" / "tp4_15k_910b.yaml"


def tpot(profile: str, step: Metric = STEP, requests: int = 1, **more: bool) -> Metric:
    return in_engine(load_engine(profile), step, requests, ranks=4, **more).tpot_ms


def test_an_engine_that_hides_its_host_takes_the_longer_of_both() -> None:
    host = in_engine(load_engine("vllm_ascend_0_18"), STEP, 1, ranks=4).host_ms.value
    assert host == pytest.approx(10.04)  # 10 ms a step and 40 us a request
    assert tpot("vllm_ascend_0_18").value == pytest.approx(host)
    assert tpot("vllm_ascend_0_18", Metric(30.0, 30.0, 30.0)).value == 30.0


def test_an_engine_that_does_not_adds_it() -> None:
    host = in_engine(load_engine("vllm_ascend_0_11"), STEP, 1, ranks=4).host_ms.value
    assert host == pytest.approx(4.005)
    assert tpot("vllm_ascend_0_11").value == pytest.approx(7.0 + host)
    assert tpot("vllm_ascend_0_18", asynchronous=False).value == pytest.approx(17.04)


def test_a_step_that_yields_several_tokens_shares_the_host_among_them() -> None:
    engine = load_engine("vllm_ascend_0_11")
    one = in_engine(engine, Metric(8.0, 8.0, 8.0), 1, ranks=4)
    two = in_engine(engine, Metric(4.0, 4.0, 4.0), 1, ranks=4, tokens=(2.0, 2.0, 2.0))
    assert two.tpot_ms.value == pytest.approx(one.tpot_ms.value / 2)
    assert two.host_ms == one.host_ms


def test_requests_cost_their_host() -> None:
    one, many = (tpot("vllm_ascend_0_11", requests=n).value for n in (1, 101))
    assert many - one == pytest.approx(100 * 0.005)


@pytest.mark.parametrize(
    "profile", ["unknown", "healthy", "starved", "vllm_ascend_0_11", "vllm_ascend_0_18", "mindie_2_2"]
)
def test_the_interval_holds_the_value(profile: str) -> None:
    metric = tpot(profile)
    assert 0 < metric.low <= metric.value <= metric.high


#: Reported for one request of 15 K tokens on four cards, vLLM-Ascend 0.11, graphs for decode, chip unstated, ms
#: (vllm-ascend issue 4656); another report speaks of 12.
REPORTED = {"Qwen3-4B": 20.0, "Qwen3-30B-A3B": 20.0, "Qwen3-32B": 38.0}


@pytest.mark.skipif(not CASE.exists(), reason="no folder ../shared beside the project")
@pytest.mark.parametrize(("model", "reported_ms"), REPORTED.items())
def test_small_models_on_four_cards_are_paced_by_the_host(model: str, reported_ms: float) -> None:
    """The steps alone say half or less of what clients saw, and their intervals do not hold it; in the engine's they
    lie, and the small models' steps are no more than two thirds of the time."""
    folder = CASE.parents[1] / "models" / model
    loaded = load_scenario(CASE, [f"model={folder}", "engine.profile=vllm_ascend_0_11"])
    served, step = _served(loaded)
    assert served.tpot_ms.low < reported_ms < served.tpot_ms.high
    assert step.high < reported_ms
    assert served.tpot_ms.value == pytest.approx(step.value + served.host_ms.value)
    unknown, _ = _served(load_scenario(CASE, [f"model={folder}"]))
    assert unknown.tpot_ms.low < 12 < reported_ms < unknown.tpot_ms.high or model == "Qwen3-32B"


def _served(loaded: Loaded) -> tuple[InEngine, Metric]:
    result = first_result(loaded).result
    block = result["in_engine"]
    metrics = (Metric(**block[key]) for key in ("tpot_ms", "host_ms"))
    return InEngine(block["profile"], block["source"], *metrics), Metric(**result["metrics"]["tpot_ms"])


def test_eight_cards_and_qwen3_8b_in_the_engine_of_their_day() -> None:
    """9.9 and 10.27 ms are measured (pull request 7829); the engine's host is fitted to them, the step is not."""
    text = """
model: Qwen3-8B
hardware: atlas_a2_910b3
workload: {phase: decode, batch: 1, input_tokens: 64, output_tokens: 128}
engine: {tensor_parallel_size: 8, profile: vllm_ascend_0_18}
optimizations: {graph: aclgraph}
"""
    served, step = _served(load_text(text, "tp8.yaml"))
    assert served.tpot_ms.value == pytest.approx(10.1, abs=0.3)
    assert step.value < 9.9


def test_no_engine_is_told_off_an_npu() -> None:
    assert first_result(load_scenario("tiny_llama_cpu", [])).result["in_engine"] is None
    with pytest.raises(ScenarioError, match=r"engine\.profile: has no effect without workload\.traffic"):
        first_result(load_scenario("tiny_llama_cpu", ["engine.profile=healthy"]))


def test_a_host_runs_the_workers_of_its_own_server_only() -> None:
    """Stages of 8 ranks, two of them or sixteen: 16 workers fill a server, and the rest have servers of their own."""
    two, sixteen = (
        _served(load_scenario("deepseek_v3_ep16_decode", [f"engine.pipeline_parallel_size={stages}"]))[0]
        for stages in (2, 16)
    )
    assert sixteen.host_ms == two.host_ms
