"""Each lesson as a page without a browser: it opens in both languages and follows its controls."""

from __future__ import annotations

import re
import string
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

pytest.importorskip("streamlit", reason="the lab needs streamlit: pip install 'ascend-whatif[app]'")

from streamlit.testing.v1 import AppTest

from app_pages.learn import texts as learn
from app_pages.learn.cases import case, question_of_case
from app_pages.learn.lessons import LESSONS
from app_pages.parts import answers
from app_pages.parts.glossary import glossed
from app_pages.parts.state import question_of
from app_pages.parts.texts import LANGUAGES, Language, speaker

TIMEOUT_S = 60
PAGES = Path(__file__).parents[2] / "app_pages" / "learn"


def opened(name: str, **params: str) -> AppTest:
    page = AppTest.from_file(str(PAGES / name / "page.py"), default_timeout=TIMEOUT_S)
    for key, value in {"seen": "1", **params}.items():
        page.query_params[key] = value
    return page.run()


@pytest.mark.parametrize("language", list(LANGUAGES))
@pytest.mark.parametrize("name", list(LESSONS))
def test_a_lesson_opens_with_its_claim_its_numbers_and_its_question(name: str, language: Language) -> None:
    page = opened(name, lang=language)
    assert not page.exception
    assert not page.error
    say = speaker(LESSONS[name][1], language)
    text = unescape(re.sub(r"<[^>]+>", "", " ".join(_said(page))))
    for key in ("title", "claim", "question", "measured", "limit", "guess_why"):
        assert say(key) in text
    assert speaker(learn.TEXTS, language)("try") in text
    assert len(page.get("vega_lite_chart") or page.get("arrow_vega_lite_chart")) >= 1


@pytest.mark.parametrize(("name", "key", "value"), [
    ("fusion", "tokens", 1024),
    ("attention", "tile", 32),
    ("graph", "batch", 64),
    ("kv", "shared", 256),
    ("tensor_parallel", "ranks", 8),
    ("overlap", "tokens", 256),
    ("parallelism", "cards", 2),
    ("experiment", "batch", 16),
    ("op_kernel", "tokens", 8),
    ("tiles", "buffers", 1),
    ("shapes", "new", 20),
    ("second_card", "requests", 64),
])  # fmt: skip
def test_a_slider_changes_what_the_lesson_says(name: str, key: str, value: int) -> None:
    page = opened(name, lang="en")
    before = _said(page)
    page.select_slider(key=key).set_value(value).run()
    assert not page.exception
    assert _said(page) != before


def _said(page: AppTest) -> list[str]:
    return [str(html.proto.body) for html in page.get("html")]


def test_a_link_opens_where_it_was_made() -> None:
    page = opened("graph", lang="en", batch="64", graph="aclgraph")
    assert page.select_slider(key="batch").value == 64
    assert any("Batch 64" in text for text in _said(page))


def test_what_is_refused_is_said_and_the_controls_stay() -> None:
    page = opened("bottlenecks", lang="en", model="DeepSeek-V3")
    assert not page.exception
    page = opened("graph", lang="en", model="DeepSeek-V3")
    assert not page.exception
    assert "does not fit" in page.error[0].value
    assert page.select_slider(key="batch").value == 1


def test_ways_that_are_not_possible_say_why() -> None:
    page = opened("parallelism", lang="en")
    assert any("no experts" in text for text in _said(page))


def test_no_factor_is_said_so() -> None:
    page = opened("experiment", lang="en")
    page.multiselect(key="factors").set_value([]).run()
    assert not page.exception
    assert page.info[0].value == "Choose at least one factor."


@pytest.mark.parametrize("name", list(LESSONS))
def test_both_languages_say_everything_with_the_same_values(name: str) -> None:
    for key, both in LESSONS[name][1].items():
        english, chinese = ({field for _, field, _, _ in string.Formatter().parse(text) if field} for text in both)
        assert all(both), key
        assert english == chinese, key


def test_a_lesson_asks_before_it_answers() -> None:
    page = AppTest.from_file(str(PAGES / "tiles" / "page.py"), default_timeout=TIMEOUT_S)
    page.query_params["lang"] = "en"
    page.run()
    say = speaker(LESSONS["tiles"][1], "en")
    assert say("guess_why") not in unescape(" ".join(_said(page)))
    assert not page.get("vega_lite_chart")
    page.radio(key="guess:tiles").set_value("a").run()
    text = unescape(re.sub(r"<[^>]+>", "", " ".join(_said(page))))
    assert "Not quite." in text
    assert say("guess_why") in text
    assert page.get("vega_lite_chart")


