"""`whatif run`: the document of the command contract for every shipped scenario, and the identities inside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scenarios.loader import load_scenario
from scenarios.models.hf_config import load_model
from scenarios.passes.kv import no_int8_cache
from sim.hardware.profile import load_hardware
from sim.predict.explain import diagnose
from sim.predict.predict import Prediction, predict
from sim.predict.scenario_result import case_of
from tests.cli.shipped import shipped

Answer = Callable[..., dict[str, Any]]
WhatIf = Callable[..., Any]

#: Contract, section 6 of the design; the second set is what this project adds.
CONTRACT = {
    "schema_version", "scenario", "hardware", "provenance", "seed", "metrics", "step", "kernels", "launches",
    "hbm_bytes", "bottleneck", "gains", "capacity", "cold_start",
}  # fmt: skip
ADDED = {
    "in_engine",
    "device",
    "graph",
    "batch",
    "kernel_count",
    "notes",
    "global_memory_bytes",
    "roofs",
    "busy",
    "waterfall",
    "advice",
    "overlaps",
    "memory",
    "ranks",
    "waits_us",
    "pipeline",
    "ttft_of",
}
STEP = {
    "total_us", "computing_us", "communication_us", "communication_not_overlapped_us", "communication_wait_us",
    "overlapped_us", "free_us",
}  # fmt: skip
BOTTLENECKS = {
    "mixed",
    "idle-bound",
    "host-bound", "HBM-bound", "cube-bound", "vector-bound", "communication-bound", "bubble-bound", "capacity-bound",
}  # fmt: skip
#: Sums of numbers that are each rounded to a binary fraction.
EXACT = pytest.approx


def ns(microseconds: float) -> int:
    """The simulator's clock is integer nanoseconds, so a reported time is one exactly."""
    whole = round(microseconds * 1000)
    assert microseconds == whole / 1000
    return whole


@pytest.mark.parametrize("scenario", shipped())
def test_the_document_has_the_keys_of_the_contract(answer: Answer, scenario: str) -> None:
    document = answer(scenario)
    served = {"serving"} if document["scenario"]["workload"].get("traffic") else set()
    drafted = {"speculation"} if document["scenario"]["engine"].get("speculative_config") else set()
    assert set(document) == CONTRACT | ADDED | served | drafted
    assert set(document["step"]) == STEP
    assert {"ttft_ms", "tpot_ms", "output_throughput", "peak_memory_bytes"} <= set(document["metrics"])
    assert all(set(metric) == {"value", "low", "high"} for metric in document["metrics"].values())
    assert all({"kind", "op_type", "count", "total_us", "bound"} <= set(row) for row in document["kernels"])
    assert {"name", "evidence"} <= set(document["bottleneck"])
    gain = {"pass", "alone_ratio", "waterfall_us", "low", "high", "verdict"}
    assert all(gain <= set(row) for row in document["gains"])
    assert {"kv_tokens", "max_concurrent_requests", "max_running_requests"} <= set(document["capacity"])
    assert document["schema_version"] == 1
    assert document["scenario"]["name"] == scenario
    assert document["hardware"] == document["scenario"]["hardware"]
    assert document["seed"] == document["scenario"]["protocol"]["seed"]
    assert document["provenance"]["kind"] == "predicted"


@pytest.mark.parametrize("scenario", shipped())
def test_a_step_is_computing_and_communication_and_free(answer: Answer, scenario: str) -> None:
    document = answer(scenario)
    step = {key: ns(value) for key, value in document["step"].items()}
    assert step["total_us"] == step["computing_us"] + step["communication_not_overlapped_us"] + step["free_us"]
    assert step["total_us"] > step["computing_us"] > 0
    assert step["free_us"] >= 0
    # On one stream the kernels follow one another, and only AI CPU kernels can lie next to them. Collectives are timed
    # without the wait for other ranks, and are no computing; those inside a fused kernel lie next to its computing.
    collectives = [row["op_type"].startswith(("hcom_", "MoeDistribute")) for row in document["kernels"]]
    times = list(zip(collectives, (ns(row["total_us"]) for row in document["kernels"]), strict=True))
    kernels = sum(time for apart, time in times if not apart)
    transfers = sum(time for apart, time in times if apart)
    assert transfers == step["communication_us"] - step["communication_wait_us"] - step["overlapped_us"]
    others = sum(ns(row["total_us"]) for row in document["kernels"] if row["bound"] == "ai_cpu")
    assert step["computing_us"] <= kernels <= step["computing_us"] + others


