"""The frame of a lesson: its claim above, its controls in the URL, the question it answers and what to try below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

import streamlit as st

from app_pages.learn import texts as learn
from app_pages.learn.cases import why
from app_pages.parts import own, state
from app_pages.parts.bound import npus, picked
from app_pages.parts.charts import Chart
from app_pages.parts.page import quiet, section, show_with_data
from app_pages.parts.texts import Language, Say, Table, speaker, verdicts
from app_pages.parts.texts.refusals import in_words
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import model_names

MODEL, HARDWARE = "Qwen3-8B", "atlas_a2_910b2"
STYLE = """<style>
.wi-title{font-size:1.6rem;font-weight:600;line-height:1.3;margin:0;padding:0}
.wi-claim{font-size:1.12rem;line-height:1.55;max-width:60rem;margin:.35rem 0 .6rem;opacity:.86}
.wi-end{border-left:3px solid #0f8f80;padding:.2rem 0 .2rem 1rem;margin:1.2rem 0 .4rem;max-width:60rem}
.wi-end h3{font-size:.86rem;font-weight:600;opacity:.66;margin:0;padding:0}
.wi-end p{margin:.1rem 0 .7rem;line-height:1.55}
.wi-end ul{margin:.1rem 0;padding-left:1.1rem;line-height:1.6}
</style>"""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson while it is drawn: its name in the URL, its texts and those that all share, the reader's language."""

    name: str
    say: Say
    common: Say
    language: Language


def show_lesson(name: str, table: Table, body: Callable[[Lesson], None]) -> None:
    """Draw the lesson. A combination that is refused is said in place of the rest; the controls stay."""
    state.arrive(name)
    language = state.language()
    lesson = Lesson(name, speaker(table, language), speaker(learn.TEXTS, language), language)
    claim = f'<p class="wi-claim">{escape(lesson.say("claim"))}</p>'
    st.html(f'{STYLE}<h1 class="wi-title">{escape(lesson.say("title"))}</h1>{claim}')
    try:
        body(lesson)
    except ScenarioError as error:
        st.error(lesson.common("refused", why=in_words(why(error), language)))
    tries = "".join(f"<li>{escape(line)}</li>" for line in lesson.say("try").splitlines())
    st.html(
        f'<div class="wi-end"><h3>{escape(lesson.common("question"))}</h3><p>{escape(lesson.say("question"))}</p>'
        f"<h3>{escape(lesson.common('try'))}</h3><ul>{tries}</ul></div>"
    )


def conclude(text: str) -> None:
    """What the numbers on the page say, in one sentence that is made of them."""
    st.html(f'<div class="wi-say">{escape(text)}</div>')


def model_and_chip(lesson: Lesson, model: str = MODEL, hardware: str = HARDWARE) -> tuple[str, str]:
    """Pickers of the model and of the Ascend chip that times are predicted for."""
    with st.sidebar:
        return (
            picked("model", lesson.common("model"), [*model_names(), *own.refs("model")], model),
            picked("hardware", lesson.common("hardware"), npus(), hardware),
        )


def bottleneck_name(lesson: Lesson, name: str) -> str:
    """A bottleneck's name in the reader's language."""
    return speaker(verdicts.TEXTS, lesson.language)(name).rstrip(":：.。")


def labelled(lesson: Lesson, hardware: str, computed: bool = False) -> None:
    """Where the numbers come from."""
    quiet(lesson.common("predicted" if computed else "predicted_only", hardware=hardware))


def draw(title: str, chart: Chart, note: str = "") -> None:
    """A chart under its title, what to see in it, and its data to keep."""
    if title:
        section(title)
    show_with_data(chart)
    if note:
        quiet(note)
