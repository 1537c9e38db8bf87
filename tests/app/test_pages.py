"""The first page, serving, sweep and measure without a browser: the model's numbers, which follow the widgets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from app_pages.parts import formats, measuring, served, sweeps
from scenarios.errors import ScenarioError

Open = Callable[..., Any]


def text(at: Any) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", "\n".join(item.value for item in at.get("html"))))


def values(at: Any) -> list[str]:
    return re.findall(r'class="wi-value">([^<]*)<', "\n".join(item.value for item in at.get("html")))


def test_the_first_page_has_four_doors_and_a_number_with_its_measurement(lab: Open) -> None:
    said = text(lab("home", lang="en"))
    for door in ("Predict", "Measure", "Import", "Learn"):
        assert door in said
    assert "14.74 ms were measured" in said
    assert "was used in a fit" in said
    for sentence in ("Move less.", "Write once less.", "Move while computing.", "Wait less for launches."):
        assert sentence in said


def test_a_link_with_a_question_goes_on_to_the_lab(root: Path) -> None:
    from streamlit.testing.v1 import AppTest

    at = AppTest.from_file(str(root / "app.py"), default_timeout=60)
    at.query_params["scenario"] = "tiny_llama_cpu"
    at.run()
    assert not at.exception
    assert "tiny_llama_cpu" in text(at)
    assert at.selectbox(key="lab:scenario").value == "tiny_llama_cpu"


def test_serving_shows_a_load_and_follows_the_rate(lab: Open) -> None:
    at = lab("serving", lang="en")
    question = served.question_of({})
    assert question.scenario == "serve_qwen3_14b_910b3"
    slow = values(at)
    assert "Held." in text(at)
    assert len(at.get("vega_lite_chart")) == 4
    at.select_slider(key="rate").set_value(64.0).run()
    assert not at.exception
    assert "Beyond the cliff." in text(at)
    assert values(at)[0] != slow[0]
    assert float(values(at)[1].replace(",", "")) > 10 * float(slow[1].replace(",", ""))


def test_the_cliff_rises_and_ends_where_it_is_saturated() -> None:
    settings = {"slo.ttft_ms": 2000, "slo.tpot_ms": 100, "workload.traffic.warmup_requests": 20}
    found = served.cliff(served.question_of(settings))
    rates = [rate for rate, _ in found.points]
    assert rates == list(served.RATES[: len(rates)])
    ends = [metrics.tpot_ms.p50 for _, metrics in found.points]
    assert ends[-1] > 2 * ends[0]
    assert [metrics.saturated for _, metrics in found.points[:-1]] == [False] * (len(rates) - 1)
    assert found.highest is not None
    assert 0 < found.highest.rate < rates[-1] * 2
    # The curve and the rate above it are of one kind of run: what the curve calls too slow is no rate that is met.
    too_slow = [rate for rate, metrics in found.points if metrics.tpot_ms.p50 > 100 or metrics.ttft_ms.p50 > 2000]
    assert too_slow
    assert found.highest.rate < too_slow[0]


def test_what_serving_refuses_is_said(lab: Open) -> None:
    at = lab("serving", lang="zh", model="DeepSeek-V3")
    assert not at.exception
    assert "放不下" in at.error[0].value


def test_the_front_is_beaten_by_no_point(lab: Open) -> None:
    fixed = {"model": "Qwen3-0.6B", "hardware": "atlas_a3_die", "optimizations.graph": "aclgraph"}
    axes = {"batch": (1, 16, 256), "context": (2048,), "cards": (1, 2)}
    spots = [s for s in sweeps.grid(fixed, axes, lambda share: None) if not s.why]  # type: ignore[arg-type]
    front = sweeps.front(spots)
    assert front
    for spot in spots:
        beaten_by = [f for f in front if f.tpot_ms <= spot.tpot_ms and f.per_card >= spot.per_card]
        assert beaten_by, spot
    for spot in front:
        assert not any(o.tpot_ms < spot.tpot_ms and o.per_card > spot.per_card for o in spots)


def test_a_point_of_the_sweep_is_the_labs_own_answer(lab: Open) -> None:
    from app_pages.parts import answers

    fixed = {"model": "Qwen3-0.6B", "hardware": "atlas_a3_die", "optimizations.graph": "aclgraph"}
    [spot] = sweeps.grid(fixed, {"batch": (16,), "context": (2048,), "cards": (2,)}, lambda share: None)
    assert spot.tpot_ms == answers.first(spot.question).result["metrics"]["tpot_ms"]["value"]


def test_the_sweep_draws_its_curves_and_says_what_cannot_run(lab: Open) -> None:
    at = lab("sweep", lang="en", model="Qwen3-8B", hardware="atlas_a2_910b4", slo="50")
    said = text(at)
    assert len(at.get("vega_lite_chart")) == 4
    assert "cannot. The first reason" in said
    assert "does not fit" in said
    assert "Within 50 ms: TP" in said


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_exact_numbers_of_a_sweep_are_typed_and_kept(lab: Open, lang: str) -> None:
    """37.5 ms, 3,000 tokens and batches of 3 and 48 are no stops of a slider; the points are the Lab's own answers."""
    at = lab("sweep", lang=lang, model="Qwen3-0.6B")
    at.number_input(key="slo").set_value(37.5).run()
    at.number_input(key="at_context").set_value(3000).run()
    at.text_input(key="along_batch").set_value("48, 3").run()
    assert not at.exception
    said = text(at)
    assert "37.5 ms" in said
    assert "3,000" in said
    assert {"en": "All 8 points can run", "zh": "8 个点全部可运行"}[lang] in said  # on 1, 2, 4 and 8 cards
    assert {key: at.query_params[key] for key in ("slo", "at_context", "along_batch")} == {
        "slo": "37.5", "at_context": "3000", "along_batch": "48, 3",
    }  # fmt: skip


