"""Chinese is first class: no English sentence on a Chinese page, every refusal in Chinese with its remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from app_pages.learn.lessons import LESSONS
from app_pages.parts.controls import CONTROLS
from app_pages.parts.lab.head import by_field
from app_pages.parts.state import value_of, written
from app_pages.parts.texts.refusals import ORIGINAL, in_words
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.trace import trace_text
from sim.predict.scenario_result import case_of, first_result, kernel_args

Open = Callable[..., Any]

#: Five English words in a row make a sentence; names of files, sources and settings have no spaces, or fewer words.
SENTENCE = re.compile(r"(?:\b[A-Za-z][a-z']{1,}[, ]+){4,}[A-Za-z][a-z']+")
#: What is quoted from a file, whatever the reader's language: where a measured row comes from.
QUOTED = re.compile(r"(?:（|；|; )[^（）；]*(?:hicann|Horacehxw|lukaIvanic|Ascend/|profiler on)[^（）；]*")
PAGES = ["home", "lab", "serving", "sweep", "measure", "compare", "profile", "calibration"]


def said(at: Any) -> list[str]:
    """All text that a page says outside of tables of data."""
    html = [re.sub(r"<(style|script)>.*?</\1>", " ", item.value, flags=re.S) for item in at.get("html")]
    texts = [unescape(re.sub(r"<[^>]+>", " \n ", text)) for text in html]
    for kind in ("markdown", "error", "info", "caption"):
        texts += [item.value for item in at.get(kind)]
    for kind in ("selectbox", "toggle", "select_slider", "button_group", "button", "file_uploader", "expander"):
        texts += [str(getattr(item, "label", "")) + " " + str(getattr(item, "help", "") or "") for item in at.get(kind)]
    return texts


def english(texts: list[str]) -> list[str]:
    return [found[0] for text in texts for found in SENTENCE.finditer(QUOTED.sub("", text))]


def test_the_finder_finds() -> None:
    assert english(["The device is idle for most of it"])
    assert not english(["设备在一步中空闲 74 %，kernel 只需 17.61 ms", "aclgraph npugraph_ex ge_graph eager"])


@pytest.mark.usefixtures("quick_gains")
@pytest.mark.parametrize("page", PAGES)
def test_a_chinese_page_says_no_english_sentence(lab: Open, page: str) -> None:
    assert english(said(lab(page, lang="zh"))) == []


@pytest.mark.parametrize("name", list(LESSONS))
def test_a_chinese_lesson_says_no_english_sentence(lab: Open, name: str) -> None:
    assert english(said(lab(f"learn/{name}/page", lang="zh", seen="1"))) == []


@pytest.mark.usefixtures("quick_gains")
def test_every_group_of_widgets_speaks_chinese(lab: Open) -> None:
    for group in ("fusion", "kv", "weights", "parallel", "overlap", "scheduler"):
        assert english(said(lab("lab", expanded=group, lang="zh"))) == []


@pytest.mark.usefixtures("quick_gains")
def test_a_refusal_is_said_in_chinese_with_its_remedy(lab: Open) -> None:
    at = lab("lab", lang="zh", scenario="qwen3_8b_decode", **{"workload.batch": "100000"})
    assert english(said(at)) == []
    assert any("至多为 65536" in item.value for item in at.error)


@pytest.mark.parametrize(
    "scenario", ["qwen3_8b_decode", "kimi_k2_w4a8_ep16_decode", "llama_3_1_8b_h200_decode", "tiny_llama_cpu",
                 "qwen2_5_7b_mixed", "llama_3_1_70b_tp4_pp2_decode"]
)  # fmt: skip
def test_every_value_of_every_widget_is_refused_in_chinese(scenario: str) -> None:
    base = load_scenario(scenario).scenario
    unknown: dict[str, str] = {}
    refused = 0
    for control in CONTROLS:
        for option in (True, False) if control.widget == "toggle" else control.options:
            if option == value_of(base, control.field):
                continue
            try:
                case_of(load_scenario(scenario, [f"{control.field}={written(option)}"]))
            except ScenarioError as error:
                refused += 1
                unknown |= {m: w for m in by_field(error).values() if ORIGINAL in (w := in_words(m, "zh"))}
    assert refused > 10
    assert unknown == {}


def test_a_sentence_that_no_pattern_knows_stays_and_is_called_the_original() -> None:
    assert in_words("something quite new", "zh") == f"{ORIGINAL}something quite new"
    assert in_words("something quite new", "en") == "something quite new"
    assert in_words("x.yaml:3:1: workload.batch: must be at least 1, got 0", "zh") == (
        "x.yaml:3:1: workload.batch: 至少为 1，现为 0"
    )


def test_an_uploaded_profile_is_read_in_chinese(lab: Open) -> None:
    prediction = first_result(load_scenario("qwen3_0_6b_decode", ["optimizations.graph=eager"])).prediction
    trace = trace_text([prediction.timeline], [kernel_args(prediction)]).encode()
    at = lab("profile", lang="zh")
    next(item for item in at.get("file_uploader") if item.key == "profile:files").upload("trace.json", trace).run()
    assert not at.exception
    texts = said(at) + [str(cell) for table in at.table for column in table.value.values for cell in column]
    left = [found for found in english(texts) if ORIGINAL not in found]
    assert left == []
    assert not any(ORIGINAL in text for text in said(at)), [text for text in said(at) if ORIGINAL in text]
