"""Lesson: fusing Add and RMSNorm saves launches and round trips, not arithmetic."""

from __future__ import annotations

import streamlit as st

from app_pages.learn.fusion import experiment as fusion
from app_pages.learn.fusion.experiment import FORMS, Form
from app_pages.learn.fusion.texts import TEXTS
from app_pages.learn.lesson import Lesson, choice, conclude, draw, labelled, lesson, model_and_chip, steps
from app_pages.learn.rounding import Precision
from app_pages.parts import formats
from app_pages.parts.charts.core_lanes import LANES, core_lanes
from app_pages.parts.charts.plots import bars
from app_pages.parts.page import Figure, figures
from app_pages.parts.palette import CLASSES

TOKENS = (1, 4, 8, 16, 64, 256, 1024, 4096)
ROWS, COLS = 256, 4096
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16", "fp32")


def body(it: Lesson) -> None:
    model, hardware = model_and_chip(it)
    with st.container(horizontal=True):
        tokens = steps(it, "tokens", it.say("tokens"), TOKENS, 8)
    found = fusion.forms(model, hardware, tokens)
    first, last = found[0], found[-1]
    host = last.host_us > last.device_us
    conclude(
        it.say(
            "answer", tokens=formats.whole(tokens), kernels=len(first.kernels),
            bytes_ratio=formats.ratio(first.moved_bytes / last.moved_bytes),
            eager_ratio=formats.ratio(first.eager_us / last.eager_us),
            graph_ratio=formats.ratio(first.device_us / last.device_us),
            host_or_device=it.say("the_host" if host else "the_device"),
        )
    )  # fmt: skip
    figures([_figure(it, form) for form in found])
    labelled(it, hardware, computed=True)
    left, right = st.columns(2, gap="large")
    with left:
        _times(it, found)
    with right:
        _bytes(it, found)
    _lanes(it, model, hardware, tokens)
    _numerics(it)


def _figure(it: Lesson, form: Form) -> Figure:
    return Figure(
        it.say(f"form_{form.name}"), formats.number(form.device_us), "µs",
        f"{len(form.kernels)} × kernel", f"{it.say('host')} {formats.time(form.host_us)}",
    )  # fmt: skip


def _times(it: Lesson, found: tuple[Form, ...]) -> None:
    host, device = it.say("host"), it.say("device")
    rows = [
        {"label": it.say(f"form_{form.name}"), "series": series, "value": us, "shown": formats.time(us)}
        for form in found for series, us in ((host, form.host_us), (device, form.device_us))
    ]  # fmt: skip
    colours = {host: CLASSES["host"], device: CLASSES["norm"]}
    draw(it.say("time_chart"), bars("fusion-time", rows, it.say("time_alt"), colours, title="µs"))


def _bytes(it: Lesson, found: tuple[Form, ...]) -> None:
    read, write = it.say("read"), it.say("write")
    rows = [
        {"label": it.say(f"form_{form.name}"), "series": series, "value": count / formats.MIB,
         "shown": f"{kernel.op_type}: {formats.size(count)}"}
        for form in found for kernel in form.kernels
        for series, count in ((read, kernel.read_bytes), (write, kernel.write_bytes))
    ]  # fmt: skip
    alt = it.say("bytes_alt", first=formats.size(found[0].moved_bytes), last=formats.size(found[-1].moved_bytes))
    colours = {read: CLASSES["vector"], write: CLASSES["cache"]}
    draw(it.say("bytes_chart"), bars("fusion-bytes", rows, alt, colours, title="MiB", stacked=True))


def _lanes(it: Lesson, model: str, hardware: str, tokens: int) -> None:
    form = choice("form", it.say("lanes_chart"), list(FORMS), lambda name: it.say(f"form_{name}"), default=1)
    lanes = fusion.lanes(form, model, hardware, tokens)
    words = {"start": it.say("start"), "MTE2": "MTE2", "VECTOR": "vector", "MTE3": "MTE3"}
    assert set(words) == set(LANES)
    rows, end = [], 0.0
    for lane in lanes:
        begin = lane.start_us + lane.head_us
        rows.append({"lane": "start", "kernel": lane.kernel, "start": lane.start_us, "end": begin, "us": lane.head_us})
        for s in lane.spans:
            start, finish = begin + s.start_ns / 1000, begin + s.end_ns / 1000
            rows.append({"lane": s.lane, "kernel": f"{lane.kernel} [{s.tile}]", "start": start, "end": finish,
                         "us": finish - start})  # fmt: skip
            end = max(end, finish)
    alt = it.say("lanes_alt", form=it.say(f"form_{form}"))
    draw("", core_lanes("fusion-lanes", rows, alt, words, end * 1.02), it.say("lanes_note"))


def _numerics(it: Lesson) -> None:
    precision = choice("precision", it.say("precision"), PRECISIONS)
    found = fusion.numerics(ROWS, COLS, next(p for p in PRECISIONS if p == precision))
    rows = [
        {"label": it.say(f"form_{name}"), "series": it.say("error"), "value": error, "shown": f"{error:.1e}"}
        for name, error in found.errors.items()
    ]
    note = it.say("numerics_note", rows=ROWS, cols=formats.whole(COLS), precision=precision, apart=f"{found.apart:.1e}")
    chart = bars("fusion-numerics", rows, note, {it.say("error"): CLASSES["attention"]}, title=it.say("error"))
    draw(it.say("numerics"), chart, note)


lesson("fusion", TEXTS, body)
