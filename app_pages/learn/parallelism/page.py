"""Lesson: DP, TP, PP, SP and EP side by side."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.lesson import Lesson, conclude, draw, labelled, lesson, model_and_chip, steps
from app_pages.learn.parallelism import experiment as parallelism
from app_pages.learn.parallelism.experiment import Way
from app_pages.learn.parallelism.texts import TEXTS
from app_pages.parts import formats
from app_pages.parts.charts.plots import bars
from app_pages.parts.page import quiet
from app_pages.parts.palette import CLASSES, NEUTRAL

CARDS = (2, 4, 8)
REQUESTS = (8, 16, 32, 64, 128)
INPUT, OUTPUT = 1024, 256


@lru_cache(maxsize=64)
def _ways(model: str, hardware: str, cards: int, requests: int) -> list[Way]:
    return parallelism.ways(model, hardware, cards, requests, INPUT, OUTPUT)


def body(it: Lesson) -> None:
    model, hardware = model_and_chip(it, hardware="atlas_a3_die")
    with st.container(horizontal=True):
        cards = steps(it, "cards", it.say("cards"), CARDS, 4)
        requests = steps(it, "requests", it.say("requests"), REQUESTS, 16)
    found = _ways(model, hardware, cards, requests)
    possible = [way for way in found if not way.refused]
    if possible:
        fastest, most = min(possible, key=lambda w: w.tpot_ms), max(possible, key=lambda w: w.output_throughput)
        conclude(
            it.say("answer", requests=requests, cards=cards, hardware=hardware, fastest=fastest.name, most=most.name,
                   tpot=formats.ms(1000 * fastest.tpot_ms), throughput=formats.whole(most.output_throughput))
        )  # fmt: skip
        labelled(it, hardware)
        left, middle, right = st.columns(3, gap="large")
        with left:
            _tpot(it, possible, fastest)
        with middle:
            _throughput(it, possible, most)
        with right:
            _memory(it, possible)
    _table(it, found)


def _tpot(it: Lesson, possible: list[Way], fastest: Way) -> None:
    rows = [
        {"label": w.name, "series": it.say("tpot"), "value": w.tpot_ms, "low": w.tpot_low_ms, "high": w.tpot_high_ms,
         "shown": formats.number(w.tpot_ms)}
        for w in possible
    ]  # fmt: skip
    alt = it.say("tpot_alt", count=len(possible), fastest=fastest.name)
    draw(it.say("tpot"), bars("parallelism-tpot", rows, alt, {it.say("tpot"): CLASSES["matmul"]}))


def _throughput(it: Lesson, possible: list[Way], most: Way) -> None:
    rows = [
        {"label": w.name, "series": it.say("throughput"), "value": w.output_throughput,
         "shown": formats.whole(w.output_throughput)}
        for w in possible
    ]  # fmt: skip
    alt = it.say("throughput_alt", count=len(possible), most=most.name)
    draw(it.say("throughput"), bars("parallelism-throughput", rows, alt, {it.say("throughput"): CLASSES["norm"]}))


def _memory(it: Lesson, possible: list[Way]) -> None:
    parts = {it.say("weights"): CLASSES["matmul"], it.say("kv"): CLASSES["cache"], it.say("other"): NEUTRAL}
    rows = []
    for w in possible:
        rest = w.total_bytes - w.weights_bytes - w.kv_bytes
        for series, count in zip(parts, (w.weights_bytes, w.kv_bytes, rest), strict=True):
            rows.append({"label": w.name, "series": series, "value": count / formats.GIB, "shown": formats.size(count)})
    usable = possible[0].usable_bytes
    alt = it.say("memory_alt", usable=formats.size(usable))
    chart = bars("parallelism-memory", rows, alt, parts, title="GiB", stacked=True)
    draw(it.say("memory_chart"), chart, alt)


def _table(it: Lesson, found: list[Way]) -> None:
    def shown(way: Way, value: str) -> str:
        return "–" if way.refused else value

    columns = {
        it.say("way"): [w.name for w in found],
        it.say("splits"): [it.say(f"splits_{w.name}") for w in found],
        it.say("tpot"): [
            shown(w, f"{formats.number(w.tpot_ms)} ({formats.number(w.tpot_low_ms)}–{formats.number(w.tpot_high_ms)})")
            for w in found
        ],
        it.say("ttft"): [shown(w, formats.number(w.ttft_ms)) for w in found],
        it.say("throughput"): [shown(w, formats.whole(w.output_throughput)) for w in found],
        it.say("communication"): [shown(w, formats.number(w.communication_ms)) for w in found],
        it.say("wait"): [shown(w, formats.number(w.wait_ms)) for w in found],
        it.say("bubble"): [shown(w, formats.percent(w.bubble_share)) for w in found],
        it.say("memory"): [shown(w, formats.size(w.total_bytes)) for w in found],
    }
    st.table(columns)
    for way in found:
        if way.refused:
            quiet(f"{it.say('refused')}: {way.name}. {way.refused}")


lesson("parallelism", TEXTS, body)
