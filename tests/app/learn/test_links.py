"""The link of a lesson opens the same state in the Lab: the numbers there are those of the lesson."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest

pytest.importorskip("streamlit", reason="the lab needs streamlit: pip install 'ascend-whatif[app]'")

from app_pages.learn import texts as learn
from app_pages.learn.attention import experiment as attention
from app_pages.learn.fusion import experiment as fusion
from app_pages.learn.op_kernel import experiment as op_kernel
from app_pages.learn.second_card import experiment as second_card
from app_pages.parts import answers
from app_pages.parts.state import question_of
from app_pages.parts.texts import speaker
from tests.app.test_learn import opened

#: Lessons that say the time of a step in their formula or answer, and how many decimals they give it.
STEPS = {"bottlenecks": 2, "graph": 2, "shapes": 2, "parallelism": 2, "experiment": 2, "second_card": 1}


def said_and_shown(lesson: str) -> tuple[str, dict[str, Any]]:
    """All text and formulas of the lesson, and the result that the Lab shows behind its link."""
    page = opened(lesson, lang="en")
    html = [str(item.proto.body) for item in page.get("html")]
    formulas = [item.value for item in page.get("latex")] + [item.value for item in page.markdown]
    [link] = [text for text in html if speaker(learn.TEXTS, "en")("in_lab") in text]
    [query] = re.findall(r'href="/\?([^"]*)"', link)
    asked = question_of(dict(parse_qsl(unescape(query))))
    return " ".join([*html, *formulas]), answers.first(asked).result


@pytest.mark.parametrize("lesson", STEPS)
def test_the_lab_shows_the_step_that_the_lesson_says(lesson: str) -> None:
    text, result = said_and_shown(lesson)
    step_ms = result["step"]["total_us"] / 1000
    assert f"{step_ms:.{STEPS[lesson]}f}" in text


def test_the_lab_lists_the_kernel_that_the_lesson_times() -> None:
    timed = {
        "fusion": ("AddRmsNorm", fusion.forms("Qwen3-8B", "atlas_a2_910b2", 8)[-1].device_us),
        "op_kernel": ("FFN", op_kernel.forms("Qwen2.5-0.5B", "atlas_a3_die", 2080)[-1].device_us),
        "attention": ("FusedInferAttentionScore", attention.forms("Qwen3-8B", "atlas_a2_910b2", 2048)[-1].device_us),
    }
    for lesson, (op_type, device_us) in timed.items():
        _, result = said_and_shown(lesson)
        [kernel] = [row for row in result["kernels"] if row["op_type"] == op_type]
        assert kernel["total_us"] / kernel["count"] == pytest.approx(device_us, rel=1e-3), lesson


def test_the_lab_has_the_device_s_step_of_the_second_card() -> None:
    _, result = said_and_shown("second_card")
    two = second_card.point("Qwen3-14B", "atlas_a2_910b3", 2, 16, "starved")
    assert result["step"]["total_us"] / 1000 == pytest.approx(two.device_ms)
