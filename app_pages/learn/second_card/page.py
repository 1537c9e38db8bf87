"""Lesson: why the second card did not help."""

from __future__ import annotations

import streamlit as st

from app_pages.learn.lesson import Lesson, Told, conclude, draw, labelled, model_and_chip, show_lesson
from app_pages.learn.second_card.experiment import CARDS, REQUESTS, Point, deployment, point
from app_pages.learn.second_card.texts import TEXTS
from app_pages.parts import formats, own
from app_pages.parts.bound import picked, steps
from app_pages.parts.charts.plots import bars, lines
from app_pages.parts.palette import ACCENT, CLASSES
from sim.engines.profile import engine_names

#: A gain below this share is none to speak of.
LITTLE = 0.05


def body(lesson: Lesson) -> Told:
    model, hardware = model_and_chip(lesson, "Qwen3-14B", "atlas_a2_910b3")
    with st.sidebar:
        engine = picked("engine", lesson.say("engine"), [*engine_names(), *own.refs("engine")], "starved")
    requests = steps("requests", lesson.say("requests"), REQUESTS, 16)
    profile = own.resolved(engine)
    points = [point(model, hardware, cards, requests, profile) for cards in CARDS]
    one, two = points[0], points[1]
    gain = one.step_ms / two.step_ms - 1
    conclude(
        lesson.say(
            "answer",
            requests=requests,
            one=formats.ms(1000 * one.step_ms),
            two=formats.ms(1000 * two.step_ms),
            device=formats.ms(1000 * one.device_ms),
            host=formats.ms(1000 * one.host_ms),
            verdict=lesson.say("helps" if gain >= LITTLE else "little"),
        )
    )
    labelled(lesson, hardware)
    left, right = st.columns(2, gap="large")
    with left:
        _parts(lesson, points)
    with right:
        _curve(lesson, model, hardware, profile, requests)
    return Told(
        r"t_n = \max(t_{\text{device}}(n),\; h) + v",
        rf"\begin{{gathered}}{_filled(one)} \\ {_filled(two)}\end{{gathered}}",
        deployment(model, hardware, 2, requests),
        note=True,
    )


def _filled(item: Point) -> str:
    return (
        rf"t_{item.cards} = \max({item.device_ms:.1f},\; {item.hidden_ms:.1f}) + {item.visible_ms:.1f} = "
        rf"{item.step_ms:.1f}\,\text{{ms}}"
    )


def _parts(lesson: Lesson, points: list[Point]) -> None:
    words = {"device_ms": lesson.say("device"), "host_ms": lesson.say("host"), "step_ms": lesson.say("step")}
    rows = [
        {
            "label": lesson.say("cards", n=item.cards),
            "series": word,
            "value": getattr(item, key),
            "shown": formats.ms(1000 * getattr(item, key)),
        }
        for item in points
        for key, word in words.items()
    ]
    colours = dict(zip(words.values(), (CLASSES["matmul"], CLASSES["host"], CLASSES["attention"]), strict=True))
    alt = lesson.say("parts_alt", times=", ".join(formats.ms(1000 * item.step_ms) for item in points))
    draw(lesson.say("parts"), bars("second-card", rows, alt, colours, title="ms"))


def _curve(lesson: Lesson, model: str, hardware: str, engine: str, now: int) -> None:
    marks = [
        {
            "x": requests,
            "series": lesson.say("cards", n=cards),
            "value": item.step_ms,
            "shown": formats.ms(1000 * item.step_ms),
        }
        for cards in CARDS[:2]
        for requests in REQUESTS
        for item in [point(model, hardware, cards, requests, engine)]
    ]
    colours = {lesson.say("cards", n=1): CLASSES["attention"], lesson.say("cards", n=2): ACCENT}
    alt = lesson.say("curve_alt", most=REQUESTS[-1])
    chart = lines(
        "second-card-curve",
        marks,
        alt,
        colours,
        x_title=lesson.say("requests"),
        y_title="ms",
        x_log=True,
        now=now,
    )
    draw(lesson.say("curve"), chart)


show_lesson("second_card", TEXTS, body)
