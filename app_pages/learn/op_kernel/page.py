"""Lesson: op is not kernel, and deeper is not always faster."""

from __future__ import annotations

import streamlit as st

from app_pages.learn.cases import step_of_tokens
from app_pages.learn.lesson import Lesson, Told, conclude, draw, labelled, model_and_chip, show_lesson
from app_pages.learn.op_kernel import experiment
from app_pages.learn.op_kernel.experiment import ARGUMENTS, OUTPUTS, Form
from app_pages.learn.op_kernel.texts import TEXTS
from app_pages.parts import formats
from app_pages.parts.bound import steps
from app_pages.parts.charts.plots import bars
from app_pages.parts.page import quiet, section
from app_pages.parts.palette import CLASSES, NEUTRAL

#: The last is what npu_ffn was measured at: 10 x 208.
TOKENS = (1, 8, 64, 208, 512, 2080)


def body(lesson: Lesson) -> Told:
    model, hardware = model_and_chip(lesson, "Qwen2.5-0.5B", "atlas_a3_die")
    tokens = steps("tokens", lesson.say("tokens"), TOKENS, TOKENS[-1])
    forms = experiment.forms(model, hardware, tokens)
    separate, packed, one = forms
    deeper = experiment.ratio(one, packed, hardware)
    side = "slower" if deeper.value > 1 else "faster"
    conclude(
        lesson.say(
            "answer",
            count=len(separate.kernels),
            packed=len(packed.kernels),
            deeper=f"{formats.ratio(deeper.value)} ({formats.ends(deeper.low, deeper.high)})",
            verdict=lesson.say(side if deeper.distinguishable else "tie"),
        )
    )
    labelled(lesson, hardware)
    _chart(lesson, forms)
    section(lesson.say("kernels"), lesson.say("kernels_note"))
    st.table(
        {
            lesson.say("form"): [lesson.say(f"form_{form.name}") for form in forms],
            lesson.say("kernels"): [" → ".join(form.kernels) for form in forms],
        }
    )
    _interface(lesson)
    return Told(
        r"t = \sum_{k \in \text{kernels}} \left(t_{\text{start}}(k) + t_{\text{work}}(k)\right)",
        rf"{len(separate.kernels)} : {separate.device_us:.1f}\,\mu s, \quad {len(packed.kernels)} : "
        rf"{packed.device_us:.1f}\,\mu s, \quad 1 : {one.device_us:.1f}\,\mu s",
        step_of_tokens(model, hardware, tokens, *experiment.FP16, *experiment.FORMS["one"]),
    )


def _chart(lesson: Lesson, forms: tuple[Form, ...]) -> None:
    series = lesson.say("device")
    rows = [
        {
            "label": lesson.say(f"form_{form.name}"),
            "series": series,
            "value": form.device_us,
            "shown": formats.time(form.device_us),
        }
        for form in forms
    ]
    alt = lesson.say("chart_alt", times=", ".join(str(row["shown"]) for row in rows))
    draw(lesson.say("chart"), bars("op-kernel", rows, alt, {series: CLASSES["matmul"]}, title="µs"))


def _interface(lesson: Lesson) -> None:
    """The order of arguments and outputs, and what a wrong one computes."""
    section(lesson.say("interface"), lesson.say("interface_note"))
    left, right = st.columns(2, gap="large")
    with left:
        st.code(
            f"{', '.join(OUTPUTS)} = torch_npu.npu_add_rms_norm({', '.join(ARGUMENTS)})",
            language=None,
            wrap_lines=True,
        )
        for name in (*ARGUMENTS, *OUTPUTS):
            quiet(f"{name}: {lesson.say(f'about_{name}')}" if name != "x" else f"x: {lesson.say('about_sum')}")
    with right:
        series = lesson.say("error")
        rows = [
            {
                "label": lesson.say(f"mistake_{mistake.name}"),
                "series": series,
                "value": mistake.error,
                "shown": formats.percent(mistake.error),
            }
            for mistake in experiment.mistakes()
        ]
        alt = lesson.say("mistakes_alt", errors=", ".join(str(row["shown"]) for row in rows))
        draw(lesson.say("mistakes"), bars("op-mistakes", rows, alt, {series: NEUTRAL}, title=series))


show_lesson("op_kernel", TEXTS, body)
