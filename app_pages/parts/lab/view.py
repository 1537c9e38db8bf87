"""What the parts of the lab's page are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from app_pages.parts import answers
from app_pages.parts.palette import CLASSES
from app_pages.parts.state import Question, unpacked
from app_pages.parts.texts import Language, Say, common, speaker
from scenarios.errors import ScenarioError
from sim.predict.scenario_result import ScenarioResult

#: The parameter of the URL that holds the pinned question.
BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class View:
    """A question with its answer, the baseline it is held against, and the reader's language."""

    question: Question
    answer: ScenarioResult
    baseline: ScenarioResult | None
    language: Language
    say: Say

    @property
    def result(self) -> dict[str, Any]:
        return self.answer.result

    @property
    def classes(self) -> dict[str, str]:
        """Words for the classes of work."""
        return class_words(self.language)

    @property
    def hovers(self) -> dict[str, str]:
        """Words for what a hover shows."""
        return hover_words(self.language)


def class_words(language: Language) -> dict[str, str]:
    say = speaker(common.TEXTS, language)
    return {name: say(f"class_{name}") for name in CLASSES}


def hover_words(language: Language) -> dict[str, str]:
    say = speaker(common.TEXTS, language)
    return {name: say(f"hover_{name}") for name in common.HOVERS}


def pinned() -> ScenarioResult | None:
    """The answer to the pinned question, None where none is pinned or what the link pins has no answer."""
    text = st.query_params.get(BASELINE, "")
    if not text:
        return None
    try:
        return answers.first(unpacked(text))
    except ScenarioError:
        return None
