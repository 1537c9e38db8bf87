"""The top of the lab: what is asked, the numbers of a request and their change from the baseline, the bottleneck."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app_pages.parts import answers, formats, own, sidebar, sides, state
from app_pages.parts.controls import CONTROLS
from app_pages.parts.lab.view import BASELINE, View
from app_pages.parts.page import Figure, figures, literal, quiet, sentence
from app_pages.parts.page import title as page_title
from app_pages.parts.state import Question, unpacked
from app_pages.parts.texts import Language, Say, speaker
from app_pages.parts.texts.fields import LABELS
from app_pages.parts.texts.refusals import in_words
from app_pages.parts.verdict import in_parts, verdict
from scenarios.errors import ScenarioError

#: A change smaller than this share is none.
SAME = 5e-4
#: Key of what is wrong with no field that has a widget.
ELSEWHERE = ""


def by_field(error: ScenarioError) -> dict[str, str]:
    """What is wrong, by the field that it is said of; all else under ELSEWHERE."""
    problems: dict[str, str] = {}
    for message in error.messages:
        named = [c.field for c in CONTROLS if f" {c.field}: " in f" {message}"]
        field = max(named, key=len, default=ELSEWHERE)
        what = message.rpartition(f"{field}: ")[2] if field else message
        problems[field] = f"{problems[field]}; {what}" if field in problems else what
    return problems


def refusal(question: Question, refused: Mapping[str, str], language: Language, say: Say) -> None:
    """In place of the numbers: why there are none, and the ways back."""
    page_title(say("refused"), say("refused_note"))
    label = speaker(LABELS, language)
    for field, problem in refused.items():
        what = in_words(problem, language)
        st.error(f"**{label(field)}**  \n`{field}` {literal(what)}" if field else literal(what))
        if field:
            st.button(
                say("put_back", field=label(field)),
                key=f"back:{field}",
                icon=":material/undo:",
                on_click=_put_back,
                args=(question, field),
            )
    good = st.session_state.get("kept:good")
    if good is not None:
        st.button(say("undo"), icon=":material/history:", key="undo", on_click=sidebar.ask, args=(good,))


def _put_back(question: Question, field: str) -> None:
    """Take a setting back; where the scenario's own file sets the field, put it at its default."""
    sets = dict(question.sets)
    if sets.pop(field, None) is None:
        sets[field] = "null"
    sidebar.ask(Question(question.scenario, tuple(sorted(sets.items()))))


def title(view: View) -> None:
    """The scenario's name, what it is, and what can be done with it."""
    result, say, batch = view.result, view.say, view.result["batch"]
    subject = say(
        "subject",
        model=own.plain(result["scenario"]["model"]),
        hardware=own.plain(result["hardware"]),
        phase=say(f"phase_{batch['phase']}"),
        requests=formats.whole(batch["requests"]),
        tokens=formats.whole(batch["tokens"]),
        graph=result["graph"],
    )
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        page_title(result["scenario"]["name"], subject)
    with right, st.container(horizontal=True, horizontal_alignment="right"):
        _buttons(view)


def _buttons(view: View) -> None:
    say, packed = view.say, view.question.packed()
    if view.question.sets:
        st.button(
            say("reset"),
            icon=":material/restart_alt:",
            type="tertiary",
            key="reset",
            on_click=sidebar.ask,
            args=(Question(view.question.scenario),),
        )
    if view.baseline is not None:
        if st.button(say("against"), icon=":material/compare_arrows:", type="tertiary", key="against"):
            st.switch_page("app_pages/compare.py", query_params=_sides(view.question))
        st.button(say("unpin"), icon=":material/keep_off:", type="tertiary", key="unpin", on_click=_pin, args=(None,))
    pinned = st.query_params.get(BASELINE) == packed
    st.button(say("pin"), icon=":material/keep:", key="pin", on_click=_pin, args=(packed,), disabled=pinned)


