"""The lab: one scenario, its switches next to it, and at once what they do to the step."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app_pages.parts import answers, sidebar, state
from app_pages.parts.lab import files, gains, head, pictures
from app_pages.parts.lab.view import BASELINE, View, pinned
from app_pages.parts.page import quiet
from app_pages.parts.state import Question
from app_pages.parts.texts import Language, Say, speaker
from app_pages.parts.texts.lab import TEXTS
from scenarios.errors import ScenarioError

#: Parameters of the URL that say how the answer is looked at.
VIEWS = (BASELINE, pictures.LAYER, pictures.RANKS)


def main() -> None:
    state.arrive("lab", lambda key: state.is_question(key) or key in VIEWS)
    language = state.language()
    say = speaker(TEXTS, language)
    question = state.question_of(st.query_params.to_dict())
    refused: dict[str, str] = {}
    answer = None
    try:
        answer = answers.first(question)
    except ScenarioError as error:
        refused = head.by_field(error)
    if answer is None:
        _settings(question, language, refused)
        head.refusal(question, refused, language, say)
        _last_good(language, say)
        return
    st.session_state["kept:good"] = question
    view = View(question, answer, pinned(), language, say)
    head.title(view)
    head.numbers(view)
    head.bottleneck(view)
    head.measured(view)
    quiet(files.provenance(view))
    charts = pictures.timelines(view)
    # Behind what a reader waits for: the side bar's forty messages would keep the browser from drawing the numbers.
    _settings(question, language, refused)
    wide, narrow = st.columns([3, 2], gap="large")
    with narrow:
        charts += [*pictures.composition(view), *pictures.memory(view), *pictures.roofline(view)]
    with wide:
        later = st.container()
    pictures.kernels(view)
    files.files(view, charts)
    with later:
        gains.gains(view)


def _settings(question: Question, language: Language, refused: Mapping[str, str]) -> None:
    with st.sidebar:
        sidebar.settings(question, language, refused)


def _last_good(language: Language, say: Say) -> None:
    """The numbers of the last question that had an answer, dimmed: what is refused does not wipe what was seen."""
    good = st.session_state.get("kept:good")
    if good is None:
        return
    view = View(good, answers.first(good), pinned(), language, say)
    with st.container(key="dimmed"):
        quiet(say("last_good", command=good.command))
        head.numbers(view)
        head.bottleneck(view)


main()
