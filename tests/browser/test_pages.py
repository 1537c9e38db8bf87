"""The lessons and the profile page in a real browser: each draws, nothing complains, and what is asked is shown.

Screenshots are kept in artifacts/, for people to look at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app_pages.parts import profiles
from app_pages.parts.formats import number
from app_pages.parts.lessons import LESSONS
from app_pages.parts.texts import LANGUAGES, Language, learn, speaker
from scenarios.loader import load_scenario
from scenarios.trace import trace_text
from sim.answer import first_answer, kernel_args
from sim.lessons import fusion
from tests.browser.lab import NUMBER, PICTURE, drawn, settled, wait_number, wait_other

pytestmark = [
    pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.xdist_group("browser"),
]  # fmt: skip

FAILED = '[data-testid="stException"], [data-testid="stAlert"], [data-testid="stVegaLiteChart"] .error'


def open_lesson(page: Any, name: str, language: Language) -> None:
    """By the menu: Streamlit asks the server for files beside a deep link, and the console says that they are not there."""
    _, texts = LESSONS[name]
    heading = speaker(texts, language)("title")
    page.get_by_role("button", name=speaker(learn.TEXTS, language)("section")).click()
    page.get_by_role("menuitem", name=heading).click()
    page.wait_for_function("(text) => document.querySelector('h1.wi-title')?.textContent === text", arg=heading)
    settled(page)
    drawn(page)


def speak(page: Any, language: Language) -> None:
    page.get_by_text(LANGUAGES[language], exact=True).click()
    page.get_by_role("button", name=speaker(learn.TEXTS, language)("section")).wait_for()


def test_every_lesson_opens_with_its_charts(page: Any, address: str, shoot: Any) -> None:
    page.set_viewport_size({"width": 1440, "height": 1600})
    page.goto(address)
    drawn(page)
    for place, language in enumerate(LANGUAGES):
        speak(page, language)
        for name in list(LESSONS)[place :: len(LANGUAGES)]:
            open_lesson(page, name, language)
            assert page.locator(FAILED).all_text_contents() == [], name
            assert all(box["height"] > 60 for box in _charts(page)), name
            shoot(page, f"learn-{name}-{language}")


def _charts(page: Any) -> list[Any]:
    return [chart.bounding_box() for chart in page.locator('[data-testid="stVegaLiteChart"]').all()]
