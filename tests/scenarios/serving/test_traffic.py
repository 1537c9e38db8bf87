"""Traffic to requests: when they are sent, how long they are, what they have in common."""

from __future__ import annotations

import numpy as np
import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import load_text
from scenarios.profile.read.files import LIMITS
from scenarios.serving.requests import Load
from scenarios.serving.traffic import load_of
from scenarios.settings import Workload

TEXT = """
model: Qwen3-0.6B
workload:
  input_tokens: 100
  output_tokens: 20
  traffic: {%s}
engine: {max_model_len: 4096}
optimizations: {kv: {prefix_sharing: %s}}
"""


def load(traffic: str, seed: int = 0) -> Load:
    sharing = "true" if "prefix" in traffic or "turns" in traffic or "mooncake" in traffic else "false"
    return load_of(load_text(TEXT % (traffic, sharing), "test.yaml").scenario.workload, seed)


def gaps_s(of: Load) -> np.ndarray:
    return np.diff([request.arrival_ns for request in of.requests]) / 1e9


def test_constant_arrivals_lie_equally_far_apart() -> None:
    requests = load("arrival: constant, rate: 4, requests: 3").requests
    assert [(r.arrival_ns, r.input_tokens, r.output_tokens) for r in requests] == [
        (0, 100, 20),
        (250_000_000, 100, 20),
        (500_000_000, 100, 20),
    ]


def test_a_duration_ends_what_is_sent() -> None:
    assert len(load("arrival: constant, rate: 4, duration_s: 2.5").requests) == 10
    assert all(r.arrival_ns < 2.5e9 for r in load("arrival: poisson, rate: 400, duration_s: 2.5").requests)


def test_gaps_of_gamma_arrivals_vary_as_their_shape_says() -> None:
    for traffic, variation in (("poisson", 1.0), ("gamma, burstiness: 4", 0.5), ("gamma, burstiness: 0.25", 2.0)):
        gaps = gaps_s(load(f"arrival: {traffic}, rate: 10, requests: 50000"))
        assert gaps.mean() == pytest.approx(0.1, rel=0.03)
        assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03)


@pytest.mark.parametrize(("arrival", "shape"), [("poisson", 1.0), ("gamma, burstiness: 0.5", 0.5)])
def test_so_many_requests_take_so_long_whatever_the_seed(arrival: str, shape: float) -> None:
    # `vllm bench serve`: each request is sent a gap after the one before, the first one too; then all are stretched.
    for seed in (0, 1, 2):
        gaps = np.random.default_rng([seed, 0]).gamma(shape, 1 / (2.0 * shape), 300)
        sent = np.cumsum(gaps)
        sent *= 300 / 2.0 / sent[-1]
        requests = load(f"arrival: {arrival}, rate: 2, requests: 300", seed=seed).requests
        assert [r.arrival_ns for r in requests] == pytest.approx((1e9 * (sent - sent[0])).tolist(), abs=1)


def test_with_a_duration_the_number_is_drawn() -> None:
    numbers = {len(load("arrival: poisson, rate: 2, duration_s: 150", seed=seed).requests) for seed in range(9)}
    assert len(numbers) > 3
    assert 240 < min(numbers) <= max(numbers) < 360


def test_closed_and_burst_send_at_once_what_they_may() -> None:
    closed = load("arrival: closed, concurrency: 8, requests: 20")
    assert (closed.concurrency, {r.arrival_ns for r in closed.requests}) == (8, {0})
    assert load("arrival: burst, requests: 20").concurrency is None


def test_lengths_are_drawn_within_their_limits() -> None:
    drawn = load(
        "arrival: burst, requests: 20000, input: {distribution: lognormal, tokens: 1000, sigma: 0.5, high: 3000}, "
        "output: {distribution: uniform, low: 10, high: 30}"
    ).requests
    inputs, outputs = (np.array([getattr(r, name) for r in drawn]) for name in ("input_tokens", "output_tokens"))
    assert np.median(inputs) == pytest.approx(1000, rel=0.02)
    assert inputs.max() == 3000
    assert (outputs.min(), outputs.max()) == (10, 30)
    assert outputs.mean() == pytest.approx(20, rel=0.01)


def test_a_turn_repeats_the_conversation_and_follows_it() -> None:
    turns = load("arrival: burst, requests: 2, turns: 3, think_time_s: 1.5").requests
    assert [(r.id, r.content, r.input_tokens, r.after, r.think_ns) for r in turns[:4]] == [
        (0, 0, 100, -1, 0),
        (1, 0, 220, 0, 1_500_000_000),
        (2, 0, 340, 1, 1_500_000_000),
        (3, 1, 100, -1, 0),
    ]


def test_groups_share_a_prefix() -> None:
    requests = load("arrival: burst, requests: 200, prefix_tokens: 64, prefix_groups: 3").requests
    assert {r.segments for r in requests} == {((group, 64),) for group in range(3)}


def test_a_seed_draws_the_same_requests_and_another_draws_others() -> None:
    traffic = "arrival: poisson, rate: 3, requests: 50, input: {distribution: uniform, low: 1, high: 900}"
    assert load(traffic, 1) == load(traffic, 1) != load(traffic, 2)


