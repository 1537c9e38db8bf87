"""Lesson: paged and INT8 KV cache."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.kv import experiment as kv_cache
from app_pages.learn.kv.experiment import Frame, Layout, Traffic, paged_case
from app_pages.learn.kv.texts import TEXTS
from app_pages.learn.lesson import Lesson, Told, conclude, draw, labelled, model_and_chip, show_lesson
from app_pages.parts import formats
from app_pages.parts.bound import steps
from app_pages.parts.charts.maps import block_table, blocks
from app_pages.parts.charts.plots import bars, lines
from app_pages.parts.page import Figure, figures
from app_pages.parts.palette import CLASSES, NEUTRAL
from sim.predict.ratios import StepRatio

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


def body(lesson: Lesson) -> Told:
    model, hardware = model_and_chip(lesson)
    with st.container(horizontal=True):
        block = steps("block", lesson.say("block"), BLOCKS, 128)
        shared = steps("shared", lesson.say("shared"), PREFIXES, 0)
        seed = steps("seed", lesson.say("seed"), range(8), 0)
    by_layout = {layout: _frames(layout, block, Traffic(seed=seed, common_tokens=shared)) for layout in LAYOUTS}
    held = kv_cache.capacities(model, hardware, INPUT, OUTPUT)
    most = {layout: max(f.running for f in frames) for layout, frames in by_layout.items()}
    conclude(
        lesson.say(
            "answer",
            block=block,
            paged=most["paged"],
            contiguous=most["contiguous"],
            bytes=formats.size(held[0].token_bytes),
            int8=formats.size(held[1].token_bytes),
        )
    )
    figures([_figure(lesson, layout, frames) for layout, frames in by_layout.items()])
    labelled(lesson, hardware, computed=True)
    longest = max(len(frames) for frames in by_layout.values())
    moment = steps("moment", lesson.say("moment"), range(longest), min(60, longest - 1))
    for column, (layout, frames) in zip(st.columns(2, gap="large"), by_layout.items(), strict=True):
        with column:
            _map(lesson, layout, frames[min(moment, len(frames) - 1)], moment)
    _table(lesson, by_layout["paged"], moment)
    _curve(lesson, by_layout, most, moment)
    ratio = _faster(model, hardware)
    conclude(
        lesson.say(
            "faster",
            ratio=formats.ratio(ratio.value),
            ends=formats.ends(ratio.low, ratio.high),
            verdict=lesson.say(f"faster_{ratio.verdict}"),
        )
    )
    left, right = st.columns(2, gap="large")
    with left:
        _capacity(lesson, model, hardware, held)
    with right:
        _int8(lesson)
    deployment = paged_case(model, hardware)
    shape = deployment.model
    words = [rf"\text{{{lesson.say(word)}}}" for word in ("token_bytes", "layers", "kv_heads", "head_size")]
    heads = f"{shape.layers} \\times {shape.kv_heads} \\times {shape.head_dim}"
    return Told(
        rf"{words[0]} = 2 \times {words[1]} \times {words[2]} \times {words[3]} \times b",
        rf"2 \times {heads} \times 2\,\text{{B}} = {held[0].token_bytes / formats.KIB:,.0f}\,\text{{KiB}}",
        deployment,
    )


@lru_cache(maxsize=16)
def _faster(model: str, hardware: str) -> StepRatio:
    return kv_cache.paging_ratio(model, hardware)


def _table(lesson: Lesson, frames: tuple[Frame, ...], moment: int) -> None:
    """The block table of the newest request: its logical blocks, and where they lie."""
    frame = frames[min(moment, len(frames) - 1)]
    if not frame.table:
        return
    alt = lesson.say("table_alt", logical=len(frame.table), physical=len(frame.cells))
    words = {key: lesson.say(f"table_{key}") for key in ("logical", "physical")}
    draw(
        lesson.say("table"),
        block_table("kv-table", frame.table, len(frame.cells), alt, words),
        lesson.say("table_note"),
    )


def _figure(lesson: Lesson, layout: str, frames: tuple[Frame, ...]) -> Figure:
    used, reserved = sum(f.used_tokens for f in frames), sum(f.reserved_tokens for f in frames)
    return Figure(
        lesson.say(layout),
        str(max(f.running for f in frames)),
        lesson.say("running").lower(),
        f"{lesson.say('steps')}: {formats.whole(len(frames))}",
        f"{lesson.say('filled_share')}: {formats.percent(used / reserved)}",
    )


def _map(lesson: Lesson, layout: str, frame: Frame, moment: int) -> None:
    owned = [cell for cell in frame.cells if cell[0] >= 0]
    alt = lesson.say(
        "map_alt",
        cells=len(frame.cells),
        layout=lesson.say(layout),
        owned=len(owned),
        running=frame.running,
        filled=formats.percent(sum(c[2] for c in owned) / max(1, len(owned))),
        waiting=frame.waiting,
    )
    words = {key: lesson.say(key) for key in ("owner", "holders", "filled", "free")}
    wide = frame.row_cells if len(frame.cells) <= 128 else 2 * frame.row_cells
    draw(
        lesson.say("map", layout=lesson.say(layout), step=moment),
        blocks(f"kv-{layout}", frame.cells, alt, words, wide),
        alt,
    )


def _curve(lesson: Lesson, by_layout: dict[Layout, tuple[Frame, ...]], most: dict[Layout, int], moment: int) -> None:
    marks = [
        {"x": n, "series": lesson.say(layout), "value": frame.running, "shown": str(frame.running)}
        for layout, frames in by_layout.items()
        for n, frame in enumerate(frames)
        if n % 5 == 0
    ]
    alt = lesson.say(
        "curve_alt", **most, **{f"{layout}_steps": formats.whole(len(f)) for layout, f in by_layout.items()}
    )
    colours = dict(zip((lesson.say(layout) for layout in LAYOUTS), (NEUTRAL, CLASSES["cache"]), strict=True))
    chart = lines(
        "kv-curve",
        marks,
        alt,
        colours,
        x_title=lesson.say("moment"),
        y_title=lesson.say("running"),
        now=moment,
        height=200,
    )
    draw(lesson.say("curve"), chart)


def _capacity(lesson: Lesson, model: str, hardware: str, held: tuple[kv_cache.Capacity, ...]) -> None:
    types = {"auto": lesson.say("bits16"), "int8": "INT8"}
    rows = [
        {
            "label": lesson.say(c.layout),
            "series": types[c.dtype],
            "value": c.max_requests,
            "shown": formats.whole(c.max_requests),
        }
        for c in held
    ]
    title = lesson.say("capacity", hardware=hardware, model=model, tokens=formats.whole(INPUT + OUTPUT))
    colours = {lesson.say("bits16"): CLASSES["cache"], "INT8": CLASSES["experts"]}
    draw(title, bars("kv-capacity", rows, lesson.say("capacity_alt"), colours, title=lesson.say("most_requests")))


def _int8(lesson: Lesson) -> None:
    strength = steps("strength", lesson.say("outlier"), STRENGTHS, 20)
    by_scale = {q.scale: q for q in kv_cache.quantised(1024, 128, strength)}
    rows = [
        {
            "label": lesson.say(f"scale_{scale}"),
            "series": lesson.say("error"),
            "value": q.output_error,
            "shown": formats.percent(q.output_error),
        }
        for scale, q in by_scale.items()
    ]
    alt = lesson.say("int8_alt", **{scale: formats.percent(q.output_error) for scale, q in by_scale.items()})
    chart = bars("kv-int8", rows, alt, {lesson.say("error"): CLASSES["attention"]}, title=lesson.say("error"))
    draw(lesson.say("int8"), chart, lesson.say("int8_note"))


show_lesson("kv", TEXTS, body)