@pytest.mark.parametrize("name", list(LESSONS))
def test_a_lesson_has_its_guess_its_figure_and_its_limit(name: str) -> None:
    texts = LESSONS[name][1]
    right = texts["guess_right"]
    assert right[0] == right[1] in ("a", "b", "c")
    assert len({texts[f"guess_{choice}"] for choice in "abc"}) == 3
    english, chinese = texts["measured"]
    assert re.search(r"[0-9]", english)
    assert re.findall(r"[0-9]+\.[0-9]+", english) == re.findall(r"[0-9]+\.[0-9]+", chinese)


@pytest.mark.parametrize("name", list(LESSONS))
def test_the_state_of_a_lesson_opens_in_the_lab(name: str) -> None:
    """The link's question can be asked: the Lab refuses nothing that the lesson shows."""
    page = opened(name, lang="en")
    [link] = [text for text in _said(page) if speaker(learn.TEXTS, "en")("in_lab") in text]
    [query] = re.findall(r'href="/\?([^"]*)"', link)
    asked = question_of(dict(parse_qsl(unescape(query))))
    assert answers.first(asked).result["step"]["total_us"] > 0


def test_a_case_and_its_question_are_the_same_scenario() -> None:
    for sets in (
        ("model=Qwen3-8B", "hardware=atlas_a2_910b2", "optimizations.graph=eager", "workload.batch=4"),
        ("model=Qwen3-30B-A3B", "engine.tensor_parallel_size=2", "engine.enable_expert_parallel=true"),
    ):
        lesson = case(*sets)
        loaded = answers.loaded(question_of_case(lesson)).scenario
        assert loaded.model_copy(update={"description": ""}) == lesson.scenario.model_copy(update={"description": ""})


def test_words_of_the_field_are_explained_on_hover() -> None:
    html = glossed("MTE2 fills the UB; MTE2 & <b>", "en")
    assert html.count("<abbr") == 2
    assert "&lt;b&gt;" in html
    assert "核" in glossed("UB", "zh")


def questions() -> dict[str, list[tuple[str, str]]]:
    """(question, place) by lesson, of the table in docs/app.md."""
    text = (PAGES.parents[1] / "docs" / "app.md").read_text(encoding="utf-8")
    asked: dict[str, list[tuple[str, str]]] = {}
    for lesson, question, place in re.findall(r"^\| (\w+) \| ([^|]+\?) \| ([^|]+) \|$", text, re.MULTILINE):
        asked.setdefault(lesson, []).append((question, place))
    return asked


def places(name: str, place: str, language: Language) -> list[str]:
    """Patterns, any of which is on the page where the place is."""
    both = list(LANGUAGES).index(language)
    table = LESSONS[name][1]
    if place.startswith('"'):
        texts = [value[both] for value in table.values() if place.strip('"') in value[0]]
    else:
        word = {"guess": "guess_why"}.get(place, place)
        texts = [
            line
            for key, value in table.items()
            if key.split("_")[0] == word or key == word
            for line in value[both].splitlines()
        ]
    assert texts, f"{name}: no text has {place}"
    return [".+?".join(map(re.escape, re.split(r"\{\w+\}", " ".join(text.split())))) for text in texts]


def test_each_lesson_has_five_questions() -> None:
    asked = questions()
    assert list(asked) == list(LESSONS)
    assert {len({question for question, _ in lines}) for lines in asked.values()} == {5}


@pytest.mark.parametrize("language", list(LANGUAGES))
@pytest.mark.parametrize("name", list(LESSONS))
def test_the_answers_to_its_questions_are_on_the_page(name: str, language: Language) -> None:
    page = opened(name, lang=language)
    kinds = ("radio", "select_slider", "selectbox", "multiselect", "button_group")
    labels = [str(widget.proto.label) for kind in kinds for widget in page.get(kind)]
    tables = [table.value.to_csv() for table in (*page.table, *page.dataframe)]
    text = " ".join(unescape(re.sub(r"<[^>]+>", "", " ".join([*_said(page), *labels, *tables]))).split())
    for question, place in questions()[name]:
        if place == "formula":
            assert len(page.latex) == 2, question
            assert speaker(learn.TEXTS, language)("formula") in text, question
        else:
            assert any(re.search(pattern, text) for pattern in places(name, place, language)), f"{question}: {place}"
