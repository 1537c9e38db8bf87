"""Lesson: attention in tiles with online softmax."""

from __future__ import annotations

import streamlit as st

from app_pages.learn.attention import experiment as attention
from app_pages.learn.attention.texts import TEXTS
from app_pages.learn.lesson import Lesson, choice, conclude, draw, labelled, lesson, model_and_chip, steps
from app_pages.learn.rounding import Precision
from app_pages.parts import formats
from app_pages.parts.charts.plots import bars, lines
from app_pages.parts.page import quiet
from app_pages.parts.palette import CLASSES, NEUTRAL

TOKENS = (256, 512, 1024, 2048, 4096, 8192)
TILES = (32, 64, 128, 256, 512, 1024)
ROWS = (16, 32, 64, 128)
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16", "fp32")


def body(it: Lesson) -> None:
    model, hardware = model_and_chip(it)
    with st.container(horizontal=True):
        tokens = steps(it, "tokens", it.say("tokens"), TOKENS, 2048)
    unfused, fused = attention.forms(model, hardware, tokens)
    conclude(
        it.say(
            "answer", tokens=formats.whole(tokens), kernels=unfused.kernels, peak=formats.size(unfused.peak_bytes),
            bytes_ratio=formats.ratio(unfused.moved_bytes / fused.moved_bytes),
            time_ratio=formats.ratio(unfused.device_us / fused.device_us),
        )
    )  # fmt: skip
    labelled(it, hardware, computed=True)
    left, right = st.columns(2, gap="large")
    with left:
        _forms(it, unfused, fused)
    with right:
        _room(it, hardware, tokens)
    _online(it, tokens)


def _forms(it: Lesson, unfused: attention.Form, fused: attention.Form) -> None:
    names = {it.say("unfused"): unfused, it.say("fused"): fused}
    rows = []
    for series, form in names.items():
        rows.append({"label": it.say("moved"), "series": series, "value": form.moved_bytes / unfused.moved_bytes,
                     "shown": formats.size(form.moved_bytes)})  # fmt: skip
        rows.append({"label": it.say("time"), "series": series, "value": form.device_us / unfused.device_us,
                     "shown": formats.time(form.device_us)})  # fmt: skip
    alt = it.say(
        "forms_alt", unfused=formats.size(unfused.moved_bytes), unfused_time=formats.time(unfused.device_us),
        fused=formats.size(fused.moved_bytes), fused_time=formats.time(fused.device_us),
    )  # fmt: skip
    colours = dict(zip(names, (NEUTRAL, CLASSES["attention"]), strict=True))
    draw(
        it.say("forms_chart"),
        bars("attention-forms", rows, alt, colours, title=it.say("relative")),
        it.say("flops_note"),
    )


def _room(it: Lesson, hardware: str, tokens: int) -> None:
    with st.container(horizontal=True):
        tile = steps(it, "tile", it.say("tile"), TILES, 128)
        queries = steps(it, "queries", it.say("rows"), ROWS, 64)
    room = attention.room(hardware, tokens, queries, tile)
    needed, there = it.say("needed"), it.say("there")
    marks = (
        ("whole_scores", needed, room.scores_bytes), ("one_tile", needed, room.tile_bytes),
        ("ub", there, room.ub_bytes), ("l1", there, room.l1_bytes),
    )  # fmt: skip
    rows = [
        {"label": it.say(key), "series": series, "value": count / 1024, "shown": formats.size(count)}
        for key, series, count in marks
    ]
    alt = it.say(
        "room_alt", whole=formats.size(room.scores_bytes), tile=formats.size(room.tile_bytes),
        ub=formats.size(room.ub_bytes), l1=formats.size(room.l1_bytes),
    )  # fmt: skip
    colours = {needed: CLASSES["attention"], there: NEUTRAL}
    fits = room.tile_bytes <= room.ub_bytes
    draw(
        it.say("room_chart"), bars("attention-room", rows, alt, colours, title="KiB", log=True, grouped=False),
        it.say("fits" if fits else "fits_not"),
    )  # fmt: skip


def _online(it: Lesson, tokens: int) -> None:
    precision = choice("precision", it.say("precision"), PRECISIONS)
    tile = st.session_state["tile"]
    found = attention.online(tokens, tile, next(p for p in PRECISIONS if p == precision))
    maximum, error = it.say("maximum"), it.say("error")
    rows = []
    for t in found.tiles:
        seen = t.first_key + t.keys
        rows.append({"x": seen, "series": maximum, "value": t.maximum, "shown": formats.number(t.maximum)})
        rows.append({"x": seen, "series": error, "value": t.error, "shown": f"{t.error:.1e}"})
    alt = it.say(
        "online_alt", tiles=len(found.tiles), maximum=formats.number(found.tiles[-1].maximum),
        error=f"{found.error:.1e}",
    )  # fmt: skip
    note = it.say(
        "online_note", rows=16, keys=formats.whole(tokens), rescaled=found.rescaled, online=f"{found.error:.1e}",
        whole=f"{found.whole_error:.1e}", precision=precision,
    )  # fmt: skip
    colours = {maximum: CLASSES["matmul"], error: CLASSES["attention"]}
    chart = lines("attention-online", rows, alt, colours, x_title=it.say("keys_seen"), y_title=None, y_log=True)
    draw(it.say("online_chart"), chart)
    quiet(note)


lesson("attention", TEXTS, body)
