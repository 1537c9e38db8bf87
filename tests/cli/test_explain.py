"""`whatif explain`: the bottleneck by name, and advice that can be taken as it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.loader import load_scenario
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of
from tests.cli.shipped import SECONDS_FOR_ADVICE, shipped

Answer = Callable[..., dict[str, Any]]
WhatIf = Callable[..., Any]

EAGER = "qwen3_8b_910b2_eager"


def test_an_eager_step_is_host_bound_and_graph_mode_comes_first(whatif: WhatIf) -> None:
    done = whatif("explain", EAGER)
    assert (done.status, done.err) == (0, "")
    assert "Bottleneck: host-bound" in done.out
    assert re.search(r"the device is idle for \d+% of the step", done.out)
    first = re.search(r"Try next\n +[\d.]+x  \([\d.]+-[\d.]+\) +Graph mode +--set (\S+)", done.out)
    assert first is not None
    assert first[1] == "optimizations.graph=ge_graph"


def test_the_same_step_as_a_graph_is_hbm_bound(whatif: WhatIf) -> None:
    done = whatif("explain", EAGER, "--set", "optimizations.graph=ge_graph")
    assert (done.status, done.err) == (0, "")
    assert "Bottleneck: HBM-bound" in done.out
    assert re.search(r"[\d.]+ GB cross HBM in [\d.]+ ms of kernels, [\d.]+ of [\d.]+ TB/s sustained", done.out)
    limits = done.out.partition("Kernel time by what limits it")[2].splitlines()
    assert limits[2].startswith("HBM-bound")


def test_a_long_prefill_is_cube_bound(answer: Answer) -> None:
    assert answer("qwen3_8b_prefill")["bottleneck"]["name"] == "cube-bound"


def test_a_pipeline_with_one_request_is_mostly_bubble(whatif: WhatIf) -> None:
    done = whatif("explain", "llama_3_1_70b_tp4_pp2_decode", "--set", "workload.batch=1")
    assert (done.status, done.err) == (0, "")
    assert "Bottleneck: bubble-bound" in done.out
    words = " ".join(done.out.split())
    assert re.search(r"\d+% of the step \([\d.]+ of [\d.]+ ms\) the first stage waits for the others", words)
    assert "1 micro-batch in 2 stages" in words


def test_explain_writes_the_document_of_run(whatif: WhatIf, tmp_path: Path) -> None:
    ran, explained = tmp_path / "run.json", tmp_path / "explain.json"
    settings = ("--set", "workload.batch=3")
    assert whatif("run", EAGER, *settings, "--json", ran).status == 0
    assert whatif("explain", EAGER, *settings, "--json", explained).status == 0
    assert ran.read_bytes() == explained.read_bytes()


@pytest.mark.parametrize("scenario", shipped(slow=SECONDS_FOR_ADVICE))
def test_each_advice_can_be_taken_and_keeps_its_word(answer: Answer, scenario: str) -> None:
    """The settings are accepted together, fit the memory, and the step is faster by the ratio that was promised."""
    document = answer(scenario)
    ratios = [item["ratio"] for item in document["advice"]]
    assert ratios == sorted(ratios, reverse=True)
    assert all(ratio > 1 for ratio in ratios)
    for item in document["advice"]:
        tried = predict(case_of(load_scenario(scenario, item["settings"])))
        assert document["step"]["total_us"] * 1000 / tried.step.total_ns == pytest.approx(item["ratio"], rel=1e-6)


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("engine.task_queue_enable=0", "engine.task_queue_enable=1"),
        ("protocol.synchronize=op", "protocol.synchronize=step"),
    ],
)
def test_what_slows_the_host_is_advised_against(answer: Answer, setting: str, advice: str) -> None:
    document = answer(EAGER, setting)
    result = {tuple(item["settings"]): item["ratio"] for item in document["advice"]}
    assert result[(advice,)] > 1.05


def test_quantised_weights_leave_a_valid_scenario_when_a_what_if_takes_them_back(answer: Answer) -> None:
    """An FP16 cache with quantised weights has FP16 activations; without the quantisation they stay FP16."""
    document = answer(EAGER, "optimizations.weights=w8a8")
    [gain] = [gain for gain in document["gains"] if gain["pass"] == "weights"]
    assert gain["state"] == "on"
    assert gain["verdict"] != "not applicable"


def test_overlap_shows_the_ideal_the_predicted_and_what_is_lost(whatif: WhatIf, answer: Answer) -> None:
    done = whatif("explain", "qwen3_8b_tp2_prefill_mc2")
    assert (done.status, done.err) == (0, "")
    (item,) = answer("qwen3_8b_tp2_prefill_mc2")["overlaps"]
    assert item["pass"] == "fusion.matmul_all_reduce"
    assert item["lost_us"] == pytest.approx(item["predicted_us"] - item["ideal_us"])
    text = " ".join(done.out.split())
    assert f"ideal {item['ideal_us']:,.1f} us, predicted {item['predicted_us']:,.1f} us" in text
    assert f"lost to start-up, sync and contention {item['lost_us']:,.1f} us" in text


def test_a_fused_kernel_that_its_links_hold_up_is_communication(answer: Answer) -> None:
    bottleneck = answer("qwen3_8b_tp2_prefill_mc2")["bottleneck"]
    assert bottleneck["name"] == "communication-bound"
    assert "kernels whose collective takes longer than their computing" in bottleneck["evidence"]
