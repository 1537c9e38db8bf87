"""Lesson: attention in tiles with online softmax."""

from __future__ import annotations

import streamlit as st

from app_pages.learn.attention import experiment as attention
from app_pages.learn.attention.texts import TEXTS
from app_pages.learn.cases import step_of_tokens
from app_pages.learn.lesson import Lesson, Told, conclude, draw, labelled, model_and_chip, ratio_words, show_lesson
from app_pages.learn.rounding import Precision
from app_pages.parts import formats
from app_pages.parts.bound import choice, steps
from app_pages.parts.charts.plots import bars, lines
from app_pages.parts.page import quiet
from app_pages.parts.palette import CLASSES, NEUTRAL

TOKENS = (256, 512, 1024, 2048, 4096, 8192)
TILES = (32, 64, 128, 256, 512, 1024)
ROWS = (16, 32, 64, 128)
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16", "fp32")


def body(lesson: Lesson) -> Told:
    model, hardware = model_and_chip(lesson)
    with st.container(horizontal=True):
        tokens = steps("tokens", lesson.say("tokens"), TOKENS, 2048)
    unfused, fused = attention.forms(model, hardware, tokens)
    conclude(
        lesson.say(
            "answer",
            tokens=formats.whole(tokens),
            kernels=unfused.kernels,
            peak=formats.size(unfused.peak_bytes),
            saved=formats.percent(1 - fused.moved_bytes / unfused.moved_bytes),
            time_ratio=ratio_words(lesson, attention.ratio(unfused, fused, hardware)),
        )
    )
    labelled(lesson, hardware, computed=True)
    left, right = st.columns(2, gap="large")
    with left:
        _forms(lesson, unfused, fused)
    with right:
        _room(lesson, hardware, tokens)
    online = _online(lesson, tokens)
    tile = online.tiles[-1]
    return Told(
        r"m' = \max(m, \max_j s_j), \quad \ell' = \ell\, e^{m - m'} + \sum_j e^{s_j - m'}, \quad "
        r"o' = o\, e^{m - m'} + \sum_j e^{s_j - m'} v_j",
        rf"m = {tile.maximum:.3f}, \quad \ell = {tile.total:.2f}, \quad e^{{m - m'}} = {tile.rescale:.3f}",
        step_of_tokens(model, hardware, tokens, "optimizations.kv.layout=contiguous"),
    )


def _forms(lesson: Lesson, unfused: attention.Form, fused: attention.Form) -> None:
    names = {lesson.say("unfused"): unfused, lesson.say("fused"): fused}
    rows = []
    for series, form in names.items():
        rows.append(
            {
                "label": lesson.say("moved"),
                "series": series,
                "value": form.moved_bytes / unfused.moved_bytes,
                "shown": formats.size(form.moved_bytes),
            }
        )
        rows.append(
            {
                "label": lesson.say("time"),
                "series": series,
                "value": form.device_us / unfused.device_us,
                "shown": formats.time(form.device_us),
            }
        )
    alt = lesson.say(
        "forms_alt",
        unfused=formats.size(unfused.moved_bytes),
        unfused_time=formats.time(unfused.device_us),
        fused=formats.size(fused.moved_bytes),
        fused_time=formats.time(fused.device_us),
    )
    colours = dict(zip(names, (NEUTRAL, CLASSES["attention"]), strict=True))
    draw(
        lesson.say("forms_chart"),
        bars("attention-forms", rows, alt, colours, title=lesson.say("relative")),
        lesson.say("flops_note"),
    )


def _room(lesson: Lesson, hardware: str, tokens: int) -> None:
    with st.container(horizontal=True):
        tile = steps("tile", lesson.say("tile"), TILES, 128)
        queries = steps("queries", lesson.say("rows"), ROWS, 64)
    room = attention.room(hardware, tokens, queries, tile)
    needed, there = lesson.say("needed"), lesson.say("there")
    marks = (
        ("whole_scores", needed, room.scores_bytes),
        ("one_tile", needed, room.tile_bytes),
        ("ub", there, room.ub_bytes),
        ("l1", there, room.l1_bytes),
    )
    rows = [
        {"label": lesson.say(key), "series": series, "value": count / 1024, "shown": formats.size(count)}
        for key, series, count in marks
    ]
    alt = lesson.say(
        "room_alt",
        whole=formats.size(room.scores_bytes),
        tile=formats.size(room.tile_bytes),
        ub=formats.size(room.ub_bytes),
        l1=formats.size(room.l1_bytes),
    )
    colours = {needed: CLASSES["attention"], there: NEUTRAL}
    fits = room.tile_bytes <= room.ub_bytes
    draw(
        lesson.say("room_chart"),
        bars("attention-room", rows, alt, colours, title="KiB", log=True, grouped=False),
        lesson.say("fits" if fits else "fits_not"),
    )


def _online(lesson: Lesson, tokens: int) -> attention.Online:
    precision = choice("precision", lesson.say("precision"), PRECISIONS)
    tile = st.session_state["tile"]
    online = attention.online(tokens, tile, next(p for p in PRECISIONS if p == precision))
    maximum, error = lesson.say("maximum"), lesson.say("error")
    rows = []
    for t in online.tiles:
        seen = t.first_key + t.keys
        rows.append({"x": seen, "series": maximum, "value": t.maximum, "shown": formats.number(t.maximum)})
        rows.append({"x": seen, "series": error, "value": t.error, "shown": f"{t.error:.1e}"})
    alt = lesson.say(
        "online_alt",
        tiles=len(online.tiles),
        maximum=formats.number(online.tiles[-1].maximum),
        error=f"{online.error:.1e}",
    )
    note = lesson.say(
        "online_note",
        rows=16,
        keys=formats.whole(tokens),
        rescaled=online.rescaled,
        online=f"{online.error:.1e}",
        whole=f"{online.whole_error:.1e}",
        precision=precision,
    )
    colours = {maximum: CLASSES["matmul"], error: CLASSES["attention"]}
    chart = lines("attention-online", rows, alt, colours, x_title=lesson.say("keys_seen"), y_title=None, y_log=True)
    draw(lesson.say("online_chart"), chart)
    quiet(note)
    return online


show_lesson("attention", TEXTS, body)