@pytest.mark.parametrize("typed", ["", "0", "1, x", "-4", "4097", ",".join(map(str, range(1, 14)))])
def test_values_that_cannot_be_along_the_axis_are_refused_in_words(lab: Open, typed: str) -> None:
    at = lab("sweep", lang="en", model="Qwen3-0.6B")
    at.text_input(key="along_batch").set_value(typed).run()
    assert not at.exception
    if typed:  # nothing typed is what stands there by default
        assert at.error[0].value.startswith("Values along the axis: whole numbers from 1 to 4,096")


def test_a_url_with_what_cannot_be_typed_is_the_default(lab: Open) -> None:
    at = lab("sweep", lang="en", model="Qwen3-0.6B", slo="nan", at_context="-3")
    assert at.number_input(key="slo").value == 50
    assert at.number_input(key="at_context").value == 2048


@pytest.fixture(scope="module")
def measured_result() -> dict[str, Any]:
    """A result of a run in the form that `--backend` writes, three operations long."""
    ops = [
        {"index": n, "ops": 1, "layer": 0, "name": name, "kind": kind, "form": "torch", "predicted_us": predicted,
         "measured_us": measured, "low_us": 0.9 * measured, "high_us": 1.2 * measured}
        for n, (name, kind, predicted, measured) in enumerate(
            [("q_proj", "matmul", 10.0, 12.0), ("attention", "attention", 50.0, 40.0), ("add", "add", 4.0, 4.0)]
        )
    ]  # fmt: skip
    kernels = [
        {"kind": op["kind"], "op_type": op["kind"], "form": "torch", "count": 1, "total_us": op["measured_us"],
         "predicted_us": op["predicted_us"]}
        for op in ops
    ]  # fmt: skip
    measured = {
        "backend": "cpu", "device": "a CPU", "repeats": 5, "step": {"total_us": 60.0}, "ops": ops, "kernels": kernels,
        "steady_step": {"median_us": 50.0, "low_us": 48.0, "high_us": 53.0},
        "errors": {"step": 0.06, "op_median": 0.17},
    }  # fmt: skip
    return {"scenario": {"name": "made up"}, "step": {"total_us": 64.0}, "kernels": [], "measured": measured}


def test_a_measured_result_opens_op_by_op(lab: Open, measured_result: dict[str, Any]) -> None:
    at = lab("measure", lang="en")
    uploader = next(item for item in at.get("file_uploader") if item.key == "measure:file")
    uploader.upload("result.json", json.dumps(measured_result).encode()).run()
    assert not at.exception
    assert values(at)[:3] == ["0.064", "0.060", "0.050"]
    assert "The largest difference is in attention" in text(at)
    kinds, ops = (table.value for table in at.dataframe)
    assert list(ops["operation"]) == ["q_proj", "attention", "add"]
    assert [round(error) for error in ops["error"]] == [-17, 25, 0]
    assert len(kinds) == 3


def test_a_result_without_times_of_its_ops_says_so(lab: Open, measured_result: dict[str, Any]) -> None:
    measured = measured_result["measured"]
    ops = [{**op, "measured_us": 0.0} for op in measured["ops"]]
    at = lab("measure", lang="en")
    uploader = next(item for item in at.get("file_uploader") if item.key == "measure:file")
    empty = {**measured_result, "measured": {**measured, "ops": ops}}
    uploader.upload("result.json", json.dumps(empty).encode()).run()
    assert not at.exception
    assert "No operation has both times." in text(at)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", "no result"),
        (b"not json", "no result"),
        (b'{"step": {}, "kernels": []}', "without a measured part"),
        (b'{"step": {"total_us": 1.0}, "kernels": [], "measured": {"ops": [1]}}', "scenario: not what whatif run"),
    ],
)
def test_what_is_no_measured_result_is_one_line(data: bytes, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        measuring.result_of("x.json", data)


def test_a_load_test_stands_next_to_the_model(tmp_path: Path) -> None:
    bench = {
        "backend": "vllm", "model_id": "Qwen3-14B", "num_prompts": 100, "request_rate": 2.0, "burstiness": 1.0,
        "max_concurrency": None, "duration": 60.0, "completed": 100, "total_input_tokens": 52000,
        "total_output_tokens": 25600, "request_throughput": 1.67, "output_throughput": 426.0,
        "mean_ttft_ms": 180.0, "mean_tpot_ms": 51.2, "median_ttft_ms": 175.0, "median_tpot_ms": 51.0,
    }  # fmt: skip
    fitted = measuring.fitted([("bench.json", json.dumps(bench).encode())], "serve_qwen3_14b_910b3")
    [row] = fitted.calibration.compared
    assert row.test.tpot_ms == 51.2
    assert abs(row.after.tpot_ms - 51.2) < abs(row.before.tpot_ms - 51.2)
    assert fitted.text.startswith(("name:", "#"))
    assert formats.number(row.before.tpot_ms)
