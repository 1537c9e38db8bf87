"""Where readers drop or paste files of their own; on every page, next to the choice of language."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app_pages.parts import dropped, own, sidebar
from app_pages.parts.own import Kind, Own
from app_pages.parts.page import literal, quiet
from app_pages.parts.state import Question
from app_pages.parts.texts import Language, Say, speaker
from app_pages.parts.texts.drop import TEXTS
from app_pages.parts.texts.refusals import in_words
from scenarios.errors import ScenarioError

ENDINGS = ("yaml", "yml", "json")
#: A checkpoint's own files are larger than those that people write.
MAX_MB = 64
TEXT = "drop:text"
#: What the last drop said: its messages, or none.
SAID = "kept:drop"
#: The files that the page below was drawn with.
DRAWN = "kept:drawn"


@st.fragment
def drop(language: Language) -> None:
    """The button, and what opens below it, which is drawn once it is open. A new file draws the page again: it can be
    chosen there."""
    say = speaker(TEXTS, language)
    # A fragment stands in a container of its own, which would start at the left.
    with st.container(horizontal=True, horizontal_alignment="right"):
        folded = st.popover(
            say("files"), icon=":material/upload_file:", help=say("files_help"), key="group:files", on_change="rerun"
        )
    if folded.open:
        with folded:
            _inside(language, say)
    if st.session_state.get(DRAWN, []) != own.mine():
        st.session_state[DRAWN] = list(own.mine())
        st.rerun()


def _inside(language: Language, say: Say) -> None:
    quiet(say("about"))
    files = st.file_uploader(
        say("upload"), list(ENDINGS), accept_multiple_files=True, key="drop:files", max_upload_size=MAX_MB
    )
    inside = st.file_uploader(
        say("folder"),
        list(ENDINGS),
        accept_multiple_files="directory",
        key="drop:folder",
        help=say("folder_help"),
        max_upload_size=MAX_MB,
    )
    for given in (files, inside):
        for message in dropped.add_all([(file.name, file.getvalue()) for file in given]):
            st.error(literal(in_words(message, language)))
    st.text_area(say("paste"), key=TEXT, height=120, placeholder="model: Qwen3-8B\nworkload:\n  batch: 8")
    st.button(say("add"), on_click=_pasted, key="drop:add")
    for message in st.session_state.pop(SAID, []):
        st.error(literal(in_words(message, language)))
    for kept in own.mine():
        _row(kept, say)


def _pasted() -> None:
    text = str(st.session_state.get(TEXT, ""))
    if not text.strip():
        return
    name = "config.json" if text.lstrip().startswith("{") else "pasted.yaml"
    try:
        own.add(name, text.encode())
    except ScenarioError as error:
        st.session_state[SAID] = list(error.messages)
    else:
        st.session_state[TEXT] = ""


def _row(kept: Own, say: Say) -> None:
    name, button = st.columns([3, 2], vertical_alignment="center")
    name.markdown(f"{literal(kept.name)} · {say(kept.kind)}")
    if button.button(say("open"), key=f"drop:open:{kept.ref}", width="stretch"):
        _open(kept)


#: What the Lab is asked of a kind of file; an engine profile is for the page that serves with it.
_QUESTIONS: dict[Kind, Callable[[str], Question]] = {
    "scenario": Question,
    "model": lambda ref: Question(sets=(("model", ref),)),
    "hardware": lambda ref: Question(sets=(("hardware", ref),)),
}


def _open(kept: Own) -> None:
    """In the Lab, or on the page that serves where the Lab has no question of such a file."""
    lang = {"lang": st.query_params["lang"]} if "lang" in st.query_params else {}
    ask = _QUESTIONS.get(kept.kind)
    if ask is None:
        st.switch_page("app_pages/serving.py", query_params={**lang, kept.kind: kept.ref})
    st.session_state.pop(sidebar.SHOWN, None)
    st.switch_page("app_pages/lab.py", query_params={**lang, **ask(kept.ref).params})
