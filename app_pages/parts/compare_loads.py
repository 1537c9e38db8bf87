"""The compare page where a side is a load test: what requests met at each load, and which part of a request changed."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app_pages.parts import formats, state
from app_pages.parts.charts.bars import differences
from app_pages.parts.page import Figure, figures, quiet, section, sentence, show_with_data
from app_pages.parts.texts import Say
from app_pages.parts.texts.captures import translated
from app_pages.parts.texts.compare import TEXTS
from sim.compare.loads import distinguishable

_METRICS = ("ttft_ms", "tpot_ms", "e2el_ms", "output_throughput")


def requests(result: dict[str, Any], say: Say) -> None:
    """The part `serving` of a `compare` document whose sides have no step in common."""
    serving = result["serving"]
    if not serving["loads"]:
        quiet(say("no_common_load"))
        return
    _numbers(serving, say)
    _likely(serving, say)
    _causes(serving["loads"][-1], say)
    with st.expander(say("loads"), expanded=True):
        _table(serving["loads"], say)


def _numbers(serving: dict[str, Any], say: Say) -> None:
    """Of the heaviest load that both ran."""
    load = serving["loads"][-1]
    e2el = load["metrics"]["e2el_ms"]
    ratio = e2el["a"] / e2el["b"]
    words = say("as_fast") if not load["causes"] else say("faster" if ratio > 1 else "slower")
    ends, told = "", ""
    if load["causes"] and e2el["low"] is not None:
        low, high = sorted((1 / e2el["high"], 1 / e2el["low"])) if ratio > 1 else (e2el["low"], e2el["high"])
        ends = say("ratio_interval", ends=formats.interval(f"{low:.2f}", f"{high:.2f}"))
        told = "" if distinguishable(e2el) else say("not_distinguishable")
    figures(
        [
            Figure(say("request_of", side="A"), formats.number(e2el["a"]), "ms", _named(load)),
            Figure(say("request_of", side="B"), formats.number(e2el["b"]), "ms", _named(load)),
            Figure(say("ratio"), formats.ratio(max(ratio, 1 / ratio)), words, ends, told),
        ]
    )


def _likely(serving: dict[str, Any], say: Say) -> None:
    loads_differ = any(row["part"] == "load" for row in serving["likely"])
    for row in serving["likely"]:
        values = {key: f"{row[key]:,.3g}" for key in ("a_ms", "b_ms", "low_ms", "high_ms") if key in row}
        if row["part"] == "load":
            sentence(say("likely_load", **values), say("speaks_load", share=f"{row['share']:.0%}"))
            continue
        said = f"beyond_{row['part']}" if loads_differ else f"likely_{row['part']}"
        sentence(say(said, **values), say(f"speaks_{row['part']}", side=row["side"]))


def _causes(load: dict[str, Any], say: Say) -> None:
    section(say("request_causes"), say("request_causes_note", load=_named(load)))
    rows = [
        {"label": _cause(row["cause"], say), "change": row["change_ms"], "a": row["a_ms"], "b": row["b_ms"]}
        for row in load["causes"]
    ]
    if not rows:
        quiet(say("as_fast"))
        return
    parts = ", ".join(f"{row['label']} {row['change']:+,.1f} ms" for row in rows)
    show_with_data(differences("request", rows, say("cause"), say("causes_alt", parts=parts)))


def _named(load: dict[str, Any]) -> str:
    """A load as its label says it, in the reader's language."""
    return translated(load["load"], state.language())


def _cause(cause: str, say: Say) -> str:
    return say(f"cause_{cause}") if f"cause_{cause}" in TEXTS else cause


def _table(loads: list[dict[str, Any]], say: Say) -> None:
    columns: dict[str, list[Any]] = {say("load"): [_named(load) for load in loads]}
    for metric in _METRICS:
        pairs = [load["metrics"].get(metric) for load in loads]
        if any(pairs):
            for side in ("a", "b"):
                columns[f"{side.upper()} {say(f'metric_{metric}')}"] = [pair and pair[side] for pair in pairs]
    number = st.column_config.NumberColumn(format="%.1f")
    st.dataframe(columns, hide_index=True, alt=say("loads"), column_config=dict.fromkeys(list(columns)[1:], number))
