"""A scenario with traffic, from file to result: the contract's keys, equal memory, what each knob moves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.serving.deployment import cache_of
from scenarios.serving.traffic import load_of
from sim.engines.costs import EngineCosts
from sim.predict.scenario_result import case_of
from sim.report.files import to_json
from sim.report.outputs.run import run_outputs
from sim.serving.rate import requests_at
from sim.serving.result import serve_scenario, serving_block
from sim.serving.simulate import serving_capacity, simulate
from sim.serving.trace import request_trace

NAME = "serve_qwen3_14b_910b3"
QUICK = ("workload.traffic.requests=40", "workload.traffic.warmup_requests=0", "slo=null")
#: A burst of long requests: what fits is what runs.
CROWD = (
    *QUICK, "workload.traffic.arrival=burst", "workload.traffic.rate=null", "workload.traffic.requests=400",
    "workload.input_tokens=900", "workload.output_tokens=600", "engine.max_num_seqs=1000", "engine.max_model_len=3000",
    "engine.gpu_memory_utilization=0.75", "workload.batch=1",
)  # fmt: skip


def block(*sets: str) -> dict[str, Any]:
    loaded = load_scenario(NAME, sets)
    return serving_block(serve_scenario(loaded, case_of(loaded)))


def test_the_block_has_the_keys_of_the_contract() -> None:
    serving = block(*QUICK)
    assert {
        "requests", "completed", "rejected", "preemptions", "duration_s", "request_throughput", "output_throughput",
        "total_token_throughput", "request_goodput", "saturated", "limit", "ttft_ms", "tpot_ms", "itl_ms", "e2el_ms",
        "queue_ms", "kv", "steps", "engine",
    } <= set(serving)  # fmt: skip
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "queue_ms"):
        row = serving[name]
        assert set(row) == {"mean", "p50", "p90", "p99", "low", "high"}
        assert row["low"] <= row["mean"] <= row["high"]
        assert row["p50"] <= row["p90"] <= row["p99"]
    assert {"usage_peak", "hit_rate"} <= set(serving["kv"])
    assert {"per_step_us", "per_request_us", "hidden_us"} <= set(serving["engine"])
    assert serving["output_throughput"] * serving["duration_s"] == pytest.approx(40 * 256)


def test_the_same_scenario_gives_the_same_bytes() -> None:
    assert to_json(block(*QUICK)) == to_json(block(*QUICK))
    assert block(*QUICK) != block(*QUICK, "protocol.seed=1")


def test_a_scenario_without_traffic_has_no_such_part_and_no_new_keys() -> None:
    result = run_outputs("qwen3_0_6b_decode", [], None, None).result
    assert "serving" not in result
    assert "slo" not in result["scenario"]
    assert "traffic" not in result["scenario"]["workload"]
    assert not {"cudagraph_mode", "async_scheduling", "profile"} & set(result["scenario"]["engine"])


def running(*sets: str) -> tuple[int, float]:
    """(requests that decode together at most, output tokens/s) of the crowd."""
    loaded = load_scenario(NAME, (*CROWD, *sets))
    case = case_of(loaded)
    outcome = simulate(case, EngineCosts(), load_of(loaded.scenario.workload, 0))
    assert len(outcome.ids) == 400
    duration = (outcome.last_ns.max() - outcome.arrived_ns.min()) / 1e9
    return int(outcome.steps.decoding.max()), float(outcome.output_tokens.sum() / duration)


@pytest.mark.slow
def test_contiguous_paged_and_int8_run_as_many_requests_as_arithmetic_says() -> None:
    contiguous, slow = running("optimizations.kv.layout=contiguous")
    paged, faster = running("optimizations.kv.layout=paged")
    int8, fastest = running("optimizations.kv.layout=paged", "optimizations.kv.dtype=int8")
    tokens = serving_capacity(case_of(load_scenario(NAME, CROWD))).kv_tokens
    assert contiguous == tokens // 3000  # a row is max_model_len long
    # Requests of 900 to 1,500 tokens, in blocks of 128: between what fits at their end and at their start.
    assert 1.9 * contiguous <= tokens // 1536 <= paged <= tokens // 1024 + 1
    assert int8 / paged == pytest.approx(2, rel=0.05)  # half the bytes of a token
    assert slow < faster < fastest


def test_a_row_or_block_takes_what_the_layout_says() -> None:
    case = case_of(load_scenario(NAME, CROWD))
    capacity = serving_capacity(case)
    assert cache_of(case.scenario, capacity.kv_tokens, 3000).free_blocks == capacity.kv_tokens // 128  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="no room"):
        cache_of(case.scenario, 0, 3000)


@pytest.mark.parametrize(
    "sets",
    [
        ("engine.async_scheduling=false",),
        ("engine.profile=starved",),
        ("engine.max_num_seqs=4", "workload.batch=1"),
        ("engine.cudagraph_mode=NONE",),
        ("workload.traffic.rate=9",),
        ("workload.traffic.arrival=gamma", "workload.traffic.burstiness=0.3"),
        ("workload.traffic.concurrency=3",),
        ("workload.traffic.turns=2",),
        ("workload.traffic.input={distribution: uniform, low: 100, high: 900}",),
        ("optimizations.kv.prefix_sharing=true", "workload.traffic.prefix_tokens=400"),
    ],
)
def test_every_knob_moves_the_latency(sets: tuple[str, ...]) -> None:
    assert block(*QUICK, *sets)["e2el_ms"]["mean"] != block(*QUICK)["e2el_ms"]["mean"]


def test_urgent_requests_are_served_first_where_the_policy_says_so() -> None:
    two = (*QUICK, "workload.batch=1", "engine.max_num_seqs=2", "workload.traffic.rate=20")
    sets = (*two, "engine.scheduling_policy=priority", "workload.traffic.urgent_share=0.5")
    assert block(*sets)["ttft_ms"]["p50"] < block(*two)["ttft_ms"]["p50"]


def test_prefixes_are_found() -> None:
    sets = ("optimizations.kv.prefix_sharing=true", "workload.traffic.prefix_tokens=400")
    serving = block(*QUICK, *sets)
    # 39 of 40 requests find three blocks of 128 of their 520 tokens.
    assert serving["kv"]["hit_rate"] == pytest.approx(39 * 384 / (40 * 520))
    assert serving["ttft_ms"]["mean"] < block(*QUICK)["ttft_ms"]["mean"]


def test_the_highest_rate_meets_the_slo_and_a_tenth_more_does_not() -> None:
    slo = ("slo={tpot_ms: 34}", "workload.traffic.requests=150", "workload.traffic.warmup_requests=0")
    highest = block(*slo)["highest_rate"]
    assert highest["rate"] > 0
    assert highest["share"] >= 0.9
    assert highest["missed"] == "tpot_ms"
    rate = 1.1 * highest["rate"]
    above = block(*slo, f"workload.traffic.rate={rate}", f"workload.traffic.requests={requests_at(rate, 150)}")
    assert above["request_goodput"] < 0.9 * above["request_throughput"]


def test_few_requests_do_not_end_a_search_before_a_queue_grows() -> None:
    """Forty requests at 20 a second are gone in two seconds: none of them would wait for long."""
    slo = ("slo={ttft_ms: 400}", "workload.traffic.warmup_requests=0")
    few, many = (block(*slo, f"workload.traffic.requests={n}")["highest_rate"]["rate"] for n in (40, 400))
    assert few == pytest.approx(many, rel=0.1)


def test_requests_longer_than_the_model_length_are_rejected() -> None:
    serving = block(
        *QUICK, "engine.max_model_len=800", "workload.traffic.input={distribution: uniform, low: 300, high: 700}"
    )
    assert 0 < serving["rejected"] < 40
    with pytest.raises(ScenarioError, match="longer than the engine allows"):
        block(*QUICK, "engine.max_model_len=800", "workload.traffic.input={distribution: fixed, tokens: 700}")


def test_replicas_share_the_requests() -> None:
    sets = ("workload.traffic.rate=8",)
    one, two = block(*QUICK, *sets), block(*QUICK, *sets, "engine.data_parallel_size=2")
    assert (one["completed"], two["completed"]) == (40, 40)
    assert two["tpot_ms"]["mean"] < one["tpot_ms"]["mean"]


def test_the_trace_shows_each_request_in_its_parts() -> None:
    loaded = load_scenario(NAME, QUICK)
    served = serve_scenario(loaded, case_of(loaded))
    events = json.loads(request_trace(served.outcome, NAME))
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["name"] for event in slices} == {"queue", "prefill", "decode"}
    assert {event["args"]["request"] for event in slices} == set(range(40))
    decodes = sum(event["dur"] for event in slices if event["name"] == "decode")
    assert decodes == pytest.approx(float((served.outcome.last_ns - served.outcome.first_ns).sum()) / 1000)
    by_lane: dict[int, float] = {}
    for event in sorted(slices, key=lambda e: (e["tid"], e["ts"])):
        assert event["ts"] >= by_lane.get(event["tid"], 0.0) - 1e-3
        by_lane[event["tid"]] = event["ts"] + event["dur"]


@pytest.mark.parametrize(
    ("profile", "reserves"),
    [("vllm_ascend_0_18", False), ("vllm_ascend_0_19", True), ("vllm_ascend_0_23", True), ("unknown", None)],
)
def test_the_engine_says_what_a_request_is_let_in_for(profile: str, reserves: bool | None) -> None:
    key = "engine.scheduler_reserve_full_isl"
    sets = (*QUICK, f"engine.profile={profile}")
    assert case_of(load_scenario(NAME, sets)).scenario.engine.scheduler_reserve_full_isl is reserves
    assert case_of(load_scenario(NAME, (*sets, f"{key}=true"))).scenario.engine.scheduler_reserve_full_isl is True
    steps = case_of(load_scenario("qwen3_0_6b_decode", (f"engine.profile={profile}",)))
    assert steps.scenario.engine.scheduler_reserve_full_isl is None  # no traffic, no one is let in


@pytest.mark.parametrize(("profile", "model", "first"), [
    ("mindie_2_2", "qwen3-14b", True), ("vllm_ascend_0_10", "qwen3-14b", True),
    ("vllm_ascend_0_10", "deepseek-v2-lite", False), ("vllm_ascend_0_11", "qwen3-14b", None),
])  # fmt: skip
def test_the_engine_says_whether_prompts_go_first(profile: str, model: str, first: bool | None) -> None:
    """vLLM-Ascend 0.9.1 made it so for models without latent attention alone."""
    sets = (*QUICK, f"engine.profile={profile}", f"model={model}")
    assert case_of(load_scenario(NAME, sets)).scenario.engine.prefill_first is first
    assert case_of(load_scenario(NAME, (*sets, "engine.prefill_first=false"))).scenario.engine.prefill_first is False
