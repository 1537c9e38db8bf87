"""What a reader takes away: scenario, answer, trace, the data of each chart; and where the numbers are from."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import streamlit as st

from app_pages.parts import answers, own, perfetto
from app_pages.parts.charts import Chart, csv_text
from app_pages.parts.lab.view import View
from app_pages.parts.page import disclosure, quiet
from scenarios.resolved import resolved_yaml


def files(view: View, charts: Sequence[Chart]) -> None:
    """The command that asks the same, and the files."""
    say = view.say
    with disclosure(say("download"), "download") as open_:
        if open_:
            _files(view, charts)
    if perfetto.folder() is not None:
        with disclosure(say("perfetto"), "perfetto") as open_:
            if open_:
                digest = perfetto.keep(answers.trace(view.question))
                st.iframe(perfetto.address(_origin(), digest), height=620, alt=say("perfetto_open"))


def _files(view: View, charts: Sequence[Chart]) -> None:
    say, name, scenario = view.say, view.result["scenario"]["name"], view.answer.prediction.case.scenario
    st.code(view.question.command, language=None, wrap_lines=True)
    with st.container(horizontal=True):
        _file(say("download_yaml"), f"{name}.yaml", "text/yaml", lambda: own.plain(resolved_yaml(scenario)))
        _file(say("download_json"), f"{name}.json", "application/json", lambda: answers.json_text(view.question))
        _file(say("download_trace"), f"{name}.trace.json", "application/json", lambda: answers.trace(view.question))
        for chart in charts:
            chart_file(view, chart)
    quiet(say("download_png"))


def _origin() -> str:
    """Scheme and host of the lab as the reader's browser has them."""
    url = urlsplit(st.context.url or "")
    return f"{url.scheme}://{url.netloc}"


def chart_file(view: View, chart: Chart) -> None:
    """The button that saves the data of a chart."""
    name = view.result["scenario"]["name"]
    label = view.say("download_csv", chart=view.say(f"file_{chart.name}"))
    _file(label, f"{name}.{chart.name}.csv", "text/csv", lambda: csv_text(chart.rows))


def _file(label: str, name: str, mime: str, data: object) -> None:
    st.download_button(label, data, name, mime, on_click="ignore", key=f"file:{name}", icon=":material/download:")  # type: ignore[arg-type]


def provenance(view: View) -> str:
    """Predicted, and from which kinds of numbers."""
    numbers = view.result["provenance"]["sources"]
    sources = ", ".join(view.say(f"source_{source}", n=numbers[source]) for source in numbers)
    return view.say("provenance", sources=sources)
