"""One truth a page: what two parts of a page say of the same thing agrees, and a tie is called one."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from app_pages.learn.cases import paid_back_steps
from app_pages.learn.lessons import LESSONS
from app_pages.learn.op_kernel import experiment as op_kernel
from app_pages.learn.parallelism import experiment as parallelism
from app_pages.parts import answers, formats, profiles, sides
from app_pages.parts.lab.gains import alone_chart, waterfall
from app_pages.parts.lab.view import View
from app_pages.parts.state import Question
from app_pages.parts.texts import lab as lab_texts
from app_pages.parts.texts import speaker
from app_pages.parts.verdict import in_parts, verdict
from tests.app.test_texts import tables

Open = Callable[..., Any]
EAGER = "qwen3_8b_910b2_eager"


def text(at: Any) -> str:
    html = "\n".join(item.value for item in at.get("html"))
    return unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?abbr[^>]*>", "", html)))


def view(question: Question) -> View:
    return View(question, answers.first(question), None, "en", speaker(lab_texts.TEXTS, "en"))


def test_a_bar_that_says_otherwise_than_its_switch_alone_is_pale() -> None:
    question = Question(EAGER)
    result = answers.gains(question, lambda share: None)
    alone = {row["label"].removesuffix(" (off)"): row for row in alone_chart(view(question), result).rows}
    bars = [row for row in waterfall(view(question), result).rows if row["sort"] != "total"]
    assert any(bar["pale"] for bar in bars)
    for bar in bars:
        verdict = alone[bar["label"]]["series"] if bar["label"] in alone else "no effect"
        assert bar["pale"] == (verdict != bar["sort"]), bar["label"]


def test_what_stands_alone_first_has_its_interval_on_one_side_of_one() -> None:
    for row in alone_chart(view(Question(EAGER)), answers.gains(Question(EAGER), lambda share: None)).rows:
        assert row["low"] <= row["value"] <= row["high"]
        seen = "gain" if row["low"] > 1 else "loss" if row["high"] < 1 else "not distinguishable"
        assert row["series"] == seen


def test_two_scenarios_whose_ratio_holds_one_are_a_tie(lab: Open) -> None:
    a, b = Question(EAGER), Question(EAGER, (("hardware", "atlas_a2_910b3"),))
    ratio = sides.ratio(a, b)
    assert ratio.low < 1 < ratio.high
    said = text(lab("compare", a=EAGER, b=EAGER, b_set="hardware=atlas_a2_910b3"))
    assert "not distinguishable" in said
    assert "cannot say which is faster" in said
    apart = text(lab("compare", a=EAGER, b=EAGER, b_set="optimizations.graph=ge_graph"))
    assert "not distinguishable" not in apart
    assert "90 % interval" in apart


def test_deeper_fusion_is_called_slower_only_where_the_interval_says_so(lab: Open) -> None:
    forms = op_kernel.forms("Qwen2.5-0.5B", "atlas_a3_die", 208)
    ratio = op_kernel.ratio(forms[2], forms[1], "atlas_a3_die")
    assert ratio.low < ratio.value < ratio.high
    at = lab("learn/op_kernel/page", lang="en", seen="1")
    assert ("the model cannot say which is faster" in text(at)) is not ratio.distinguishable


def test_ways_that_tie_are_named_together(lab: Open) -> None:
    ways = [w for w in parallelism.ways("Qwen3-8B", "atlas_a3_die", 2, 16, 1024, 256) if not w.refused]
    best = min(ways, key=lambda w: w.tpot_ms)
    tied = parallelism.ties(best, ways)
    assert tied
    assert all(w.tpot_low_ms < best.tpot_high_ms for w in tied)
    said = text(lab("learn/parallelism/page", seen="1", cards="2", requests="16", lang="en"))
    assert " or ".join(w.name for w in (best, *tied)) + " has the shortest TPOT" in said
    assert "cannot be distinguished" in said


def test_paid_back_counts_the_steps_that_are_shown() -> None:
    assert paid_back_steps(1000.0, 60.0, 20.0) == 25
    assert paid_back_steps(1001.0, 60.0, 20.0) == 26
    assert paid_back_steps(1000.0, 20.0, 20.0) is None


@pytest.mark.parametrize("waits", ["step", "op"])
def test_a_graph_that_is_faster_is_paid_back(lab: Open, waits: str) -> None:
    from app_pages.learn.graph import experiment as graph

    eager = graph.point(graph.decode("Qwen3-8B", "atlas_a2_910b2", "eager", 1, 512, waits))
    replayed = graph.point(graph.decode("Qwen3-8B", "atlas_a2_910b2", "npugraph_ex", 1, 512))
    steps = paid_back_steps(replayed.cold_ms, eager.step_ms, replayed.step_ms)
    assert steps is not None
    said = text(lab("learn/graph/page", seen="1", lang="en", graph="npugraph_ex", synchronize=waits))
    assert f"paid back after {formats.whole(steps)} steps" in said


def test_a_bottleneck_that_stays_is_not_said_to_move(lab: Open) -> None:
    said = text(lab("learn/experiment/page", seen="1", lang="en", factors="fusion.rms_norm"))
    moved = re.search(r"moves from ([^.]+?) to ([^.]+)\.", said)
    assert moved is None or moved[1] != moved[2]


def test_every_step_that_is_drawn_and_not_scored_is_named_with_its_conditions(lab: Open) -> None:
    said = text(lab("calibration", lang="en"))
    rows = answers.validation().result["steps"]["rows"]
    unscored = [row["id"] for row in rows if not row["scored"]]
    assert unscored == ["qwen3_8b_seed_prefill"]
    assert said.count("Not scored: ") == len(unscored)
    assert "Not scored: qwen3_8b_seed_prefill" in said
    assert "profiler on" in said


def test_the_waiting_of_the_first_rank_is_one_number(shared: Path) -> None:
    folder = shared / "measured" / "profiles" / "qwen3_0.6b_train_pp2dp2"
    given = profiles.Given(("test",), "two ranks", path=folder)
    result = profiles.shown(given, "", "", "").result
    waits = result["ranks"][0]["wait_us"]
    [advice] = [item for item in result["advice"] if item["what_if"] == "no_waits"]
    assert advice["at_most_us"] == pytest.approx(waits)
    assert f"{waits / 1000:.2f} ms" in advice["why"]
    assert all(
        item["what_if"] in {"", *(row["what_if"] for row in result["what_if"]["rows"])} for item in result["advice"]
    )


def test_the_ends_of_an_interval_differ_or_there_is_none() -> None:
    assert formats.ends(1.2690202, 1.2737730) == "1.269–1.274"
    assert formats.ends(1.0, 1.25) == "1.00–1.25"
    assert formats.ends(1.004, 1.2) == "1.004–1.200"
    assert formats.ends(0.8, 0.9996) == "0.8000–0.9996"
    assert formats.ends(1.27, 1.27) == ""


#: Chinese says 算子 for an operator of the model and kernel for what runs on the device, as our teaching does.
def test_a_kernel_is_called_a_kernel_in_chinese() -> None:
    lessons = [(name, "TEXTS", texts) for name, (_, texts) in LESSONS.items()]
    shared = [("learn", "TEXTS", import_module("app_pages.learn.texts").TEXTS)]
    for module, _, table in [*tables(), *lessons, *shared]:
        for key, (english, chinese, *_) in table.items():
            if re.search(r"\bkernels?\b", english, re.I) and not re.search(r"\bops?\b|operator", english):
                assert "算子" not in chinese.replace("算子融合", "").replace("基础算子", ""), (module, key)


def test_the_shares_of_the_lab_are_the_models_and_sum_to_the_whole(lab: Open) -> None:
    question = Question(EAGER)
    attribution = answers.attribution(question, lambda share: None)
    whole = attribution.baseline_us - attribution.best_us
    assert sum(share.shapley_us for share in attribution.shares) == pytest.approx(whole, rel=0.02)
    at = lab(scenario=EAGER, expanded="shares", lang="en")
    [table] = [item.value for item in at.table if "Shapley" in item.value.columns]
    assert len(table) == len(attribution.shares)


def test_the_lab_speaks_of_a_gpu_in_a_gpus_words_as_the_terminal_does() -> None:
    gpu = answers.first(Question("llama_3_1_8b_h200_decode")).result
    npu = answers.first(Question(EAGER)).result
    assert "computing: CUDA cores 13" in in_parts(gpu["bottleneck"], "en", gpu["device"])
    assert "计算：CUDA core 13" in in_parts(gpu["bottleneck"], "zh", gpu["device"])
    bound = {**gpu, "bottleneck": {**gpu["bottleneck"], "name": "cube-bound"}}
    assert verdict(bound, "en")[0] == "Tensor-core-bound."
    assert [text for text in verdict(bound, "zh") if "ube" in text or "向量核" in text] == []
    assert "计算：向量核" in in_parts(npu["bottleneck"], "zh", npu["device"])
    assert verdict(npu, "en") == ("Host-bound.", f"T{npu['bottleneck']['evidence'][1:]}.")
