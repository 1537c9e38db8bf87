"""Lesson: copy while computing, tile by tile."""

from __future__ import annotations

import streamlit as st

from app_pages.learn.lesson import Lesson, Told, conclude, draw, show_lesson
from app_pages.learn.tiles.experiment import Run, rows_on_each_core, run
from app_pages.learn.tiles.texts import TEXTS
from app_pages.parts import formats
from app_pages.parts.bound import steps
from app_pages.parts.charts.core_lanes import core_lanes

TILES = (1, 2, 4, 8, 16, 32)
TIMES = (50, 100, 200, 400, 800)
BUFFERS = (1, 2, 3)


def body(lesson: Lesson) -> Told:
    with st.container(horizontal=True):
        tiles = steps("tiles", lesson.say("tiles"), TILES, 8)
        buffers = steps("buffers", lesson.say("buffers"), BUFFERS, 2)
    with st.container(horizontal=True):
        load = steps("load", lesson.say("load"), TIMES, 400)
        compute = steps("compute", lesson.say("compute"), TIMES, 200)
        store = steps("store", lesson.say("store"), TIMES, 100)
    chosen = run(tiles, load, compute, store, buffers)
    conclude(
        lesson.say(
            "answer",
            tiles=tiles,
            total=formats.time(chosen.total_ns / 1000),
            serial=formats.time(chosen.serial_ns / 1000),
            bound=formats.time(chosen.bound_ns / 1000),
            hidden=formats.percent(chosen.hidden_share),
        )
    )
    shown = [chosen] if buffers == 1 else [run(tiles, load, compute, store, 1), chosen]
    longest = max(item.total_ns for item in shown) / 1000
    for item in shown:
        _lanes(lesson, item, longest)
    pace = chosen.pace_ns
    return Told(
        r"t = \ell + c + s + (n - 1)\, p, \quad p = "
        + (r"\max(\ell + c,\; c + s)" if buffers == 1 else r"\max(\ell, c, s)"),
        rf"{load} + {compute} + {store} + {tiles - 1} \times {pace} = "
        rf"{load + compute + store + (tiles - 1) * pace:,}\,\text{{ns}}",
        rows_on_each_core(tiles),
        note=True,
    )


def _lanes(lesson: Lesson, item: Run, longest_us: float) -> None:
    rows = [
        {
            "lane": span.lane,
            "kernel": lesson.say("tile", n=span.tile),
            "tile": span.tile,
            "start": span.start_ns / 1000,
            "end": span.end_ns / 1000,
            "us": (span.end_ns - span.start_ns) / 1000,
        }
        for span in item.spans
    ]
    words = {"MTE2": "MTE2", "VECTOR": "vector", "MTE3": "MTE3", "start": lesson.say("start")}
    alt = lesson.say("lanes_alt", buffers=item.buffers, total=formats.time(item.total_ns / 1000))
    title = lesson.say("lanes", buffers=item.buffers, total=formats.time(item.total_ns / 1000))
    draw(title, core_lanes(f"tiles-{item.buffers}", rows, alt, words, longest_us))


show_lesson("tiles", TEXTS, body)