@pytest.mark.parametrize("scenario", shipped())
def test_kernels_are_counted_once(answer: Answer, scenario: str) -> None:
    document = answer(scenario)
    rows = document["kernels"]
    assert sum(row["count"] for row in rows) == document["kernel_count"]
    assert sum(row["hbm_bytes"] for row in rows) == document["hbm_bytes"] <= document["global_memory_bytes"]
    assert len({(row["kind"], row["op_type"]) for row in rows}) == len(rows)
    assert [row["total_us"] for row in rows] == sorted((row["total_us"] for row in rows), reverse=True)
    if document["graph"] == "eager":
        assert document["launches"] == document["kernel_count"]
    else:
        assert document["launches"] < document["kernel_count"] / 10
    assert all(0 <= share <= 1 for share in document["busy"].values())
    assert document["bottleneck"]["name"] in BOTTLENECKS
    assert len(document["bottleneck"]["evidence"]) > 40


@pytest.mark.parametrize("scenario", shipped())
def test_the_waterfall_sums_to_the_total(answer: Answer, scenario: str) -> None:
    document = answer(scenario)
    fall, gains = document["waterfall"], document["gains"]
    assert len(gains) >= 10
    falls = [ns(gain["waterfall_us"]) for gain in gains]
    assert ns(fall["baseline_us"]) - sum(falls) == ns(fall["target_us"])
    assert ns(fall["target_us"]) <= ns(fall["scenario_us"]) == ns(document["step"]["total_us"])
    best = {gain["pass"] for gain in gains if gain["in_best"]}
    assert set(fall["order"]) == best
    assert all(row["loss_us"] > 0 and row["pass"] not in best for row in fall["losers"])


@pytest.mark.parametrize("scenario", shipped())
def test_values_lie_in_their_intervals(answer: Answer, scenario: str) -> None:
    document = answer(scenario)
    for name, metric in document["metrics"].items():
        assert 0 < metric["low"] <= metric["value"] <= metric["high"], name
    assert document["metrics"]["tpot_ms"]["low"] < document["metrics"]["tpot_ms"]["high"]
    for gain in document["gains"]:
        assert 0 < gain["low"] <= gain["alone_ratio"] <= gain["high"], gain["pass"]
        if gain["verdict"] == "gain":
            assert gain["low"] > 1, gain["pass"]
        elif gain["verdict"] == "loss":
            assert gain["high"] < 1, gain["pass"]
        else:
            assert gain["verdict"] in {
                "not distinguishable",
                "no effect",
                "not applicable",
                "does not fit",
                "does not fit without",
            }


@pytest.mark.parametrize("scenario", shipped())
def test_the_metrics_of_a_request_agree_with_one_another(answer: Answer, scenario: str) -> None:
    """TPOT = (E2EL - TTFT) / (output tokens - 1), and what follows from it."""
    document = answer(scenario)
    workload = document["scenario"]["workload"]
    value = {name: metric["value"] for name, metric in document["metrics"].items()}
    assert value["tpot_ms"] == EXACT((value["e2el_ms"] - value["ttft_ms"]) / (workload["output_tokens"] - 1))
    tokens = workload["batch"] * workload["output_tokens"]
    replicas = document["scenario"]["engine"]["data_parallel_size"]
    assert value["output_throughput"] == EXACT(replicas * 1000 * tokens / value["e2el_ms"])
    assert value["decode_throughput"] == EXACT(replicas * 1000 * workload["batch"] / value["tpot_ms"])
    if document["batch"]["phase"] == "decode":
        drafts = document.get("speculation", {"draft_us": 0, "tokens_per_step": 1})
        round_us = document["step"]["total_us"] + drafts["draft_us"]
        assert value["tpot_ms"] == EXACT(round_us / drafts["tokens_per_step"] / 1000)