def _sides(question: Question) -> dict[str, str]:
    """The parameters of the compare page: the baseline as A, the question as B."""
    baseline = unpacked(st.query_params[BASELINE])
    params = {
        "lang": st.query_params.get("lang", ""),
        "a": baseline.scenario,
        "a_set": " ".join(baseline.pairs),
        "b": question.scenario,
        "b_set": " ".join(question.pairs),
    }
    return {key: value for key, value in params.items() if value}


def _pin(packed: str | None) -> None:
    state.write({BASELINE: packed})


def numbers(view: View) -> None:
    """TPOT, TTFT, tokens a second and memory, each with its interval and its change from the baseline."""
    say, metrics, memory = view.say, view.result["metrics"], view.result["memory"]
    shown = [
        _figure(view, "tpot_ms", say("tpot"), "ms", smaller=True),
        _figure(view, "ttft_ms", say("ttft"), "ms", smaller=True),
        _figure(view, "output_throughput", say("throughput"), say("tokens_s"), smaller=False),
    ]
    total = metrics["peak_memory_bytes"]["value"]
    before = view.baseline.result["metrics"]["peak_memory_bytes"]["value"] if view.baseline else None
    delta, good = _delta(say, total, before, smaller=True)
    shown.append(
        Figure(
            say("memory"),
            f"{total / formats.GIB:,.1f}",
            "GiB",
            say("of_usable", usable=formats.size(memory["usable_bytes"])),
            delta,
            good,
        )
    )
    figures(shown)
    if view.baseline is not None:
        pinned = unpacked(st.query_params[BASELINE])
        ratio = sides.ratio(pinned, view.question)
        ends = formats.ends(ratio.low, ratio.high)
        told = f"{formats.ratio(ratio.value)} ({ends})" if ends else formats.ratio(ratio.value)
        verdict_words = say("verdict_" + ratio.verdict.replace(" ", "_"))
        quiet(say("pinned", name=" ".join((pinned.scenario, *pinned.pairs)), ratio=told, verdict=verdict_words))


def _figure(view: View, key: str, label: str, unit: str, *, smaller: bool) -> Figure:
    metric = view.result["metrics"][key]
    before = view.baseline.result["metrics"][key]["value"] if view.baseline else None
    delta, good = _delta(view.say, metric["value"], before, smaller=smaller)
    ends = ""
    if metric["low"] != metric["high"]:
        ends = view.say(
            "interval", ends=formats.interval(formats.number(metric["low"]), formats.number(metric["high"]))
        )
    return Figure(label, formats.number(metric["value"]), unit, ends, delta, good)


def _delta(say: Say, value: float, before: float | None, *, smaller: bool) -> tuple[str, bool | None]:
    """The change in words, and whether it is good; smaller: whether less is better."""
    if before is None:
        return "", None
    if not before or abs(value / before - 1) < SAME:
        return say("same"), None
    change = value / before - 1
    arrow = "↑" if change > 0 else "↓"
    return f"{arrow} {formats.percent(change, signed=True)}", (change < 0) == smaller


def measured(view: View) -> None:
    """What was measured of this step, or of the nearest one with what differs; nothing where none is near."""
    near = answers.measured(view.question)
    if near is None:
        return
    label = speaker(LABELS, view.language)

    def named(pair: str) -> str:
        field, _, value = pair.partition(": ")
        return f"{label(field) if field in LABELS else field}: {value}"

    values = {
        "ms": formats.number(near.step_ms),
        "row": near.id,
        "fit": view.say("fitted_row" if near.fitted else "not_fitted_row"),
        "source": near.source,
    }
    if near.differs:
        quiet(view.say("measured_near", **values, differs="; ".join(map(named, near.differs))))
    else:
        ratio = view.result["step"]["total_us"] / 1000 / near.step_ms - 1
        quiet(view.say("measured_same", **values, error=formats.percent(ratio, signed=True)))


def bottleneck(view: View) -> None:
    """The bottleneck in one sentence, and the parts of the step of a percent and more."""
    sentence(*verdict(view.result, view.language))
    quiet(in_parts(view.result["bottleneck"], view.language, view.result.get("device", "npu")))
