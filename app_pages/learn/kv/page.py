"""Lesson: paged and INT8 KV cache."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.kv import experiment as kv_cache
from app_pages.learn.kv.experiment import Frame, Layout, Traffic
from app_pages.learn.kv.texts import TEXTS
from app_pages.learn.lesson import Lesson, conclude, draw, labelled, lesson, model_and_chip, steps
from app_pages.parts import formats
from app_pages.parts.charts.maps import blocks
from app_pages.parts.charts.plots import bars, lines
from app_pages.parts.page import Figure, figures
from app_pages.parts.palette import CLASSES, NEUTRAL

CACHE_TOKENS = 8192
BLOCKS = (16, 32, 64, 128, 256)
PREFIXES = (0, 128, 256, 384)
STRENGTHS = (1, 5, 20, 50, 100)
LAYOUTS: tuple[Layout, ...] = ("contiguous", "paged")
MAX_FRAMES = 4000
INPUT, OUTPUT = 1024, 256


@lru_cache(maxsize=32)
def _frames(layout: Layout, block: int, traffic: Traffic) -> tuple[Frame, ...]:
    return kv_cache.play(layout, CACHE_TOKENS, block, traffic, MAX_FRAMES)


def body(it: Lesson) -> None:
    model, hardware = model_and_chip(it)
    with st.container(horizontal=True):
        block = steps(it, "block", it.say("block"), BLOCKS, 128)
        shared = steps(it, "shared", it.say("shared"), PREFIXES, 0)
        seed = steps(it, "seed", it.say("seed"), range(8), 0)
    found = {layout: _frames(layout, block, Traffic(seed=seed, common_tokens=shared)) for layout in LAYOUTS}
    held = kv_cache.capacities(model, hardware, INPUT, OUTPUT)
    most = {layout: max(f.running for f in frames) for layout, frames in found.items()}
    conclude(
        it.say("answer", block=block, paged=most["paged"], contiguous=most["contiguous"],
               bytes=formats.size(held[0].token_bytes), int8=formats.size(held[1].token_bytes))
    )  # fmt: skip
    figures([_figure(it, layout, frames) for layout, frames in found.items()])
    labelled(it, hardware, computed=True)
    longest = max(len(frames) for frames in found.values())
    moment = st.slider(it.say("moment"), 0, longest - 1, min(60, longest - 1), key="moment", bind="query-params")
    for column, (layout, frames) in zip(st.columns(2, gap="large"), found.items(), strict=True):
        with column:
            _map(it, layout, frames[min(moment, len(frames) - 1)], moment)
    _curve(it, found, most, moment)
    left, right = st.columns(2, gap="large")
    with left:
        _capacity(it, model, hardware, held)
    with right:
        _int8(it)


def _figure(it: Lesson, layout: str, frames: tuple[Frame, ...]) -> Figure:
    used, reserved = sum(f.used_tokens for f in frames), sum(f.reserved_tokens for f in frames)
    return Figure(it.say(layout), str(max(f.running for f in frames)), it.say("running").lower(),
                  f"{it.say('steps')}: {formats.whole(len(frames))}",
                  f"{it.say('filled_share')}: {formats.percent(used / reserved)}")  # fmt: skip


def _map(it: Lesson, layout: str, frame: Frame, moment: int) -> None:
    owned = [cell for cell in frame.cells if cell[0] >= 0]
    alt = it.say(
        "map_alt", cells=len(frame.cells), layout=it.say(layout), owned=len(owned), running=frame.running,
        filled=formats.percent(sum(c[2] for c in owned) / max(1, len(owned))), waiting=frame.waiting,
    )  # fmt: skip
    words = {key: it.say(key) for key in ("owner", "holders", "filled", "free")}
    wide = frame.row_cells if len(frame.cells) <= 128 else 2 * frame.row_cells
    draw(it.say("map", layout=it.say(layout), step=moment), blocks(f"kv-{layout}", frame.cells, alt, words, wide), alt)


def _curve(it: Lesson, found: dict[Layout, tuple[Frame, ...]], most: dict[Layout, int], moment: int) -> None:
    marks = [
        {"x": n, "series": it.say(layout), "value": frame.running, "shown": str(frame.running)}
        for layout, frames in found.items() for n, frame in enumerate(frames) if n % 5 == 0
    ]  # fmt: skip
    alt = it.say("curve_alt", **most, **{f"{layout}_steps": formats.whole(len(f)) for layout, f in found.items()})
    colours = dict(zip((it.say(layout) for layout in LAYOUTS), (NEUTRAL, CLASSES["cache"]), strict=True))
    chart = lines("kv-curve", marks, alt, colours, x_title=it.say("moment"), y_title=it.say("running"), now=moment,
                  height=200)  # fmt: skip
    draw(it.say("curve"), chart)


def _capacity(it: Lesson, model: str, hardware: str, held: tuple[kv_cache.Capacity, ...]) -> None:
    types = {"auto": it.say("bits16"), "int8": "INT8"}
    rows = [
        {"label": it.say(c.layout), "series": types[c.dtype], "value": c.max_requests,
         "shown": formats.whole(c.max_requests)}
        for c in held
    ]  # fmt: skip
    title = it.say("capacity", hardware=hardware, model=model, tokens=formats.whole(INPUT + OUTPUT))
    colours = {it.say("bits16"): CLASSES["cache"], "INT8": CLASSES["experts"]}
    draw(title, bars("kv-capacity", rows, it.say("capacity_alt"), colours, title=it.say("most_requests")))


def _int8(it: Lesson) -> None:
    strength = steps(it, "strength", it.say("outlier"), STRENGTHS, 20)
    found = {q.scale: q for q in kv_cache.quantised(1024, 128, strength)}
    rows = [
        {"label": it.say(f"scale_{scale}"), "series": it.say("error"), "value": q.output_error,
         "shown": formats.percent(q.output_error)}
        for scale, q in found.items()
    ]  # fmt: skip
    alt = it.say("int8_alt", **{scale: formats.percent(q.output_error) for scale, q in found.items()})
    chart = bars("kv-int8", rows, alt, {it.say("error"): CLASSES["attention"]}, title=it.say("error"))
    draw(it.say("int8"), chart, it.say("int8_note"))


lesson("kv", TEXTS, body)
