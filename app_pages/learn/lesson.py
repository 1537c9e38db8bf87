"""The frame of a lesson: claim, question and guess above, the body with its controls in the URL, and below it the
formula with the reader's numbers, the measured figure, a limit of the model, what to try, and the ways on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

import streamlit as st

from app_pages.learn import texts as learn
from app_pages.learn.cases import question_of_case, why
from app_pages.parts import answers, formats, own, state
from app_pages.parts.bound import npus, picked
from app_pages.parts.charts import Chart
from app_pages.parts.glossary import glossed
from app_pages.parts.page import link, quiet, section, show_with_data
from app_pages.parts.texts import Language, Say, Table, speaker, verdicts
from app_pages.parts.texts.refusals import in_words
from app_pages.parts.verdict import verdict
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import model_names
from sim.predict.ratios import StepRatio
from sim.predict.steps import Case

MODEL, HARDWARE = "Qwen3-8B", "atlas_a2_910b2"
STYLE = """<style>
.wi-title{font-size:1.6rem;font-weight:600;line-height:1.3;margin:0;padding:0}
.wi-claim{font-size:1.12rem;line-height:1.55;max-width:60rem;margin:.35rem 0 .6rem;opacity:.86}
.wi-guess{border-left:3px solid #0f8f80;padding:.2rem 0 .2rem 1rem}
abbr[title]{text-decoration:underline dotted 1px;text-underline-offset:3px;cursor:help}
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


@dataclass(frozen=True, slots=True)
class Told:
    """What a lesson's body leaves for its end. formula: in letters (LaTeX); filled: the same with the numbers that the
    controls make. case: what the Lab opens with, None where no scenario is it. note: whether the texts have a
    `formula_note`."""

    formula: str
    filled: str
    case: Case | None = None
    note: bool = False


def show_lesson(name: str, table: Table, body: Callable[[Lesson], Told | None]) -> None:
    """Draw the lesson: its question and a guess first, then what answers it. A combination that is refused is said in
    place of the rest; the controls stay."""
    state.arrive(name)
    language = state.language()
    lesson = Lesson(name, speaker(table, language), speaker(learn.TEXTS, language), language)
    st.html(f'{STYLE}<h1 class="wi-title">{escape(lesson.say("title"))}</h1>')
    st.html(f'<p class="wi-claim">{glossed(lesson.say("claim"), language)}</p>')
    _question(lesson)
    if "guess" in table and not _guessed(lesson):
        _neighbours(lesson)
        return
    told = None
    try:
        told = body(lesson)
    except ScenarioError as error:
        st.error(lesson.common("refused", why=in_words(why(error), language)))
    if told is not None:
        _formula(lesson, told)
    tries = "".join(f"<li>{glossed(line, language)}</li>" for line in lesson.say("try").splitlines())
    parts = [part for part in ("measured", "limit") if part in table]
    ends = "".join(f"<h3>{escape(lesson.common(p))}</h3><p>{glossed(lesson.say(p), language)}</p>" for p in parts)
    st.html(f'<div class="wi-end">{ends}<h3>{escape(lesson.common("try"))}</h3><ul>{tries}</ul></div>')
    if told is not None and told.case is not None:
        params = {**question_of_case(told.case).params, "lang": language}
        link("app_pages/lab.py", lesson.common("in_lab"), ":material/tune:", params)
    _neighbours(lesson)


def _question(lesson: Lesson) -> None:
    heading, asked = escape(lesson.common("question")), glossed(lesson.say("question"), lesson.language)
    st.html(f'<div class="wi-end"><h3>{heading}</h3><p>{asked}</p></div>')


def _guessed(lesson: Lesson) -> bool:
    """A guess with three answers; whether the reader has chosen one, or asks to see. What was seen once stays open in
    this session, and a link with `seen` opens it at once."""
    key = f"kept:guess:{lesson.name}"
    if st.query_params.get("seen"):
        st.session_state.setdefault(key, "")
    if key not in st.session_state:
        with st.container(border=True):
            st.radio(
                f"**{lesson.common('guess_first')}** {lesson.say('guess')}",
                ("a", "b", "c"),
                index=None,
                key=f"guess:{lesson.name}",
                format_func=lambda choice: lesson.say(f"guess_{choice}"),
                on_change=_keep_guess,
                args=(lesson.name,),
            )
            st.button(lesson.common("show"), key=f"reveal:{lesson.name}", on_click=_keep_guess, args=(lesson.name,))
        return False
    chosen = st.session_state[key]
    right = lesson.say("guess_right")
    lead = {"": lesson.common("the_answer"), right: lesson.common("right")}.get(chosen, lesson.common("not_quite"))
    stop = "。" if lesson.language == "zh" else "."
    st.html(
        f'<div class="wi-say wi-guess"><b>{escape(lead)}</b> {escape(lesson.say("guess"))} '
        f"<b>{escape(lesson.say(f'guess_{right}'))}{stop}</b> {glossed(lesson.say('guess_why'), lesson.language)}</div>"
    )
    return True


def _keep_guess(name: str) -> None:
    st.session_state[f"kept:guess:{name}"] = st.session_state.get(f"guess:{name}") or ""


def _formula(lesson: Lesson, told: Told) -> None:
    """The formula of the lesson, and below it the same with the reader's numbers."""
    section(lesson.common("formula"), lesson.say("formula_note") if told.note else "")
    st.latex(told.formula)
    st.latex(told.filled)


def _neighbours(lesson: Lesson) -> None:
    """The lesson before this one and the one after it."""
    from app_pages.learn.lessons import LESSONS

    names = list(LESSONS)
    at = names.index(lesson.name)
    lang = {"lang": lesson.language}
    left, right = st.columns(2)
    places = ((left, at - 1, ":material/arrow_back:"), (right, at + 1, ":material/arrow_forward:"))
    for column, place, icon in places:
        if 0 <= place < len(names):
            heading = speaker(LESSONS[names[place]][1], lesson.language)("title")
            with column:
                link(f"app_pages/learn/{names[place]}/page.py", heading, icon, lang)


def conclude(text: str) -> None:
    """What the numbers on the page say, in one sentence that is made of them."""
    st.html(f'<div class="wi-say">{glossed(text, state.language())}</div>')


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


def evidence(lesson: Lesson, asked: Case, english: str) -> str:
    """Why a step has its bottleneck: as the simulator says it, in Chinese from the same numbers."""
    if lesson.language == "en":
        return english
    return verdict(answers.first(question_of_case(asked)).result, lesson.language)[1]


def ratio_words(lesson: Lesson, ratio: StepRatio, verdict: bool = True) -> str:
    """A ratio with its interval; verdict: and that it cannot be distinguished, where the interval holds 1."""
    ends = formats.ends(ratio.low, ratio.high)
    told = f"{formats.ratio(ratio.value)} ({ends})" if ends else formats.ratio(ratio.value)
    if not verdict or ratio.verdict != "not distinguishable":
        return told
    return f"{told}{lesson.common('comma')}{lesson.common('not_distinguishable')}"


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
