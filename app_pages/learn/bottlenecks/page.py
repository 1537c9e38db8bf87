"""Lesson: find the bottleneck first."""

from __future__ import annotations

import streamlit as st

from app_pages.learn.bottlenecks.experiment import Situation, situations
from app_pages.learn.bottlenecks.texts import TEXTS
from app_pages.learn.lesson import Lesson, bottleneck_name, conclude, draw, labelled, lesson, model_and_chip
from app_pages.parts import formats
from app_pages.parts.charts.plots import bars
from app_pages.parts.palette import CLASSES, NEUTRAL

COLOURS = {
    "host-bound": CLASSES["host"], "HBM-bound": CLASSES["vector"], "cube-bound": CLASSES["matmul"],
    "vector-bound": CLASSES["norm"], "communication-bound": CLASSES["communication"], "idle": NEUTRAL,
}  # fmt: skip


def body(it: Lesson) -> None:
    model, hardware = model_and_chip(it)
    found = situations(model, hardware)
    if fitting := [s for s in found if s.limits_us]:
        _chart(it, model, hardware, found, fitting)
    _table(it, found)


def _chart(it: Lesson, model: str, hardware: str, found: list[Situation], fitting: list[Situation]) -> None:
    times = [1000 * s.step_ms for s in fitting]
    conclude(
        it.say(
            "answer", model=model, hardware=hardware, distinct=len({s.bottleneck for s in found}), count=len(found),
            fastest=formats.ms(min(times)), slowest=formats.ms(max(times)),
        )
    )  # fmt: skip
    labelled(it, hardware)
    words = {name: it.say("idle") if name == "idle" else bottleneck_name(it, name) for name in COLOURS}
    rows = [mark for s in fitting for mark in _parts(it, s, words)]
    colours = {words[name]: colour for name, colour in COLOURS.items() if any(r["series"] == words[name] for r in rows)}
    alt = it.say("chart_alt", count=len(fitting), model=model)
    draw(it.say("chart"), bars("bottlenecks", rows, alt, colours, title="%", stacked=True))


def _parts(it: Lesson, found: Situation, words: dict[str, str]) -> list[dict[str, object]]:
    """Shares of the step, percent."""
    step_us = 1000 * found.step_ms
    parts = {name: us for name, us in found.limits_us.items() if name in words}
    parts["idle"] = max(0.0, step_us - sum(parts.values()))
    return [
        {"label": it.say(f"situation_{found.name}"), "series": words[name], "value": 100 * us / step_us,
         "shown": f"{formats.percent(us / step_us)}, {formats.time(us)}"}
        for name, us in parts.items()
    ]  # fmt: skip


def _table(it: Lesson, found: list[Situation]) -> None:
    columns = {
        it.say("situation"): [it.say(f"situation_{s.name}") for s in found],
        it.say("step"): [formats.ms(1000 * s.step_ms) if s.limits_us else it.say("does_not_fit") for s in found],
        it.say("bottleneck"): [bottleneck_name(it, s.bottleneck) for s in found],
        it.say("remedy"): [it.say(f"remedy_{s.bottleneck}") for s in found],
    }
    if it.language == "en":  # the simulator says it in English
        columns[it.say("evidence")] = [s.evidence for s in found]
    st.table(columns)


lesson("bottlenecks", TEXTS, body)
