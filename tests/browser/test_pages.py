"""The lessons and the profile page in a real browser: each draws, nothing complains, and what is asked is shown.

Screenshots are kept in artifacts/, for people to look at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app_pages.learn import texts as learn
from app_pages.learn.fusion import experiment as fusion
from app_pages.learn.lesson import HARDWARE, MODEL
from app_pages.learn.lessons import LESSONS
from app_pages.learn.tiles.experiment import rows_on_each_core
from app_pages.parts import formats, profiles
from app_pages.parts.formats import number
from app_pages.parts.texts import LANGUAGES, Language, speaker
from scenarios.loader import load_scenario
from scenarios.trace import trace_text
from sim.predict.scenario_result import first_result, kernel_args
from tests.browser.lab import FOLLOW_MS, PICTURE, cut_text, drawn, low_contrast, settled, wait_number, wait_other

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("browser"),
]

#: Text of a chart that is too small to read.
SMALL_TEXT = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks text')]
    .filter((text) => text.textContent && parseFloat(getComputedStyle(text).fontSize) < 6)
    .map((text) => text.textContent)"""
#: Words of one chart that lie on each other.
ON_EACH_OTHER = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks')].flatMap((svg) => {
    const boxes = [...svg.querySelectorAll('text')].filter((text) => text.textContent)
        .map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width);
    return boxes.flatMap(([a, p], n) => boxes.slice(n + 1)
        .filter(([, q]) => p.left < q.right - 2 && q.left < p.right - 2 && p.top < q.bottom - 4 && q.top < p.bottom - 4)
        .map(([b]) => a + ' on ' + b));
})"""
FAILED = '[data-testid="stException"], [data-testid="stAlert"], [data-testid="stVegaLiteChart"] .error'


def open_lesson(page: Any, name: str, language: Language) -> None:
    """By the menu: of a deep link Streamlit asks for files next to it, and the console says that there are none."""
    _, texts = LESSONS[name]
    heading = speaker(texts, language)("title")
    page.get_by_role("button", name=speaker(learn.TEXTS, language)("section")).click()
    page.get_by_role("menuitem", name=heading).click()
    page.wait_for_function("(text) => document.querySelector('h1.wi-title')?.textContent === text", arg=heading)
    settled(page)
    page.get_by_role("button", name=speaker(learn.TEXTS, language)("show"), exact=True).click()
    settled(page)
    drawn(page)


def speak(page: Any, language: Language) -> None:
    page.get_by_text(LANGUAGES[language], exact=True).click()
    page.get_by_role("button", name=speaker(learn.TEXTS, language)("section")).wait_for()


def test_every_lesson_opens_with_its_charts(page: Any, address: str, shoot: Any) -> None:
    page.set_viewport_size({"width": 1440, "height": 1600})
    for scheme in ("light", "dark"):  # a chart has the ink of the theme that it was drawn in
        page.emulate_media(color_scheme=scheme)
        page.goto(address)
        for place, language in enumerate(LANGUAGES):
            speak(page, language)
            for name in list(LESSONS)[place :: len(LANGUAGES)]:
                open_lesson(page, name, language)
                assert page.locator(FAILED).all_text_contents() == [], name
                assert all(box["height"] > 60 for box in _charts(page)), name
                assert low_contrast(page) == [], (name, scheme)
                assert cut_text(page) == [], name
                shoot(page, f"learn-{name}-{language}-{scheme}")


def test_the_lessons_lead_on_and_back_and_to_the_lab(page: Any, address: str) -> None:
    names = list(LESSONS)
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.goto(address)
    speak(page, "zh")
    open_lesson(page, names[0], "zh")
    for name, way in [(name, "forward") for name in names[1:]] + [(name, "back") for name in names[-2::-1]]:
        heading = speaker(LESSONS[name][1], "zh")("title")
        links = page.locator('[data-testid="stMain"] [data-testid="stPageLink"] a').filter(has_text=heading)
        links.filter(visible=True).last.click()  # Streamlit keeps a second one of each, hidden
        page.wait_for_function("(text) => document.querySelector('h1.wi-title')?.textContent === text", arg=heading)
        settled(page)
        assert f"/learn_{name}" in page.url, way
        assert "lang=zh" in page.url, way
        assert page.locator(FAILED).all_text_contents() == [], name
    open_lesson(page, "tiles", "zh")
    page.get_by_role("link", name=speaker(learn.TEXTS, "zh")("in_lab")).click()
    tokens = rows_on_each_core(8).scenario.workload.input_tokens
    page.wait_for_url(f"**workload.input_tokens={tokens}*")
    settled(page)
    assert page.locator(FAILED).all_text_contents() == []


def test_matrices_and_block_tables_are_read_on_a_phone(page: Any, address: str) -> None:
    for name in ("tensor_parallel", "kv"):
        page.set_viewport_size({"width": 1440, "height": 1600})
        page.goto(address)
        speak(page, "en")
        open_lesson(page, name, "en")
        page.set_viewport_size({"width": 390, "height": 1000})
        page.wait_for_timeout(FOLLOW_MS)
        assert page.evaluate(SMALL_TEXT) == [], name
        assert page.evaluate(ON_EACH_OTHER) == [], name


def _charts(page: Any) -> list[Any]:
    return [chart.bounding_box() for chart in page.locator('[data-testid="stVegaLiteChart"]').all()]


def test_a_slider_of_a_lesson_moves_number_picture_and_url(page: Any, address: str) -> None:
    page.goto(address)
    speak(page, "en")
    open_lesson(page, "fusion", "en")

    def slowest(tokens: int) -> str:
        return number(fusion.forms(MODEL, HARDWARE, tokens)[0].device_us)

    wait_number(page, slowest(8))
    before = page.evaluate(PICTURE)
    page.get_by_role("slider").first.focus()
    for tokens in (16, 64):
        page.keyboard.press("ArrowRight")
        page.wait_for_url(f"**tokens={tokens}*")
        wait_number(page, slowest(tokens))
    wait_other(page, PICTURE, before)
    page.go_back()
    wait_number(page, slowest(16))


def test_a_profile_is_uploaded_diagnosed_and_replayed(page: Any, address: str, shoot: Any, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    prediction = first_result(load_scenario("qwen3_0_6b_decode", ["optimizations.graph=eager"])).prediction
    file.write_text(trace_text([prediction.timeline], [kernel_args(prediction)]))
    given = profiles.uploaded([(file.name, file.read_bytes())])
    plain, changed = (profiles.shown(given, "", "", what_if) for what_if in ("", "remove_host_gaps"))

    page.set_viewport_size({"width": 1440, "height": 1800})
    page.goto(address)
    speak(page, "en")
    page.get_by_role("link", name="Profile", exact=True).click()
    page.set_input_files('[data-testid="stFileUploader"] input[type="file"]', str(file))
    page.get_by_text(str(plain.result["bottleneck"]["evidence"])).wait_for()
    wait_number(page, number(plain.result["step"]["total_us"] / 1000))
    settled(page)
    drawn(page)
    shoot(page, "profile-en")

    before = page.evaluate(PICTURE)
    page.get_by_role("combobox", name="What if").click()
    page.get_by_role("option", name="remove_host_gaps").click()
    [row] = changed.result["chosen"]
    page.get_by_text(row["assumed"][0]).first.wait_for()
    wait_other(page, PICTURE, before)
    after = next(r["predicted_us"] for r in plain.result["what_if"]["rows"] if r["what_if"] == "remove_host_gaps")
    assert formats.time(after) in page.locator(".wi-cell").first.inner_text()
    page.wait_for_url("**what_if=remove_host_gaps*")
    settled(page)
    assert page.locator(FAILED).all_text_contents() == []
    shoot(page, "profile-what-if-en")
