"""Lesson: overlap of computing and communication, and what spoils it."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.lesson import Lesson, Told, conclude, draw, labelled, model_and_chip, ratio_words, show_lesson
from app_pages.learn.overlap import experiment as overlap
from app_pages.learn.overlap.experiment import Side
from app_pages.learn.overlap.texts import TEXTS
from app_pages.parts import formats
from app_pages.parts import rows as rows_of
from app_pages.parts.bound import steps
from app_pages.parts.charts.plots import lines
from app_pages.parts.charts.ratios import ratios
from app_pages.parts.charts.timeline import timeline
from app_pages.parts.lab.view import class_words, hover_words
from app_pages.parts.palette import ACCENT, BAD, CLASSES, GOOD, NEUTRAL
from scenarios.timeline import Timeline
from sim.predict.steps import Case

TOKENS = (64, 256, 1024, 2048, 4096, 8192)
RANKS = (2, 4, 8)
PIECES = (1, 2, 4, 8, 16, 32)
FEW = 64
VERDICTS = {"gain": GOOD, "loss": BAD, "not distinguishable": NEUTRAL, "no effect": CLASSES["wait"]}


@lru_cache(maxsize=256)
def _chunked(model: str, hardware: str, ranks: int, tokens: int, pieces: int, *sets: str) -> Side:
    return overlap.chunked(model, hardware, ranks, tokens, pieces, *sets)


def body(lesson: Lesson) -> Told | None:
    model, hardware = model_and_chip(lesson)
    with st.container(horizontal=True):
        ranks = steps("ranks", lesson.say("ranks"), RANKS, 2)
        tokens = steps("tokens", lesson.say("tokens"), TOKENS, 4096)
    sides = {n: _chunked(model, hardware, ranks, tokens, n) for n in PIECES}
    cut = [n for n, side in sides.items() if side.found_ms is not None]
    if not cut:
        st.info(lesson.say("nothing_to_cut"))
        return None
    best = min(cut, key=lambda n: sides[n].found_ms or 0.0)
    side = sides[best]
    serial, ideal, predicted = (value or 0.0 for value in (side.serial_ms, side.ideal_ms, side.found_ms))
    shown = {"serial": serial, "ideal": ideal, "found": predicted, "lost": predicted - ideal}
    times = {name: formats.ms(1000 * value) for name, value in shown.items()}
    conclude(lesson.say("answer", tokens=formats.whole(tokens), ranks=ranks, pieces=best, **times))
    labelled(lesson, hardware)
    left, right = st.columns(2, gap="large")
    with left:
        _curve(lesson, sides, serial, ideal)
    with right:
        _spoilers(lesson, model, hardware, ranks, tokens, best)
    for pieces in (1, best):
        _timeline(lesson, model, hardware, ranks, tokens, pieces)
    return Told(
        r"\textstyle\sum \max(a_i, b_i) \;\le\; t, \quad a = \sum a_i, \; b = \sum b_i",
        rf"{ideal:.2f} \;\le\; {predicted:.2f} \;{'<' if predicted < serial else '>'}\; a + b = "
        rf"{side.products_ms:.2f} + {side.collectives_ms:.2f} = {serial:.2f}\,\text{{ms}}",
        overlap.prefill(model, hardware, ranks, tokens, f"{overlap.CHUNKS}={best}"),
        note=True,
    )


@lru_cache(maxsize=32)
def _window(model: str, hardware: str, ranks: int, tokens: int, pieces: int) -> Timeline:
    return overlap.window(overlap.prefill(model, hardware, ranks, tokens, f"{overlap.CHUNKS}={pieces}"))


def _timeline(lesson: Lesson, model: str, hardware: str, ranks: int, tokens: int, pieces: int) -> None:
    """One layer's streams and links; a stream that waits for an event is empty until what it waits for has ended."""
    window = _window(model, hardware, ranks, tokens, pieces)
    longest_us = (window.end_ns - window.start_ns) / 1000
    drawn = rows_of.window(window, window.start_ns, window.end_ns + 1, {})
    for mark in drawn:
        mark["start"] -= window.start_ns / 1000
        mark["end"] -= window.start_ns / 1000
    alt = lesson.say("layer_alt", pieces=pieces, time=formats.time(longest_us))
    chart = timeline(
        f"overlap-layer-{pieces}",
        drawn,
        rows_of.lanes_of(window.spans),
        class_words(lesson.language),
        hover_words(lesson.language),
        alt,
        span_us=(0.0, longest_us),
    )
    draw(lesson.say("layer", pieces=pieces, time=formats.time(longest_us)), chart, lesson.say("layer_note"))


def _curve(lesson: Lesson, sides: dict[int, Side], serial: float, ideal: float) -> None:
    lanes = {
        lesson.say("serial"): dict.fromkeys(sides, serial),
        lesson.say("found"): {n: side.found_ms if side.found_ms is not None else serial for n, side in sides.items()},
        lesson.say("ideal"): dict.fromkeys(sides, ideal),
    }
    rows = [
        {"x": n, "series": name, "value": value, "shown": formats.ms(1000 * value)}
        for name, values in lanes.items()
        for n, value in values.items()
    ]
    colours = dict(zip(lanes, (NEUTRAL, ACCENT, CLASSES["matmul"]), strict=True))
    alt = lesson.say(
        "chart_alt",
        most=PIECES[-1],
        serial=formats.ms(1000 * serial),
        ideal=formats.ms(1000 * ideal),
        best=formats.ms(1000 * min(lanes[lesson.say("found")].values())),
    )
    chart = lines(
        "overlap",
        rows,
        alt,
        colours,
        x_title=lesson.say("pieces"),
        y_title=lesson.say("step_ms"),
        x_log=True,
        zero=False,
    )
    draw(lesson.say("chart"), chart)


def _spoilers(lesson: Lesson, model: str, hardware: str, ranks: int, tokens: int, pieces: int) -> None:
    """Each case's step without overlap over the same step with it."""

    def step(count: int, *sets: str) -> Case:
        return overlap.prefill(model, hardware, ranks, count, *sets)

    cut = f"{overlap.CHUNKS}={pieces}"
    streams = [overlap.two_streams(model, hardware, 1, n) for n in (1, 2)]
    cases = {
        lesson.say("case_good", pieces=pieces, tokens=formats.whole(tokens)): (step(tokens), step(tokens, cut)),
        lesson.say("fused"): (step(tokens), step(tokens, overlap.FUSED)),
        lesson.say("case_sync"): (step(tokens), step(tokens, cut, "protocol.synchronize=op")),
        lesson.say("case_few", tokens=FEW): (step(FEW), step(FEW, cut)),
        lesson.say("case_streams"): (streams[0], streams[1]),
    }
    rows = []
    for name, (without, with_it) in cases.items():
        gain = overlap.gain(without, with_it)
        row = {"label": name, "series": lesson.common(f"verdict_{gain.verdict}"), "value": gain.value}
        rows.append({**row, "low": gain.low, "high": gain.high, "shown": ratio_words(lesson, gain, verdict=False)})
    told = {lesson.common(f"verdict_{verdict}"): colour for verdict, colour in VERDICTS.items()}
    colours = {word: colour for word, colour in told.items() if any(row["series"] == word for row in rows)}
    chart = ratios("overlap-spoilers", rows, lesson.say("spoilers_alt"), colours, title=lesson.say("relative"))
    draw(lesson.say("spoilers"), chart)


show_lesson("overlap", TEXTS, body)
