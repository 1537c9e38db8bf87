"""Lesson: DP, TP, PP, SP and EP side by side."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.lesson import Lesson, Told, conclude, draw, labelled, model_and_chip, show_lesson
from app_pages.learn.parallelism import experiment as parallelism
from app_pages.learn.parallelism.experiment import Way
from app_pages.learn.parallelism.texts import TEXTS
from app_pages.parts import formats
from app_pages.parts.bound import steps
from app_pages.parts.charts.maps import matrices
from app_pages.parts.charts.plots import bars
from app_pages.parts.page import quiet, section, show
from app_pages.parts.palette import CLASSES, NEUTRAL
from app_pages.parts.texts.refusals import in_words

CARDS = (2, 4, 8)
REQUESTS = (8, 16, 32, 64, 128)
INPUT, OUTPUT = 1024, 256


@lru_cache(maxsize=64)
def _ways(model: str, hardware: str, cards: int, requests: int) -> list[Way]:
    return parallelism.ways(model, hardware, cards, requests, INPUT, OUTPUT)


@lru_cache(maxsize=64)
def _ties(model: str, hardware: str, cards: int, requests: int) -> list[Way]:
    possible = [way for way in _ways(model, hardware, cards, requests) if not way.refused]
    return parallelism.ties(min(possible, key=lambda w: w.tpot_ms), possible)


def _crowned(lesson: Lesson, best: Way, alike: list[Way]) -> str:
    """The best way, with those that cannot be distinguished from it."""
    return lesson.say("or").join(way.name for way in (best, *alike))


def body(lesson: Lesson) -> Told | None:
    model, hardware = model_and_chip(lesson, hardware="atlas_a3_die")
    with st.container(horizontal=True):
        cards = steps("cards", lesson.say("cards"), CARDS, 4)
        requests = steps("requests", lesson.say("requests"), REQUESTS, 16)
    ways = _ways(model, hardware, cards, requests)
    possible = [way for way in ways if not way.refused]
    if possible:
        fastest, most = min(possible, key=lambda w: w.tpot_ms), max(possible, key=lambda w: w.output_throughput)
        alike = {"fastest": _ties(model, hardware, cards, requests), "most": parallelism.as_much(most, possible)}
        conclude(
            lesson.say(
                "answer",
                requests=requests,
                cards=cards,
                hardware=hardware,
                fastest=_crowned(lesson, fastest, alike["fastest"]),
                most=_crowned(lesson, most, alike["most"]),
                tpot=formats.ms(1000 * fastest.tpot_ms),
                throughput=formats.whole(most.output_throughput),
            )
        )
        if any(alike.values()):
            quiet(lesson.say("tie"))
        labelled(lesson, hardware)
        left, middle, right = st.columns(3, gap="large")
        with left:
            _tpot(lesson, possible, fastest)
        with middle:
            _throughput(lesson, possible, most)
        with right:
            _memory(lesson, possible)
    _table(lesson, ways)
    _splits(lesson)
    if not possible:
        return None
    fastest = min(possible, key=lambda w: w.tpot_ms)
    return Told(
        rf"\text{{{lesson.say('card_weights')}}} \approx \frac{{W}}{{\text{{TP}} \times \text{{PP}}}} \quad "
        r"(\text{DP}: W, \; \text{EP}: W_{\text{dense}} + W_{\text{experts}} / n)",
        r",\; ".join(rf"\text{{{w.name}}}: {w.weights_bytes / formats.GIB:.1f}\,\text{{GiB}}" for w in possible)
        + rf" \quad (n = {cards})",
        fastest.case,
    )


def _splits(lesson: Lesson) -> None:
    """What each way splits, on two cards: a square is a piece of the model or of the data, its colour the card."""
    four = [[0.0] * 4] * 4
    halves, rows_halves = [0, 0, 1, 1], [0, 0, 1, 1]
    pictures = (
        ("DP", [("DP 0", four, [0] * 4), ("DP 1", four, [1] * 4)], ()),
        ("TP", [("TP", four, halves)], ()),
        ("PP", [("PP", four, rows_halves)], ("PP",)),
        ("SP", [("SP", four, rows_halves)], ("SP",)),
        ("EP", [("EP", four, halves)], ()),
    )
    section(lesson.say("pictures"), lesson.say("pictures_note"))
    for column, (name, shown, by_row) in zip(st.columns(5), pictures, strict=True):
        with column:
            chart = matrices(f"splits-{name}", shown, lesson.say(f"picture_{name}"), by_row, numbers=False)
            show(chart)
            quiet(lesson.say(f"picture_{name}"))


def _tpot(lesson: Lesson, possible: list[Way], fastest: Way) -> None:
    rows = [
        {
            "label": w.name,
            "series": lesson.say("tpot"),
            "value": w.tpot_ms,
            "low": w.tpot_low_ms,
            "high": w.tpot_high_ms,
            "shown": formats.number(w.tpot_ms),
        }
        for w in possible
    ]
    alt = lesson.say("tpot_alt", count=len(possible), fastest=fastest.name)
    draw(lesson.say("tpot"), bars("parallelism-tpot", rows, alt, {lesson.say("tpot"): CLASSES["matmul"]}))


def _throughput(lesson: Lesson, possible: list[Way], most: Way) -> None:
    rows = [
        {
            "label": w.name,
            "series": lesson.say("throughput"),
            "value": w.output_throughput,
            "low": w.throughput_low,
            "high": w.throughput_high,
            "shown": formats.whole(w.output_throughput),
        }
        for w in possible
    ]
    alt = lesson.say("throughput_alt", count=len(possible), most=most.name)
    draw(
        lesson.say("throughput"), bars("parallelism-throughput", rows, alt, {lesson.say("throughput"): CLASSES["norm"]})
    )


def _memory(lesson: Lesson, possible: list[Way]) -> None:
    parts = {lesson.say("weights"): CLASSES["matmul"], lesson.say("kv"): CLASSES["cache"], lesson.say("other"): NEUTRAL}
    rows = []
    for w in possible:
        rest = w.total_bytes - w.weights_bytes - w.kv_bytes
        for series, count in zip(parts, (w.weights_bytes, w.kv_bytes, rest), strict=True):
            rows.append({"label": w.name, "series": series, "value": count / formats.GIB, "shown": formats.size(count)})
    usable = possible[0].usable_bytes
    alt = lesson.say("memory_alt", usable=formats.size(usable))
    chart = bars("parallelism-memory", rows, alt, parts, title="GiB", stacked=True)
    draw(lesson.say("memory_chart"), chart, alt)


def _table(lesson: Lesson, ways: list[Way]) -> None:
    def shown(way: Way, value: str) -> str:
        return "–" if way.refused else value

    columns = {
        lesson.say("way"): [w.name for w in ways],
        lesson.say("splits"): [lesson.say(f"splits_{w.name}") for w in ways],
        lesson.say("tpot"): [
            shown(w, f"{formats.number(w.tpot_ms)} ({formats.number(w.tpot_low_ms)}–{formats.number(w.tpot_high_ms)})")
            for w in ways
        ],
        lesson.say("ttft"): [shown(w, formats.number(w.ttft_ms)) for w in ways],
        lesson.say("throughput"): [shown(w, formats.whole(w.output_throughput)) for w in ways],
        lesson.say("communication"): [shown(w, formats.number(w.communication_ms)) for w in ways],
        lesson.say("wait"): [shown(w, formats.number(w.wait_ms)) for w in ways],
        lesson.say("bubble"): [shown(w, formats.percent(w.bubble_share)) for w in ways],
        lesson.say("memory"): [shown(w, formats.size(w.total_bytes)) for w in ways],
    }
    st.table(columns)
    for way in ways:
        if way.refused:
            quiet(f"{lesson.say('refused')}: {way.name}. {in_words(way.refused, lesson.language)}")


show_lesson("parallelism", TEXTS, body)