@pytest.mark.parametrize("scenario", shipped())
def test_memory_is_the_sum_of_its_parts_and_fits(answer: Answer, scenario: str) -> None:
    document = answer(scenario)
    memory = dict(document["memory"])
    total, usable, visible = (memory.pop(key) for key in ("total_bytes", "usable_bytes", "visible_bytes"))
    capacity = memory.pop("capacity_bytes")
    assert total == sum(memory.values()) == document["metrics"]["peak_memory_bytes"]["value"]
    assert total <= usable < visible <= capacity
    assert document["capacity"]["max_concurrent_requests"] >= document["scenario"]["workload"]["batch"]
    running = min(document["capacity"]["max_concurrent_requests"], document["scenario"]["engine"]["max_num_seqs"])
    assert document["capacity"]["max_running_requests"] == running
    layouts = document["capacity"]["layouts"]
    assert {name.split("_")[0] for name in layouts} == {"contiguous", "paged"}
    if no_int8_cache(load_model(document["scenario"]["model"])):
        assert not [name for name in layouts if name.endswith("int8")]
    else:
        assert layouts["paged_int8"]["kv_tokens"] > 1.5 * document["capacity"]["kv_tokens"] or "int8_kv" in scenario


def test_settings_are_laid_on_the_file_in_their_order(answer: Answer) -> None:
    document = answer("qwen3_8b_decode", "workload.batch=2", "workload.batch=8", "engine.max_num_seqs=64")
    assert document["scenario"]["workload"]["batch"] == document["batch"]["requests"] == 8
    assert document["scenario"]["engine"]["max_num_seqs"] == 64
    plain = answer("qwen3_8b_decode")
    assert document["metrics"]["output_throughput"]["value"] > 6 * plain["metrics"]["output_throughput"]["value"]


def test_a_shipped_name_and_its_file_are_the_same_scenario(answer: Answer, root: Path) -> None:
    assert answer(str(root / "scenarios/qwen3_8b_decode.yaml")) == answer("qwen3_8b_decode")


