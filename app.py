"""The what-if lab (`whatif app`): language, navigation, and the page that is asked for. No logic."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app_pages.learn import texts as learn
from app_pages.learn.lessons import LESSONS
from app_pages.parts import page, state
from app_pages.parts.drop import drop
from app_pages.parts.texts import LANGUAGES, speaker
from app_pages.parts.texts.common import TEXTS

#: Drawn here and not fetched: the lab asks nothing of other machines.
ICON = Path(__file__).parent / "app_pages" / "icon.svg"
#: The pages in the order of the menu: file, and its icon. Titles are in the texts, under the page's name.
PAGES = {
    "home": ":material/home:",
    "lab": ":material/tune:",
    "serving": ":material/dns:",
    "sweep": ":material/grid_view:",
    "measure": ":material/speed:",
    "compare": ":material/compare_arrows:",
    "profile": ":material/query_stats:",
    "calibration": ":material/scatter_plot:",
}


def _choose_language() -> None:
    state.write({"lang": st.session_state["lang"]})


def main() -> None:
    # First of all: without an icon of its own a page would have its symbol fetched from another host.
    st.set_page_config(page_icon=ICON, layout="wide")
    language = state.language()
    say = speaker(TEXTS, language)
    pages = [
        st.Page(f"app_pages/{name}.py", title=say(name), icon=icon, default=name == "home", help=say(f"{name}_help"))
        for name, icon in PAGES.items()
    ]
    lessons = []
    for name, (icon, texts) in LESSONS.items():
        said = speaker(texts, language)
        lessons.append(
            st.Page(
                f"app_pages/learn/{name}/page.py",
                title=said("title"),
                icon=icon,
                url_path=f"learn_{name}",
                help=said("question"),
            )
        )
    chosen = st.navigation({"": pages, speaker(learn.TEXTS, language)("section"): lessons}, position="top")
    st.set_page_config(page_title=f"{chosen.title} · {say('app')}")
    page.style(language)
    with st.container(horizontal=True, horizontal_alignment="right"):
        drop(language)
        st.session_state["lang"] = language
        st.segmented_control(
            say("language"),
            list(LANGUAGES),
            key="lang",
            required=True,
            format_func=lambda code: LANGUAGES[code],
            on_change=_choose_language,
            label_visibility="collapsed",
        )
    chosen.run()


main()
