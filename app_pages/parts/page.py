"""The small pieces that pages are made of: a chart with its words, a title with its note, numbers in a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import streamlit as st
from streamlit.errors import StreamlitPageNotFoundError

from app_pages.parts import state
from app_pages.parts.charts import Chart, Row, csv_text
from app_pages.parts.palette import INK, ink_of
from app_pages.parts.texts.refusals import in_words
from scenarios.errors import printable

STYLE = """<style>
.wi-row{display:grid;grid-template-columns:repeat(auto-fit,minmax(11.5rem,1fr));gap:.25rem 2rem;margin:.25rem 0 .5rem}
.wi-cell{padding:.1rem 0 .1rem .9rem;border-left:2px solid color-mix(in srgb,currentColor 14%,transparent)}
.wi-cell.lead{border-left-color:#0f8f80}
.wi-label{font-size:.82rem;opacity:.78;letter-spacing:.01em}
.wi-value{font-size:1.85rem;font-weight:600;line-height:1.25;font-variant-numeric:tabular-nums;white-space:nowrap}
.wi-value small{font-size:1rem;font-weight:400;opacity:.78;margin-left:.25rem}
.wi-sub{font-size:.82rem;opacity:.78;font-variant-numeric:tabular-nums}
.wi-delta{font-size:.86rem;font-variant-numeric:tabular-nums;min-height:1.3em}
.wi-good{color:color-mix(in srgb,#0b8a66 62%,currentColor)}.wi-bad{color:color-mix(in srgb,#c9570a 70%,currentColor)}
.wi-same{opacity:.78}
.wi-say{font-size:1.05rem;line-height:1.5;max-width:72rem;margin:.35rem 0 .2rem}
.wi-say b{font-weight:600}
.wi-h{font-size:1.12rem;font-weight:600;line-height:1.4;margin:.9rem 0 .1rem;padding:0}
.wi-h1{font-size:1.6rem;font-weight:600;line-height:1.3;margin:0;padding:0}
.wi-quiet{font-size:.86rem;opacity:.78;line-height:1.5}
.wi-legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:.82rem;opacity:.85;margin:.15rem 0}
.wi-legend i{display:inline-block;width:.7rem;height:.7rem;border-radius:2px;margin-right:.35rem}
.wi-quiet code{font-size:.82rem}
.st-key-dimmed{opacity:.45}
[data-testid="stMultiSelectTagsContainer"] [data-tag]{background-color:#0f766e;color:#fff}
.katex-display>.katex{white-space:normal}
.wi-value,.wi-sub,.wi-delta{overflow-wrap:anywhere}
@media (max-width:640px){
.wi-row{grid-template-columns:repeat(2,minmax(0,1fr));gap:.25rem .75rem}
.wi-value{font-size:1.45rem}.wi-value,.wi-sub,.wi-delta{white-space:normal}
[data-testid="stMainBlockContainer"]{padding-left:.9rem;padding-right:.9rem}
}
</style>"""


#: Words of Streamlit's own widgets, which has them in English only.
WORDS = {
    "zh": """<style>
[data-testid="stFileUploaderDropzone"] button p,[data-testid="stFileUploaderDropzoneInstructions"] *{font-size:0}
[data-testid="stFileUploaderDropzone"] button p::after{content:"上传";font-size:.95rem}
[data-testid="stFileUploaderDropzoneInstructions"]::after{content:"或拖放到这里";font-size:.9rem;opacity:.8}
</style>"""
}

#: Longest line of a text from a file, characters.
MAX_LINE = 1000


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a row. low_high: its interval, or nothing. delta: its change, and whether that is good (None: it is
    neither)."""

    label: str
    value: str
    unit: str
    low_high: str = ""
    delta: str = ""
    good: bool | None = None


def figures(shown: Sequence[Figure]) -> None:
    """Numbers next to each other, the first one leading."""
    st.html(f'<div class="wi-row">{"".join(_cell(figure, not n) for n, figure in enumerate(shown))}</div>')


def _cell(figure: Figure, lead: bool) -> str:
    tone = {True: "wi-good", False: "wi-bad", None: "wi-same"}[figure.good]
    return (
        f'<div class="wi-cell{" lead" if lead else ""}" role="group" aria-label="{escape(figure.label)}">'
        f'<div class="wi-label">{escape(figure.label)}</div>'
        f'<div class="wi-value">{escape(figure.value)}<small>{escape(figure.unit)}</small></div>'
        f'<div class="wi-sub">{escape(figure.low_high) or "&nbsp;"}</div>'
        f'<div class="wi-delta {tone}">{escape(figure.delta) or "&nbsp;"}</div></div>'
    )


def sentence(lead: str, rest: str) -> None:
    """A sentence that is read before all else: its first words carry it."""
    st.html(f'<div class="wi-say"><b>{escape(lead)}</b> {escape(rest)}</div>')


def quiet(text: str) -> None:
    """What is true of all that is shown, in small type."""
    st.html(f'<div class="wi-quiet">{escape(text)}</div>')


def title(text: str, note: str) -> None:
    """The title of the page, and what it is about."""
    st.html(f'<h1 class="wi-h1">{escape(text)}</h1><div class="wi-quiet">{escape(note)}</div>')


def section(text: str, note: str = "") -> None:
    """The title of a part of the page, and one line about it."""
    below = f'<div class="wi-quiet">{escape(note)}</div>' if note else ""
    st.html(f'<h2 class="wi-h">{escape(text)}</h2>{below}')


def literal(text: str) -> str:
    """`text` as Markdown that shows it as it is, line by line: a name of a file may hold images, links or emphasis."""
    lines = (printable(" ".join(line.split()), MAX_LINE) for line in text.split("\n"))
    return "  \n".join(_code(line) if line else "" for line in lines)


def _code(line: str) -> str:
    """A code span, in more backticks than stand in a row in it."""
    runs = [len(run) for run in "".join(c if c == "`" else " " for c in line).split()]
    fence = "`" * (max(runs, default=0) + 1)
    return f"{fence} {line} {fence}" if line[0] == "`" or line[-1] == "`" else f"{fence}{line}{fence}"


def refusal(messages: Sequence[str], lead: str = "") -> None:
    """What is wrong with what the reader gave, as text; lead: what is said before it, in our own words."""
    said = literal("\n".join(in_words(message, state.language()) for message in messages))
    colon = "：" if state.language() == "zh" else ": "
    st.error(f"{lead}{colon}{said}" if lead else said)


def style(language: str) -> None:
    """How the pieces of this file look, and the language that readers of the screen take the page for; called once
    a run, before the page."""
    st.html(STYLE + WORDS.get(language, ""))
    code = {"zh": "zh-CN"}.get(language, language)
    st.html(f'<script>document.documentElement.lang = "{code}"</script>', unsafe_allow_javascript=True)


@contextmanager
def disclosure(label: str, name: str) -> Iterator[bool]:
    """A part that is folded away at first; gives whether it is open, so that what is not seen is not made."""
    folded = st.expander(label, key=f"group:{name}", on_change="rerun")
    with folded:
        yield bool(folded.open)


def link(page: str, label: str, icon: str, params: Mapping[str, str]) -> None:
    """A link to another page of the lab with parameters; where that page stands alone, a plain one."""
    try:
        st.page_link(page, label=label, icon=icon, query_params=dict(params))
    except StreamlitPageNotFoundError:
        st.html(f'<a href="/?{escape(urlencode(params))}">{escape(label)}</a>')


def inked(part: Any, colour: str) -> Any:
    """A specification with its plain text in the colour that is read on the reader's ground."""
    if isinstance(part, dict):
        return {key: inked(value, colour) for key, value in part.items()}
    if isinstance(part, list):
        return [inked(value, colour) for value in part]
    return colour if part == INK else part


def _entry(entry: tuple[str, str]) -> str:
    """One word of a legend with its colour; without one the word has its own sign."""
    word, colour = entry
    return f"<span>{f'<i style=background:{colour}></i>' if colour else ''}{escape(word)}</span>"


def _config(ink: str) -> dict[str, object]:
    """What all charts share: words in a colour that is read, where Streamlit's grey has a contrast of 3.7 on white, and
    no description by Vega, which is English whatever the language: each chart has its own for who does not see it."""
    words = {"labelColor": ink, "titleColor": ink, "aria": False}
    return {"lineBreak": "\n", "axis": words, "header": words, "legend": words}


def show(chart: Chart) -> None:
    """Draw a chart. Its key keeps the reader's zoom when only its data change."""
    if chart.legend:
        st.html(f'<div class="wi-legend">{"".join(map(_entry, chart.legend))}</div>')
    ink = ink_of(st.context.theme.type)
    spec = {**inked(chart.spec, ink), "config": _config(ink)}
    st.vega_lite_chart(_frame(chart.rows), spec, width="stretch", key=f"chart:{chart.name}", alt=chart.alt)


def show_with_data(chart: Chart) -> None:
    """Draw a chart, and below it the button that keeps its data."""
    show(chart)
    st.download_button(
        "CSV",
        lambda: csv_text(chart.rows),
        f"{chart.name}.csv",
        "text/csv",
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
        key=f"file:{chart.name}",
    )


def _frame(rows: Iterable[Row]) -> pa.Table:
    """Rows as columns, which travel to the browser in binary form."""
    listed = list(rows)
    return pa.table({key: [row[key] for row in listed] for key in (listed[0] if listed else {})})
