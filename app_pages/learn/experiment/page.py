"""Lesson: one explainable experiment in seven steps."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.cases import paid_back_steps
from app_pages.learn.experiment import experiment
from app_pages.learn.experiment.experiment import Experiment
from app_pages.learn.experiment.texts import TEXTS
from app_pages.learn.fusion.experiment import numerics
from app_pages.learn.lesson import (
    Lesson,
    Told,
    bottleneck_name,
    conclude,
    draw,
    evidence,
    labelled,
    model_and_chip,
    ratio_words,
    show_lesson,
)
from app_pages.parts import formats
from app_pages.parts.bound import several, steps
from app_pages.parts.charts.plots import bars
from app_pages.parts.page import sentence
from app_pages.parts.palette import BAD, CLASSES, GOOD, NEUTRAL

BATCHES = (1, 4, 8, 16, 32)
INPUTS = (128, 512, 1024, 2048)
FIRST = ("fusion.rms_norm", "fusion.attention", "graph")
#: Largest relative difference of two bfloat16 outputs that still counts as the same: a few of its steps.
TOLERANCE = 3e-2
#: How far the product and the whole may differ and still be the same.
SAME = 0.02


@lru_cache(maxsize=64)
def _experiment(model: str, hardware: str, batch: int, tokens: int, chosen: tuple[str, ...]) -> Experiment:
    return experiment.experiment(model, hardware, batch, tokens, chosen)


def body(lesson: Lesson) -> Told | None:
    model, hardware = model_and_chip(lesson)
    with st.container(horizontal=True):
        batch = steps("batch", lesson.say("batch"), BATCHES, 1)
        tokens = steps("input", lesson.say("input"), INPUTS, 1024)
    names = experiment.switches(model, hardware)
    first = [name for name in FIRST if name in names]
    chosen = several("factors", lesson.say("factors"), names, first)
    if not chosen:
        st.info(lesson.say("nothing"))
        return None
    ordered = tuple(name for name in names if name in chosen)
    result = _experiment(model, hardware, batch, tokens, ordered)
    moved = "answer" if result.bottleneck != result.bottleneck_after else "answer_stays"
    names_of = {"bottleneck": result.bottleneck, "bottleneck_after": result.bottleneck_after}
    conclude(
        lesson.say(
            moved,
            before=formats.ms(1000 * result.baseline_ms),
            count=len(ordered),
            after=formats.ms(1000 * result.baseline_ms / result.together.value),
            **{key: bottleneck_name(lesson, name) for key, name in names_of.items()},
        )
    )
    labelled(lesson, hardware)
    sentence(lesson.say("step1"), lesson.say("step1_text", model=model, hardware=hardware, batch=batch, input=tokens))
    sentence(lesson.say("step2"), lesson.say("step2_text"))
    said = evidence(lesson, experiment.case_of(model, hardware, batch, tokens, ()), result.evidence)
    sentence(lesson.say("step3"), f"{bottleneck_name(lesson, result.bottleneck)}{lesson.say('colon')}{said}")
    sentence(lesson.say("step4"), "")
    _gains(lesson, result)
    sentence(lesson.say("step5"), _output(lesson))
    sentence(lesson.say("step6"), _together(lesson, result))
    sentence(lesson.say("step7"), _cold(lesson, result))
    _shapes(lesson, result)
    single = r" \times ".join(f"{f.ratio:.2f}" for f in result.factors)
    return Told(
        r"\prod_i \frac{t_0}{t_i} \quad \text{?} \quad \frac{t_0}{t_{\text{all}}}",
        rf"{single} = {result.product.value:.2f} \;{_sign(result)}\; {result.together.value:.2f}",
        experiment.case_of(model, hardware, batch, tokens, ordered),
    )


def _sign(result: Experiment) -> str:
    """How the product of the single gains compares with the gain of all, as they are shown."""
    product, together = round(result.product.value, 2), round(result.together.value, 2)
    return ">" if product > together else "<" if product < together else "="


def _output(lesson: Lesson) -> str:
    """Step 5 on this page: the fused norm computed next to its primitives, with the tolerance that it is held to."""
    errors = numerics(64, 4096, "bf16")
    fused, primitives = errors.errors["add_rms_norm"], errors.errors["primitives"]
    passed = lesson.say("passes" if errors.apart < TOLERANCE else "fails")
    numbers = {"fused": f"{fused:.1e}", "primitives": f"{primitives:.1e}", "apart": f"{errors.apart:.1e}"}
    return lesson.say("step5_text", **numbers, tolerance=f"{TOLERANCE:.0e}", passed=passed)


def _together(lesson: Lesson, result: Experiment) -> str:
    share = result.together.value / result.product.value
    why = "same" if abs(share - 1) < SAME else "less" if share < 1 else "more"
    return lesson.say(
        "step6_text",
        product=ratio_words(lesson, result.product),
        together=ratio_words(lesson, result.together),
        why=lesson.say(why),
    )


def _cold(lesson: Lesson, result: Experiment) -> str:
    cold = result.cold
    cold_ms = cold.compile_ms + cold.capture_ms
    if not cold_ms:
        return lesson.say("step7_none")
    steps = paid_back_steps(cold_ms, result.baseline_ms, result.baseline_ms / result.together.value)
    if steps is None:
        return lesson.say("step7_never", cold=formats.seconds(cold_ms))
    return lesson.say("step7_text", cold=formats.seconds(cold_ms), steps=formats.whole(steps))


def _shown(value: float, low: float, high: float) -> str:
    ends = formats.ends(low, high)
    return f"{formats.ratio(value)} ({ends})" if ends else formats.ratio(value)


def _gains(lesson: Lesson, result: Experiment) -> None:
    words = {v: lesson.say(f"verdict_{v}") for v in ("gain", "loss", "not distinguishable", "no effect")}
    colours = dict(zip(words.values(), (GOOD, BAD, NEUTRAL, CLASSES["wait"]), strict=True))
    colours[lesson.say("together")] = CLASSES["matmul"]
    rows = [
        {
            "label": f"{f.switch}={f.value}",
            "series": words.get(f.verdict, f.verdict),
            "value": f.ratio,
            "low": f.low,
            "high": f.high,
            "shown": _shown(f.ratio, f.low, f.high),
        }
        for f in result.factors
    ]
    for key, both in (("product", result.product), ("together", result.together)):
        row = {"label": lesson.say(key), "series": lesson.say("together"), "value": both.value}
        rows.append({**row, "low": both.low, "high": both.high, "shown": _shown(both.value, both.low, both.high)})
    used = {name: colour for name, colour in colours.items() if any(r["series"] == name for r in rows)}
    alt = lesson.say(
        "gains_alt",
        count=len(result.factors),
        product=ratio_words(lesson, result.product),
        together=ratio_words(lesson, result.together),
    )
    chart = bars("experiment-gains", rows, alt, used, title=lesson.say("gain"), grouped=False, limit=1.0)
    draw(lesson.say("gains_chart"), chart)


def _shapes(lesson: Lesson, result: Experiment) -> None:
    before, after = lesson.say("before"), lesson.say("after")
    rows = [
        {"label": f"{s.batch}", "series": series, "value": value, "shown": formats.ms(1000 * value)}
        for s in result.shapes
        for series, value in ((before, s.before_ms), (after, s.after_ms))
    ]
    batches = ", ".join(str(s.batch) for s in result.shapes)
    chart = bars(
        "experiment-shapes",
        rows,
        lesson.say("shapes_alt", batches=batches),
        {before: NEUTRAL, after: CLASSES["norm"]},
        title=lesson.say("step_ms"),
    )
    draw(f"{lesson.say('shapes_chart')} ({lesson.say('requests')})", chart)


show_lesson("experiment", TEXTS, body)
