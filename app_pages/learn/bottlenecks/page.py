"""Lesson: find the bottleneck first."""

from __future__ import annotations

import streamlit as st

from app_pages.learn.bottlenecks.experiment import Situation, situations
from app_pages.learn.bottlenecks.texts import TEXTS
from app_pages.learn.cases import case
from app_pages.learn.lesson import (
    Lesson,
    Told,
    bottleneck_name,
    conclude,
    draw,
    evidence,
    labelled,
    model_and_chip,
    show_lesson,
)
from app_pages.parts import formats
from app_pages.parts.charts.plots import bars
from app_pages.parts.palette import CLASSES, NEUTRAL
from app_pages.parts.texts.refusals import in_words

COLOURS = {
    "host-bound": CLASSES["host"],
    "HBM-bound": CLASSES["vector"],
    "cube-bound": CLASSES["matmul"],
    "vector-bound": CLASSES["norm"],
    "communication-bound": CLASSES["communication"],
    "idle": NEUTRAL,
}


def body(lesson: Lesson) -> Told:
    model, hardware = model_and_chip(lesson)
    shown = situations(model, hardware)
    if fitting := [s for s in shown if s.limits_us]:
        _chart(lesson, model, hardware, shown, fitting)
    _table(lesson, model, hardware, shown)
    first = shown[0]
    step_us = 1000 * first.step_ms or 1.0
    kernels_us = sum(us for name, us in first.limits_us.items() if name != "idle")
    return Told(
        rf"\text{{{lesson.say('idle')}}} = 1 - \frac{{t_{{\text{{kernels}}}}}}{{t_{{\text{{step}}}}}}",
        rf"1 - \frac{{{kernels_us / 1000:.2f}\,\text{{ms}}}}{{{step_us / 1000:.2f}\,\text{{ms}}}} = "
        rf"{100 * (1 - kernels_us / step_us):.0f}\,\%",
        case(f"model={model}", f"hardware={hardware}", *first.settings) if first.limits_us else None,
    )


def _chart(lesson: Lesson, model: str, hardware: str, shown: list[Situation], fitting: list[Situation]) -> None:
    times = [1000 * s.step_ms for s in fitting]
    conclude(
        lesson.say(
            "answer",
            model=model,
            hardware=hardware,
            distinct=len({s.bottleneck for s in shown}),
            count=len(shown),
            fastest=formats.ms(min(times)),
            slowest=formats.ms(max(times)),
        )
    )
    labelled(lesson, hardware)
    words = {name: lesson.say("idle") if name == "idle" else bottleneck_name(lesson, name) for name in COLOURS}
    rows = [mark for s in fitting for mark in _parts(lesson, s, words)]
    colours = {words[name]: colour for name, colour in COLOURS.items() if any(r["series"] == words[name] for r in rows)}
    alt = lesson.say("chart_alt", count=len(fitting), model=model)
    draw(lesson.say("chart"), bars("bottlenecks", rows, alt, colours, title="%", stacked=True))


def _parts(lesson: Lesson, situation: Situation, words: dict[str, str]) -> list[dict[str, object]]:
    """Shares of the step, percent."""
    step_us = 1000 * situation.step_ms
    parts = {name: us for name, us in situation.limits_us.items() if name in words}
    parts["idle"] = max(0.0, step_us - sum(parts.values()))
    return [
        {
            "label": lesson.say(f"situation_{situation.name}"),
            "series": words[name],
            "value": 100 * us / step_us,
            "shown": f"{formats.percent(us / step_us)}, {formats.time(us)}",
        }
        for name, us in parts.items()
    ]


def _table(lesson: Lesson, model: str, hardware: str, shown: list[Situation]) -> None:
    columns = {
        lesson.say("situation"): [lesson.say(f"situation_{s.name}") for s in shown],
        lesson.say("step"): [
            formats.ms(1000 * s.step_ms) if s.limits_us else lesson.say("does_not_fit") for s in shown
        ],
        lesson.say("bottleneck"): [bottleneck_name(lesson, s.bottleneck) for s in shown],
        lesson.say("remedy"): [lesson.say(f"remedy_{s.bottleneck}") for s in shown],
    }
    columns[lesson.say("evidence")] = [_evidence(lesson, model, hardware, s) for s in shown]
    st.table(columns)


def _evidence(lesson: Lesson, model: str, hardware: str, situation: Situation) -> str:
    if not situation.limits_us:
        return in_words(situation.evidence, lesson.language)
    return evidence(lesson, case(f"model={model}", f"hardware={hardware}", *situation.settings), situation.evidence)


show_lesson("bottlenecks", TEXTS, body)
