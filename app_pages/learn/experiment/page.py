"""Lesson: one explainable experiment in seven steps."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.experiment import experiment
from app_pages.learn.experiment.experiment import Experiment
from app_pages.learn.experiment.texts import TEXTS
from app_pages.learn.lesson import (
    Lesson,
    bottleneck_name,
    conclude,
    draw,
    labelled,
    lesson,
    model_and_chip,
    steps,
)
from app_pages.parts import formats
from app_pages.parts.charts.plots import bars
from app_pages.parts.page import sentence
from app_pages.parts.palette import BAD, CLASSES, GOOD, NEUTRAL

BATCHES = (1, 4, 8, 16, 32)
INPUTS = (128, 512, 1024, 2048)
FIRST = ("fusion.rms_norm", "fusion.attention", "graph")
#: How far the product and the whole may differ and still be the same.
SAME = 0.02


@lru_cache(maxsize=64)
def _experiment(model: str, hardware: str, batch: int, tokens: int, chosen: tuple[str, ...]) -> Experiment:
    return experiment.experiment(model, hardware, batch, tokens, chosen)


def body(it: Lesson) -> None:
    model, hardware = model_and_chip(it)
    with st.container(horizontal=True):
        batch = steps(it, "batch", it.say("batch"), BATCHES, 1)
        tokens = steps(it, "input", it.say("input"), INPUTS, 1024)
    names = experiment.switches(model, hardware)
    first = [name for name in FIRST if name in names]
    chosen = st.multiselect(it.say("factors"), names, first, key="factors", bind="query-params")
    if not chosen:
        st.info(it.say("nothing"))
        return
    ordered = tuple(name for name in names if name in chosen)
    found = _experiment(model, hardware, batch, tokens, ordered)
    conclude(
        it.say("answer", before=formats.ms(1000 * found.baseline_ms), count=len(ordered),
               after=formats.ms(1000 * found.baseline_ms / found.together),
               bottleneck=bottleneck_name(it, found.bottleneck),
               bottleneck_after=bottleneck_name(it, found.bottleneck_after))
    )  # fmt: skip
    labelled(it, hardware)
    sentence(it.say("step1"), it.say("step1_text", model=model, hardware=hardware, batch=batch, input=tokens))
    sentence(it.say("step2"), it.say("step2_text"))
    evidence = f": {found.evidence}" if it.language == "en" else ""
    sentence(it.say("step3"), bottleneck_name(it, found.bottleneck) + evidence)
    sentence(it.say("step4"), "")
    _gains(it, found)
    sentence(it.say("step5"), it.say("step5_text"))
    sentence(it.say("step6"), _together(it, found))
    sentence(it.say("step7"), _cold(it, found))
    _shapes(it, found)


def _together(it: Lesson, found: Experiment) -> str:
    share = found.together / found.product
    why = "same" if abs(share - 1) < SAME else "less" if share < 1 else "more"
    return it.say("step6_text", product=formats.ratio(found.product), together=formats.ratio(found.together),
                  why=it.say(why))  # fmt: skip


def _cold(it: Lesson, found: Experiment) -> str:
    cold = found.cold
    if cold.break_even_steps is None:
        return it.say("step7_none")
    return it.say("step7_text", cold=f"{formats.number((cold.compile_ms + cold.capture_ms) / 1000)}{formats.THIN}s",
                  steps=formats.whole(cold.break_even_steps))  # fmt: skip


def _gains(it: Lesson, found: Experiment) -> None:
    words = {v: it.say(f"verdict_{v}") for v in ("gain", "loss", "not distinguishable", "no effect")}
    colours = dict(zip(words.values(), (GOOD, BAD, NEUTRAL, CLASSES["wait"]), strict=True))
    colours[it.say("together")] = CLASSES["matmul"]
    rows = [
        {"label": f"{f.switch}={f.value}", "series": words.get(f.verdict, f.verdict), "value": f.ratio, "low": f.low,
         "high": f.high, "shown": formats.ratio(f.ratio)}
        for f in found.factors
    ]  # fmt: skip
    for label, value in ((it.say("product"), found.product), (it.say("together"), found.together)):
        rows.append({"label": label, "series": it.say("together"), "value": value, "low": value, "high": value,
                     "shown": formats.ratio(value)})  # fmt: skip
    used = {name: colour for name, colour in colours.items() if any(r["series"] == name for r in rows)}
    alt = it.say("gains_alt", count=len(found.factors), product=formats.ratio(found.product),
                 together=formats.ratio(found.together))  # fmt: skip
    chart = bars("experiment-gains", rows, alt, used, title=it.say("gain"), grouped=False, limit=1.0)
    draw(it.say("gains_chart"), chart)


def _shapes(it: Lesson, found: Experiment) -> None:
    before, after = it.say("before"), it.say("after")
    rows = [
        {"label": f"{s.batch}", "series": series, "value": value, "shown": formats.ms(1000 * value)}
        for s in found.shapes for series, value in ((before, s.before_ms), (after, s.after_ms))
    ]  # fmt: skip
    batches = ", ".join(str(s.batch) for s in found.shapes)
    chart = bars("experiment-shapes", rows, it.say("shapes_alt", batches=batches),
                 {before: NEUTRAL, after: CLASSES["norm"]}, title=it.say("step_ms"))  # fmt: skip
    draw(f"{it.say('shapes_chart')} ({it.say('requests')})", chart)


lesson("experiment", TEXTS, body)