def test_a_scenario_runs_from_any_folder_and_under_any_name(
    answer: Answer, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "моя папка 昇腾"
    folder.mkdir()
    copy = folder / "my 场景 (1).yaml"
    copy.write_bytes((root / "scenarios/qwen3_8b_decode.yaml").read_bytes())
    monkeypatch.chdir("/")
    document = answer(str(copy))
    assert document["scenario"].pop("name") == "my 场景 (1)"
    expected = {**answer("qwen3_8b_decode")["scenario"]}
    expected.pop("name")
    assert document["scenario"] == expected


def test_relative_models_and_hardware_lie_beside_the_scenario(
    answer: Answer, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "config.json").write_bytes((root / "scenarios/models/Qwen3-8B/config.json").read_bytes())
    profile = (root / "sim/hardware/atlas_a2_910b2.yaml").read_text(encoding="utf-8")
    (tmp_path / "parts" / "mine.yaml").write_text(profile.replace("name: atlas_a2_910b2", "name: mine", 1), "utf-8")
    (tmp_path / "mine.yaml").write_text("model: parts/config.json\nhardware: parts/mine.yaml\n", "utf-8")
    monkeypatch.chdir("/")
    mine = answer(str(tmp_path / "mine.yaml"))
    (tmp_path / "theirs.yaml").write_text("model: Qwen3-8B\nhardware: atlas_a2_910b2\n", "utf-8")
    theirs = answer(str(tmp_path / "theirs.yaml"))
    assert mine["hardware"] == "mine"
    assert mine["step"] == theirs["step"]


@cache
def predicted(batch: int, graph: str) -> Prediction:
    """The prediction that `whatif run` shows, without the gains that these tests do not ask for."""
    settings = (f"workload.batch={batch}", f"optimizations.graph={graph}")
    return predict(case_of(load_scenario("qwen3_8b_910b2_eager", settings)))


def total_ms(batch: int, graph: str) -> float:
    return predicted(batch, graph).step.total_ns / 1e6


def test_the_command_shows_what_is_predicted(answer: Answer) -> None:
    shown = answer("qwen3_8b_910b2_eager", "workload.batch=4", "optimizations.graph=eager")
    assert shown["step"]["total_us"] == predicted(4, "eager").step.total_ns / 1e3


def test_an_eager_step_does_not_depend_on_the_batch() -> None:
    """The host issues the same calls for any batch, and the device waits for it."""
    batches = (1, 4, 16, 64, 256)
    times = [total_ms(batch, "eager") for batch in batches]
    assert max(times) / min(times) < 1.12
    diagnoses = [diagnose(predicted(batch, "eager")) for batch in batches]
    assert {diagnosis.host_launches for diagnosis in diagnoses} == {diagnoses[0].host_launches}
    assert {diagnosis.name for diagnosis in diagnoses[:-1]} == {"host-bound"}
    assert diagnoses[-1].name in ("host-bound", "mixed")  # 256 requests keep the device as busy as the host


def test_a_compiled_step_rises_with_the_batch() -> None:
    times = [total_ms(batch, "ge_graph") for batch in (1, 4, 16, 64, 256, 512)]
    assert times == sorted(times)
    assert times[-1] > 2 * times[0]
    # Twice the requests of a step bound by weight reads are nearly free: that is why one batches.
    assert times[1] < 1.5 * times[0]


def test_what_graph_mode_gains_falls_with_the_batch() -> None:
    ratios = [total_ms(batch, "eager") / total_ms(batch, "ge_graph") for batch in (1, 16, 256)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 3


@pytest.mark.parametrize(("batch", "measured_ms"), [(1, 62.893), (4, 64.144), (16, 67.639), (64, 69.89), (256, 65.65)])
def test_accuracy_eager_step_on_910b2(batch: int, measured_ms: float) -> None:
    """Accuracy against a measurement: Qwen3-8B, FP16, eager, no NPU fusion, 910B2 (figures.csv, rows 59-75)."""
    assert total_ms(batch, "eager") == pytest.approx(measured_ms, rel=0.15)


@pytest.mark.parametrize(("batch", "measured_ms"), [(1, 14.507), (4, 16.94), (16, 19.575), (64, 23.311)])
def test_accuracy_compiled_step_on_910b2(batch: int, measured_ms: float) -> None:
    """Accuracy against a measurement: the same, compiled as one graph (figures.csv, rows 60-72)."""
    assert total_ms(batch, "ge_graph") == pytest.approx(measured_ms, rel=0.15)


def test_accuracy_of_the_seeds_case(answer: Answer) -> None:
    """Accuracy against a measurement: Qwen3-8B, batch 1, ge_graph on an A3 die took 14.74 ms and 567 kernels a step."""
    document = answer("qwen3_8b_decode")
    assert document["kernel_count"] == 567
    assert document["metrics"]["tpot_ms"]["value"] == pytest.approx(14.74, rel=0.15)
    assert document["bottleneck"]["name"] == "HBM-bound"


@pytest.mark.parametrize(("scenario", "alone"), [("qwen3_32b_tp16_decode", False), ("qwen3_8b_prefill", True)])
def test_a_rank_alone_rests_on_no_number_of_links(answer: Answer, scenario: str, alone: bool) -> None:
    document = answer(scenario)
    assert (document["ranks"] == 1) == alone
    names = load_hardware(document["hardware"]).profile.numbers()
    between = {"host.rank_skew_us", "residual.rank_skew_sigma", "kernel.jitter_sigma", "kernel.jitter_cap_us"}
    unused = between | {name for name in names if name.startswith("collective.")} if alone else set()
    assert unused <= set(names)
    assert sum(document["provenance"]["sources"].values()) == len(names) - len(unused)


def test_ttft_says_what_it_is(whatif: WhatIf, answer: Answer) -> None:
    assert answer("qwen3_8b_decode", "model=Tiny-Llama")["ttft_of"] == "one request alone"
    assert answer("qwen3_8b_decode", "model=Tiny-Llama", "workload.batch=4")["ttft_of"] == (
        "mean of 4 requests that arrive at once"
    )
    out = whatif("run", "qwen3_8b_decode", "--set", "model=Tiny-Llama", "--set", "workload.batch=4").out
    assert ", mean of 4 at once" in next(line for line in out.splitlines() if "TTFT" in line)
