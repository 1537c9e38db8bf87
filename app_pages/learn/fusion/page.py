"""Lesson: fusing Add and RMSNorm saves launches and round trips, not arithmetic."""

from __future__ import annotations

import streamlit as st

from app_pages.learn.cases import step_of_tokens
from app_pages.learn.fusion import experiment as fusion
from app_pages.learn.fusion.experiment import FORMS, Form
from app_pages.learn.fusion.texts import TEXTS
from app_pages.learn.lesson import Lesson, Told, conclude, draw, labelled, model_and_chip, ratio_words, show_lesson
from app_pages.learn.rounding import Precision
from app_pages.parts import formats
from app_pages.parts.bound import choice, steps
from app_pages.parts.charts.core_lanes import LANES, core_lanes
from app_pages.parts.charts.plots import bars
from app_pages.parts.page import Figure, figures
from app_pages.parts.palette import CLASSES

TOKENS = (1, 4, 8, 16, 64, 256, 1024, 4096)
ROWS, COLS = 256, 4096
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16", "fp32")


def body(lesson: Lesson) -> Told:
    model, hardware = model_and_chip(lesson)
    with st.container(horizontal=True):
        tokens = steps("tokens", lesson.say("tokens"), TOKENS, 8)
    forms = fusion.forms(model, hardware, tokens)
    first, last = forms[0], forms[-1]
    host = last.host_us > last.device_us
    conclude(
        lesson.say(
            "answer",
            tokens=formats.whole(tokens),
            kernels=len(first.kernels),
            saved=formats.percent(1 - last.moved_bytes / first.moved_bytes),
            eager_ratio=ratio_words(lesson, fusion.ratio(first.eager, last.eager, hardware)),
            graph_ratio=ratio_words(lesson, fusion.ratio(first.on_device, last.on_device, hardware)),
            host_or_device=lesson.say("the_host" if host else "the_device"),
        )
    )
    figures([_figure(lesson, form) for form in forms])
    labelled(lesson, hardware, computed=True)
    left, right = st.columns(2, gap="large")
    with left:
        _times(lesson, forms)
    with right:
        _bytes(lesson, forms)
    _lanes(lesson, model, hardware, tokens)
    _numerics(lesson)
    width = step_of_tokens(model, hardware, tokens).model.hidden
    saved = forms[1].moved_bytes - last.moved_bytes
    return Told(
        rf"\text{{{lesson.say('saved')}}} = T \times d \times 2\,\text{{B}}",
        rf"{tokens:,} \times {width:,} \times 2\,\text{{B}} = {saved / formats.KIB:,.0f}\,\text{{KiB}}",
        step_of_tokens(model, hardware, tokens),
        note=True,
    )


def _figure(lesson: Lesson, form: Form) -> Figure:
    return Figure(
        lesson.say(f"form_{form.name}"),
        formats.number(form.device_us),
        "µs",
        f"{len(form.kernels)} × kernel",
        f"{lesson.say('host')} {formats.time(form.host_us)}",
    )


def _times(lesson: Lesson, forms: tuple[Form, ...]) -> None:
    host, device = lesson.say("host"), lesson.say("device")
    rows = [
        {"label": lesson.say(f"form_{form.name}"), "series": series, "value": us, "shown": formats.time(us)}
        for form in forms
        for series, us in ((host, form.host_us), (device, form.device_us))
    ]
    colours = {host: CLASSES["host"], device: CLASSES["norm"]}
    draw(lesson.say("time_chart"), bars("fusion-time", rows, lesson.say("time_alt"), colours, title="µs"))


def _bytes(lesson: Lesson, forms: tuple[Form, ...]) -> None:
    read, write = lesson.say("read"), lesson.say("write")
    rows = [
        {
            "label": lesson.say(f"form_{form.name}"),
            "series": series,
            "value": count / formats.MIB,
            "shown": f"{kernel.op_type}: {formats.size(count)}",
        }
        for form in forms
        for kernel in form.kernels
        for series, count in ((read, kernel.read_bytes), (write, kernel.write_bytes))
    ]
    alt = lesson.say("bytes_alt", first=formats.size(forms[0].moved_bytes), last=formats.size(forms[-1].moved_bytes))
    colours = {read: CLASSES["vector"], write: CLASSES["cache"]}
    draw(lesson.say("bytes_chart"), bars("fusion-bytes", rows, alt, colours, title="MiB", stacked=True))


def _lanes(lesson: Lesson, model: str, hardware: str, tokens: int) -> None:
    form = choice("form", lesson.say("lanes_chart"), list(FORMS), lambda name: lesson.say(f"form_{name}"), default=1)
    lanes = fusion.lanes(form, model, hardware, tokens)
    words = {"start": lesson.say("start"), "MTE2": "MTE2", "VECTOR": "vector", "MTE3": "MTE3"}
    assert set(words) == set(LANES)
    rows, end = [], 0.0
    for lane in lanes:
        start_us = lane.start_us + lane.head_us
        rows.append(
            {"lane": "start", "kernel": lane.kernel, "start": lane.start_us, "end": start_us, "us": lane.head_us}
        )
        for s in lane.spans:
            start, finish = start_us + s.start_ns / 1000, start_us + s.end_ns / 1000
            rows.append(
                {
                    "lane": s.lane,
                    "kernel": f"{lane.kernel} [{s.tile}]",
                    "start": start,
                    "end": finish,
                    "us": finish - start,
                }
            )
            end = max(end, finish)
    alt = lesson.say("lanes_alt", form=lesson.say(f"form_{form}"))
    draw("", core_lanes("fusion-lanes", rows, alt, words, end * 1.02), lesson.say("lanes_note"))


def _numerics(lesson: Lesson) -> None:
    precision = choice("precision", lesson.say("precision"), PRECISIONS)
    errors = fusion.numerics(ROWS, COLS, next(p for p in PRECISIONS if p == precision))
    rows = [
        {"label": lesson.say(f"form_{name}"), "series": lesson.say("error"), "value": error, "shown": f"{error:.1e}"}
        for name, error in errors.errors.items()
    ]
    note = lesson.say(
        "numerics_note", rows=ROWS, cols=formats.whole(COLS), precision=precision, apart=f"{errors.apart:.1e}"
    )
    chart = bars("fusion-numerics", rows, note, {lesson.say("error"): CLASSES["attention"]}, title=lesson.say("error"))
    draw(lesson.say("numerics"), chart, note)


show_lesson("fusion", TEXTS, body)
