"""Every ratio of a page has its interval next to it, in words and in charts, in both languages."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
import streamlit as st

from app_pages.learn.lessons import LESSONS
from app_pages.parts.state import Question

Open = Callable[..., Any]

#: A ratio as `formats.ratio` and the charts write it, and what must follow it.
RATIO = re.compile(r"\d[\d.,]*×(?!\d)")
INTERVAL = re.compile(r"\*{0,2} ?[(（]\d[\d.,]*–\d[\d.,]*[)）]")
CELL = re.compile(r'<div class="wi-value">(.*?)</div><div class="wi-sub">(.*?)</div>', re.S)
PARAMS = {
    "lab": {"scenario": "qwen3_8b_910b2_eager", "baseline": Question("qwen3_8b_decode").packed()},
    "compare": {"a": "qwen3_8b_910b2_eager", "b": "qwen3_8b_910b2_eager", "b_set": "optimizations.graph=ge_graph"},
}
PAGES = ["home", "lab", "serving", "sweep", "measure", "compare", "profile", "calibration"]


def bare(text: str) -> list[str]:
    """The ratios of a text without an interval behind them; a cell of a row of numbers has it below."""
    alone = [value for value, below in CELL.findall(text) if RATIO.search(value) and not re.search(r"\d–\d", below)]
    told = unescape(re.sub(r"<[^>]+>", " ", CELL.sub(" ", text)))
    return alone + [
        told[max(0, found.start() - 40) : found.end() + 20]
        for found in RATIO.finditer(told)
        if not INTERVAL.match(told, found.end())
    ]


def bare_in(rows: Any) -> list[str]:
    """The ratios of a chart's rows whose interval is neither drawn nor said."""
    return [
        str(row["shown"])
        for row in rows.to_pylist()
        if RATIO.search(str(row.get("shown", ""))) and row.get("low") is None and bare(str(row["shown"]))
    ]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rows of each chart that is drawn."""
    frames: list[Any] = []
    chart = st.vega_lite_chart

    def kept(data: Any, *args: Any, **named: Any) -> Any:
        frames.append(data)
        return chart(data, *args, **named)

    monkeypatch.setattr(st, "vega_lite_chart", kept)
    return frames


def test_the_finder_finds() -> None:
    assert bare("faster by 1.25×.") == ["faster by 1.25×."]
    assert not bare("**1.25×** (1.20–1.30), 1.25×（1.20–1.30）, 2 × 3, 18 × kernel, 256×4096")
    cell = '<div class="wi-value">1.25×<small></small></div><div class="wi-sub">{}</div>'
    assert bare(cell.format("&nbsp;"))
    assert not bare(cell.format("1.20–1.30"))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("page", [*PAGES, *(f"learn/{name}/page" for name in LESSONS)])
def test_every_ratio_has_its_interval(lab: Open, drawn: list[Any], page: str, language: str) -> None:
    at = lab(page, lang=language, seen="1", **PARAMS.get(page, {}))
    texts = [item.value for kind in ("html", "markdown", "info") for item in at.get(kind)]
    texts = [re.sub(r"<(style|script)>.*?</\1>", " ", text, flags=re.S) for text in texts]
    assert [found for text in texts for found in bare(text)] == []
    assert [found for rows in drawn for found in bare_in(rows)] == []
