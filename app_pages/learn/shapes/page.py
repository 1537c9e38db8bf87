"""Lesson: what a new shape costs."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.lesson import Lesson, Told, conclude, draw, labelled, model_and_chip, show_lesson
from app_pages.learn.shapes.experiment import GRAPHS, Cost, cost, deployment, padded_to
from app_pages.learn.shapes.texts import TEXTS
from app_pages.parts import formats
from app_pages.parts.bound import choice, steps
from app_pages.parts.charts.plots import lines
from app_pages.parts.page import Figure, figures, section
from app_pages.parts.palette import ACCENT, CLASSES

NEW = (0, 1, 2, 5, 10, 20)
BATCHES = (1, 3, 5, 9, 17, 33)
STEPS = (0, 50, 100, 200, 400, 800, 1600)


@lru_cache(maxsize=128)
def _cost(model: str, hardware: str, graph: str, batch: int) -> Cost:
    return cost(model, hardware, graph, batch)


def body(lesson: Lesson) -> Told:
    model, hardware = model_and_chip(lesson)
    with st.container(horizontal=True):
        graph = choice("graph", lesson.say("graph"), GRAPHS, default=2)
        new = steps("new", lesson.say("new"), NEW, 2)
        batch = steps("batch", lesson.say("batch"), BATCHES, 1)
    shown = _cost(model, hardware, graph, batch)
    back = shown.paid_back(new)
    conclude(
        lesson.say(
            "answer",
            graph=graph,
            replay=formats.ms(1000 * shown.replay_ms),
            eager=formats.ms(1000 * shown.eager_ms),
            one=formats.seconds(shown.new_shape_ms),
            worth=formats.whole(shown.new_shape_ms / shown.replay_ms),
            back=lesson.say("never") if back is None else formats.whole(back),
        )
    )
    padded = padded_to(model, hardware, batch)
    figures(
        [
            Figure(lesson.say("cold"), formats.number(shown.cold_ms / 1000), "s", lesson.say("shapes", n=shown.shapes)),
            Figure(lesson.say("one_more"), formats.number(shown.new_shape_ms / 1000), "s"),
            Figure(lesson.say("padded"), str(padded), lesson.say("requests"), lesson.say("asked", n=batch)),
        ]
    )
    labelled(lesson, hardware)
    _curve(lesson, shown, new)
    section(lesson.say("keys"), lesson.say("keys_note"))
    st.table(
        {
            lesson.say("mode"): list(GRAPHS),
            lesson.say("key"): [lesson.say(f"key_{name}") for name in GRAPHS],
            lesson.say("miss"): [lesson.say(f"miss_{name}") for name in GRAPHS],
        }
    )
    saved = shown.eager_ms - shown.replay_ms
    return Told(
        r"n = \frac{t_{\text{cold}} + k\, t_{\text{new}}}{t_{\text{eager}} - t_{\text{graph}}}",
        rf"\frac{{{shown.cold_ms:,.0f} + {new} \times {shown.new_shape_ms:,.0f}}}{{{saved:.2f}}} = "
        + (f"{(shown.cold_ms + new * shown.new_shape_ms) / saved:,.0f}" if saved > 0 else r"\infty"),
        deployment(model, hardware, graph, batch),
    )


def _curve(lesson: Lesson, shown: Cost, new: int) -> None:
    series = {
        lesson.say("by_op"): [n * shown.eager_ms for n in STEPS],
        lesson.say("hits"): [shown.total_ms(n, 0) for n in STEPS],
        lesson.say("misses", n=new): [shown.total_ms(n, new) for n in STEPS],
    }
    marks = [
        {"x": n, "series": name, "value": total_ms / 1000, "shown": formats.seconds(total_ms)}
        for name, totals in series.items()
        for n, total_ms in zip(STEPS, totals, strict=True)
    ]
    colours = dict(zip(series, (CLASSES["attention"], CLASSES["norm"], ACCENT), strict=True))
    alt = lesson.say("curve_alt", steps=STEPS[-1], new=new)
    chart = lines("shapes", marks, alt, colours, x_title=lesson.say("steps"), y_title="s", height=280)
    draw(lesson.say("curve"), chart)


show_lesson("shapes", TEXTS, body)
