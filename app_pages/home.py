"""The first page: what this is, and four doors into it. A link with a question goes on to the Lab."""

from __future__ import annotations

from html import escape

import streamlit as st

from app_pages.learn.lessons import LESSONS
from app_pages.parts import answers, formats, state
from app_pages.parts.page import quiet, sentence, title
from app_pages.parts.state import Question
from app_pages.parts.texts import Language, Say, speaker
from app_pages.parts.texts.home import TEXTS

#: The doors: key of their texts, icon, and the page behind them.
DOORS = (
    ("predict", ":material/tune:", "app_pages/lab.py"),
    ("measure", ":material/speed:", "app_pages/measure.py"),
    ("import", ":material/query_stats:", "app_pages/profile.py"),
    ("learn", ":material/school:", ""),
)


def main() -> None:
    asked = st.query_params.to_dict()
    if any(state.is_question(key) for key in asked):
        st.switch_page("app_pages/lab.py", query_params=asked)
    state.arrive("home")
    language = state.language()
    say = speaker(TEXTS, language)
    title(say("title"), say("about"))
    _doors(say)
    _sample(say)
    _four(language, say)


def _doors(say: Say) -> None:
    first = f"app_pages/learn/{next(iter(LESSONS))}/page.py"
    for column, (name, icon, page) in zip(st.columns(len(DOORS), gap="medium"), DOORS, strict=True):
        with column, st.container(border=True, height="stretch"):
            st.html(f'<h2 class="wi-h">{escape(say(name))}</h2><p class="wi-door">{escape(say(f"{name}_about"))}</p>')
            lang = st.query_params.get("lang")
            st.page_link(
                page or first, label=say(f"{name}_go"), icon=icon, query_params={"lang": lang} if lang else None
            )


def _sample(say: Say) -> None:
    """One prediction, and what was measured of it: that the numbers are numbers of something."""
    question = Question()
    metric = answers.first(question).result["metrics"]["tpot_ms"]
    near = answers.measured(question)
    assert near is not None
    told = say(
        "sample",
        predicted=formats.number(metric["value"]),
        ends=formats.interval(formats.number(metric["low"]), formats.number(metric["high"])),
        measured=formats.number(near.step_ms),
        source=near.source,
    )
    sentence(say("sample_lead"), told)
    quiet(say("sample_fit" if near.fitted else "sample_not_fit"))


def _four(language: Language, say: Say) -> None:
    """The four short sentences of the teaching, each with its lesson."""
    st.html(f'<h2 class="wi-h">{escape(say("four"))}</h2>')
    lang = st.query_params.get("lang")
    for column, (name, lesson) in zip(st.columns(4, gap="medium"), FOUR, strict=True):
        with column:
            st.html(f'<p class="wi-door"><b>{escape(say(name))}</b> {escape(say(f"{name}_about"))}</p>')
            heading = speaker(LESSONS[lesson][1], language)("title")
            st.page_link(
                f"app_pages/learn/{lesson}/page.py",
                label=heading,
                icon=LESSONS[lesson][0],
                query_params={"lang": lang} if lang else None,
            )


#: The sentences, and the lessons that show them.
FOUR = (("move_less", "kv"), ("write_once_less", "fusion"), ("move_while", "tiles"), ("wait_less", "graph"))

main()