@pytest.mark.parametrize(
    ("name", "form", "number"),
    [("azure.csv", "azure", 60), ("mooncake.jsonl", "mooncake", 40), ("burstgpt.csv", "burstgpt", 47)],
)
def test_a_sample_of_each_form_has_times_and_lengths(name: str, form: str, number: int) -> None:
    of = load(f"arrival: trace, trace: {{file: {name}, form: {form}}}")
    assert len(of.requests) == number
    assert of.requests[0].arrival_ns == 0
    assert (gaps_s(of) >= 0).all()
    assert gaps_s(of).sum() > 5
    assert len({r.input_tokens for r in of.requests}) > 10
    twice = load(f"arrival: trace, trace: {{file: {name}, form: {form}, speed: 2}}")
    assert [r.arrival_ns for r in twice.requests] == [pytest.approx(r.arrival_ns / 2, abs=1) for r in of.requests]


def test_sharegpt_has_lengths_for_arrivals_of_ones_own() -> None:
    requests = load("arrival: poisson, rate: 1, requests: 30, trace: {file: sharegpt.json, form: sharegpt}").requests
    assert len(requests) == 30
    assert requests[0].input_tokens == requests[20].input_tokens  # 20 conversations, repeated
    assert len({r.output_tokens for r in requests}) > 10


def test_mooncake_hashes_name_blocks_of_512_tokens() -> None:
    requests = load("arrival: trace, trace: {file: mooncake.jsonl, form: mooncake}").requests
    names = [request.block_names(512, request.input_tokens) for request in requests]
    assert names[0][0] == (requests[0].segments[0][0], 0)
    firsts = [name[0] for name in names]
    assert len(set(firsts)) < len(firsts)


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        ("a,b\n1,2\n", "azure", "t.csv:1:1: no column 'TIMESTAMP'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,1,2\n", "azure", "t.csv:2:1: 'soon' is no date and time"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,x,2\n",
            "azure",
            "t.csv:2:29: 'x' is no",
        ),
        ('Model,Timestamp,Request tokens,Response tokens\n"a,b",1,2,-3\n', "burstgpt", "t.csv:2:11: '-3' is no"),
        pytest.param("x" * (LIMITS.cell_chars + 1) + "\n1\n", "azure", "t.csv:1:1: is not CSV", id="huge cell"),
        ('{"timestamp": 1, "input_length": 3}\n', "mooncake", "t.csv:1:1: no output_length"),
        ('{"timestamp": 1, "input_length": 0, "output_length": 2}\n', "mooncake", "t.csv:1:34: '0' is no number"),
        ("{\n", "mooncake", "t.csv:1:2: no JSON"),
        ("{}", "sharegpt", "t.csv:1:1: must be a JSON list"),
        pytest.param("[" * 100_000, "sharegpt", "t.csv:1:1: no JSON: nested too deep", id="nested"),
        ('[\n{"id": 1}]', "sharegpt", "t.csv:2:1: conversation 1 has no list of conversations"),
        ("Timestamp,Request tokens,Response tokens\n", "burstgpt", "no request in it"),
    ],
)
def test_a_wrong_trace_is_reported_with_its_line(tmp_path, text: str, form: str, message: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "t.csv").write_text(text)
    trace = {"arrival": "poisson", "rate": 1.0, "trace": {"file": "t.csv", "form": form}}
    with pytest.raises(ScenarioError) as error:
        load_of(Workload.model_validate({"traffic": trace}), 0, tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("traffic", "message"),
    [
        ("arrival: poisson", "workload.traffic.rate: is needed with arrival poisson"),
        ("arrival: burst, rate: 2", "workload.traffic.rate: has no effect with arrival burst"),
        ("arrival: closed", "workload.traffic.concurrency: is needed"),
        ("arrival: poisson, rate: 2, burstiness: 3", "burstiness: has no effect"),
        ("arrival: trace", "workload.traffic.trace: is needed"),
        ("arrival: trace, trace: {file: sharegpt.json, form: sharegpt}", "sharegpt has lengths and no times"),
        ("rate: 1, input: {distribution: uniform, low: 9}", "input.high: is needed with distribution uniform"),
        ("rate: 1, input: {distribution: uniform, low: 9, high: 3}", "input.low: must be at most high, 3, got 9"),
        ("rate: 1, think_time_s: 2", "think_time_s: has no effect with one turn"),
        ("rate: 1, requests: 5, warmup_requests: 5", "warmup_requests: must be less than requests, 5"),
        ("rate: 1, urgent_share: 0.5", "urgent_share: has no effect without engine.scheduling_policy priority"),
        ("rate: 1, reqests: 5", "requests"),
    ],
)
def test_what_would_change_nothing_is_refused(traffic: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load(traffic)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "field", ["engine: {scheduling_policy: priority}", "slo: {ttft_ms: 3}", "engine: {preemption: swap}"]
)
def test_what_matters_with_traffic_is_refused_without(field: str) -> None:
    with pytest.raises(ScenarioError, match="has no effect without workload"):
        load_text(f"model: Qwen3-0.6B\n{field}\n", "test.yaml")
