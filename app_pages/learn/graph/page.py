"""Lesson: eager and graph, from host-bound to device-bound."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.cases import paid_back_steps
from app_pages.learn.graph import experiment as graph
from app_pages.learn.graph.experiment import GRAPHS, Point
from app_pages.learn.graph.texts import TEXTS
from app_pages.learn.lesson import Lesson, Told, conclude, draw, labelled, model_and_chip, ratio_words, show_lesson
from app_pages.parts import formats, rows
from app_pages.parts.bound import choice, steps
from app_pages.parts.charts.plots import lines
from app_pages.parts.charts.timeline import timeline
from app_pages.parts.lab.view import class_words, hover_words
from app_pages.parts.page import Figure, figures
from app_pages.parts.palette import ACCENT, CLASSES
from scenarios.timeline import Timeline
from sim.predict.ratios import StepRatio, step_ratio
from sim.predict.steps import Case

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (128, 512, 1024, 2048, 4096)
#: The layers that are drawn: neither the first nor the last.
LAYERS = (2, 4)
#: Ratio below which a graph hardly helps.
HARDLY = 1.05


@lru_cache(maxsize=256)
def _point(case: Case) -> Point:
    return graph.point(case)


@lru_cache(maxsize=256)
def _ratio(eager: Case, replayed: Case) -> StepRatio:
    return step_ratio(eager, replayed)


def body(lesson: Lesson) -> Told:
    model, hardware = model_and_chip(lesson)
    with st.container(horizontal=True):
        batch = steps("batch", lesson.say("batch"), BATCHES, 1)
        context = steps("context", lesson.say("context"), CONTEXTS, 512)
    with st.container(horizontal=True):
        mode = choice("graph", lesson.say("graph"), GRAPHS[1:], default=2)
        waits = choice("synchronize", lesson.say("synchronize"), ("step", "layer", "op"), lesson.say)
    cases = [
        graph.decode(model, hardware, "eager", batch, context, waits),
        graph.decode(model, hardware, mode, batch, context),
    ]
    eager, replayed = (_point(case) for case in cases)
    _numbers(lesson, eager, replayed, _ratio(*cases))
    labelled(lesson, hardware)
    windows = [graph.window(case, LAYERS) for case in cases]
    longest_us = max(w.end_ns - w.start_ns for w in windows) / 1000  # one scale for both: what is saved is seen
    for name, window, point in zip(("eager", "graph"), windows, (eager, replayed), strict=True):
        _timeline(lesson, name, window, point, longest_us)
    _curve(lesson, model, hardware, mode, context, batch)
    host, kernels = eager.host_busy_ms, eager.kernels_ms
    return Told(
        r"t_{\text{step}} \gtrsim \max(t_{\text{host}},\; t_{\text{kernels}})",
        rf"\max({host:.2f},\; {kernels:.2f})\,\text{{ms}} = {max(host, kernels):.2f}\,\text{{ms}} \quad "
        rf"(\text{{{lesson.say('eager')}}}: {eager.step_ms:.2f}\,\text{{ms}})",
        cases[0],
    )


def _numbers(lesson: Lesson, eager: Point, replayed: Point, gain: StepRatio) -> None:
    ratio = eager.step_ms / replayed.step_ms
    numbers = {
        "batch": eager.batch,
        "host": formats.ms(1000 * eager.host_busy_ms),
        "launches": formats.whole(eager.launches),
        "kernels": formats.ms(1000 * eager.kernels_ms),
        "ratio": ratio_words(lesson, gain),
    }
    back = paid_back_steps(replayed.cold_ms, eager.step_ms, replayed.step_ms)
    later = formats.whole(back) if back is not None else lesson.say("never")
    if ratio > HARDLY:
        cold = formats.seconds(replayed.cold_ms)
        conclude(lesson.say("answer_gain", **numbers, cold=cold, steps=later))
    else:
        conclude(lesson.say("answer_none", **numbers))
    figures(
        [
            Figure(
                lesson.say("gain"),
                formats.ratio(ratio),
                "",
                formats.ends(gain.low, gain.high),
                "" if gain.distinguishable else lesson.common("not_distinguishable"),
            ),
            _step(lesson.say("eager_step"), eager),
            _step(lesson.say("graph_step"), replayed),
            Figure(lesson.say("idle"), formats.percent(eager.idle_share), ""),
        ]
    )


def _step(label: str, point: Point) -> Figure:
    return Figure(
        label,
        formats.number(point.step_ms),
        "ms",
        formats.interval(formats.number(point.low_ms), formats.number(point.high_ms)),
    )


def _timeline(lesson: Lesson, name: str, window: Timeline, point: Point, longest_us: float) -> None:
    drawn = rows.window(window, window.start_ns, window.end_ns + 1, {})
    for mark in drawn:
        mark["start"] -= window.start_ns / 1000
        mark["end"] -= window.start_ns / 1000
    alt = lesson.say(
        "timeline_alt", mode=lesson.say("eager") if name == "eager" else name, idle=formats.percent(point.idle_share)
    )
    chart = timeline(
        f"graph-{name}",
        drawn,
        rows.lanes_of(window.spans),
        class_words(lesson.language),
        hover_words(lesson.language),
        alt,
        span_us=(0.0, longest_us),
        legend=name == "eager",
    )
    draw(lesson.say(f"timeline_{name}"), chart)


def _curve(lesson: Lesson, model: str, hardware: str, mode: str, context: int, batch: int) -> None:
    marks, points = [], {}
    for count in BATCHES:
        for series, which in (("eager", "eager"), ("graph", mode)):
            point = points[series, count] = _point(graph.decode(model, hardware, which, count, context))
            label = lesson.say("eager") if series == "eager" else mode
            marks.append(
                {
                    "x": count,
                    "series": label,
                    "value": point.step_ms,
                    "low": point.low_ms,
                    "high": point.high_ms,
                    "shown": formats.ms(1000 * point.step_ms),
                }
            )
        kernels = points["graph", count].kernels_ms
        marks.append(
            {
                "x": count,
                "series": lesson.say("kernels_only"),
                "value": kernels,
                "low": kernels,
                "high": kernels,
                "shown": formats.ms(1000 * kernels),
            }
        )
    alt = lesson.say(
        "curve_alt",
        most=BATCHES[-1],
        **{
            f"{s}_{end}": formats.ms(1000 * points[s, b].step_ms)
            for s in ("eager", "graph")
            for end, b in (("first", BATCHES[0]), ("last", BATCHES[-1]))
        },
    )
    colours = {lesson.say("eager"): CLASSES["attention"], mode: ACCENT, lesson.say("kernels_only"): CLASSES["host"]}
    chart = lines(
        "graph-curve",
        marks,
        alt,
        colours,
        x_title=lesson.say("requests"),
        y_title=lesson.say("step_ms"),
        x_log=True,
        now=batch,
        height=300,
    )
    draw(lesson.say("curve"), chart)


show_lesson("graph", TEXTS, body)
