"""Two steps side by side: scenarios, results, traces or profiles, on one time axis, and where their difference lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from app_pages.parts import compare_loads, formats, own, rows, sides, state
from app_pages.parts.charts.bars import differences
from app_pages.parts.charts.timeline import timeline
from app_pages.parts.compare_tables import tables
from app_pages.parts.lab.view import class_words, hover_words
from app_pages.parts.page import Figure, figures, quiet, refusal, section, sentence, show_with_data, title
from app_pages.parts.state import Question
from app_pages.parts.texts import Language, Say, speaker
from app_pages.parts.texts.captures import translated
from app_pages.parts.texts.compare import TEXTS
from scenarios.errors import ScenarioError
from scenarios.loader import shipped_names
from sim.compare import AS_FAST
from sim.compare.side import Side
from sim.predict.ratios import StepRatio

Which = Literal["a", "b"]
#: What the page opens with: the same model as a loop of Python issues it, and as one graph.
EAGER = "qwen3_8b_910b2_eager"
FIRST: dict[str, str] = {"a": EAGER, "b": EAGER, "b_set": "optimizations.graph=ge_graph"}
PARAMS = ("a", "a_set", "b", "b_set")
SHOWN = "kept:compare"


def main() -> None:
    state.arrive("compare", PARAMS.__contains__)
    language = state.language()
    say = speaker(TEXTS, language)
    title(say("title"), say("about"))
    _follow_url()
    left, right = st.columns(2, gap="large")
    with left:
        first = _side("a", say)
    with right:
        second = _side("b", say)
    if first is None or second is None:
        return
    try:
        a, b = _with_loads(first, second)
        result = sides.compared(a, b)
        ratio = None
        if first.question is not None and second.question is not None:
            ratio = sides.ratio(first.question, second.question)
    except ScenarioError as error:
        refusal(error.messages)
        return
    if result["step"]:
        _numbers(result, a, b, ratio, say)
        _timelines(a, b, language, say)
        _causes(result, say)
        tables(result, say)
    else:
        compare_loads.requests(result, say)
    for note in result["notes"]:
        quiet(translated(note, language))


def _with_loads(first: Chosen, second: Chosen) -> tuple[Side, Side]:
    """Both sides; where one is a load test, a scenario that serves requests has its load too. Raises ScenarioError."""
    a, b = first.side, second.side
    if a.has_step and b.has_step:
        return a, b
    return sides.served(a, first.question), sides.served(b, second.question)


def _follow_url() -> None:
    """Set the widgets to what the URL asks, where it asks something else than they show."""
    params = st.query_params.to_dict()
    given = {key: value for key, value in params.items() if key in PARAMS}
    wanted = given or FIRST
    if st.session_state.get(SHOWN) != wanted or "compare:a" not in st.session_state:
        for key in ("a", "b"):
            st.session_state[f"compare:{key}"] = wanted.get(key, state.FIRST_SCENARIO)
            st.session_state[f"compare:{key}_set"] = _each(wanted.get(f"{key}_set", ""), own.adopted)
        st.session_state[SHOWN] = wanted


def _change() -> None:
    values = {key: st.session_state.get(f"compare:{key}", "") for key in PARAMS}
    named = {key: _each(str(value), own.named) if key.endswith("_set") else value for key, value in values.items()}
    wanted = {key: value for key, value in named.items() if value}
    st.session_state[SHOWN] = wanted
    state.write({**dict.fromkeys(values), **wanted})


def _each(settings: str, change: Callable[[str, str], str]) -> str:
    """Settings with each value changed; change: of a field and its value."""
    pairs = [pair.partition("=") for pair in settings.split()]
    return " ".join(f"{field}{equals}{change(field, value)}" for field, equals, value in pairs)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A or B, and the question that it answers; None where it is a file."""

    side: Side
    question: Question | None = None


def _side(which: Which, say: Say) -> Chosen | None:
    """The widgets of A or B, and what they choose; None where there is nothing yet, or a message says why."""
    name = which.upper()
    kind = st.segmented_control(
        say("from", side=name),
        tuple(_CHOOSERS),
        default="scenario",
        key=f"compare:{which}_from",
        required=True,
        format_func=lambda choice: say(f"from_{choice}"),
    )
    try:
        return _CHOOSERS[kind or "scenario"](which, say)
    except ScenarioError as error:
        refusal(error.messages, say("wrong", side=name))
        return None


def _uploaded(which: Which, say: Say) -> Chosen | None:
    given = st.file_uploader(
        say("file"),
        list(sides.ENDINGS),
        accept_multiple_files=True,
        key=f"compare:{which}_file",
        help=say("file_help"),
        max_upload_size=sides.MAX_MB,
    )
    if not given:
        quiet(say("file_wait", side=which.upper()))
        return None
    return Chosen(sides.uploaded([(file.name, file.getvalue()) for file in given]))


def _folder(which: Which, say: Say) -> Chosen | None:
    given = st.file_uploader(
        say("folder"),
        list(sides.ENDINGS),
        accept_multiple_files="directory",
        key=f"compare:{which}_folder",
        help=say("folder_help"),
        max_upload_size=sides.MAX_MB,
    )
    if not given:
        quiet(say("folder_wait", side=which.upper()))
        return None
    return Chosen(sides.uploaded_folder([(file.name, file.getvalue()) for file in given]))


def _asked(which: Which, say: Say) -> Chosen:
    names = [*own.refs("scenario"), *shipped_names()]
    chosen = st.session_state[f"compare:{which}"]
    offered = names if chosen in names else [chosen, *names]
    scenario = st.selectbox(say("scenario"), offered, key=f"compare:{which}", on_change=_change, format_func=own.plain)
    settings = st.text_input(
        say("settings"),
        key=f"compare:{which}_set",
        on_change=_change,
        help=say("settings_help"),
        placeholder="workload.batch=8",
        max_chars=1000,
    )
    question = question_of(str(scenario), settings or "")
    return Chosen(sides.asked(question), question)


#: What a side can be, and the widgets that choose it.
_CHOOSERS: dict[str, Callable[[Which, Say], Chosen | None]] = {
    "scenario": _asked,
    "file": _uploaded,
    "folder": _folder,
}


def question_of(scenario: str, settings: str) -> Question:
    """The question with settings as the text has them, each as `--set` takes it; a file of the reader's stands there by
    its name. Raises ScenarioError."""
    pairs = [pair.partition("=") for pair in settings.split()]
    for field, equals, value in pairs:
        if not (field and equals and value):
            raise ScenarioError([f"{field}: must be key=value, such as workload.batch=4"])
    return Question(scenario, tuple((field, own.named(field, value)) for field, _, value in pairs))


def _step_us(side: Side) -> float:
    if side.timeline is not None:
        return (side.timeline.end_ns - side.timeline.start_ns) / 1000
    assert side.result is not None
    return float(side.result["step"]["total_us"])


def _kind(side: Side, say: Say) -> str:
    measured = side.timeline is not None and side.timeline.label == "MEASURED"
    return say("measured" if measured else "predicted")


def _numbers(result: dict[str, Any], a: Side, b: Side, interval: StepRatio | None, say: Say) -> None:
    first, second = _step_us(a), _step_us(b)
    ratio = first / second
    spread = [ratio] if interval is None else [ratio, interval.low, interval.high]
    same = all(abs(value - 1) < AS_FAST for value in spread)
    words = say("as_fast") if same else say("faster" if ratio > 1 else "slower")
    ends, told = "", ""
    if interval is not None and not same:
        low, high = (interval.low, interval.high) if ratio > 1 else (1 / interval.high, 1 / interval.low)
        ends = say("ratio_interval", ends=formats.interval(f"{low:.2f}", f"{high:.2f}"))
        told = "" if interval.distinguishable else say("not_distinguishable")
    figures(
        [
            Figure(say("step_of", side="A"), formats.number(first / 1000), "ms", f"{a.name} · {_kind(a, say)}"),
            Figure(say("step_of", side="B"), formats.number(second / 1000), "ms", f"{b.name} · {_kind(b, say)}"),
            Figure(say("ratio"), formats.ratio(max(ratio, 1 / ratio)), words, ends, told),
        ]
    )
    lead = say("sentence", a=formats.time(first), b=formats.time(second))
    moved = [(row["cause"], row["b_us"] - row["a_us"]) for row in causes_of(result)]
    most = (min if ratio > 1 else max)(moved, key=lambda pair: pair[1], default=None)
    rest = ""
    if told:
        rest = say("sentence_tie")
    elif most is not None and not same:
        rest = say("sentence_cause", cause=_cause(most[0], say), delta=_signed(most[1]))
    sentence(lead, rest)


def _signed(us: float) -> str:
    return ("+" if us > 0 else "") + formats.time(us)


def causes_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Time by cause: of the timelines where there are two, else of what both know."""
    rows_: list[dict[str, Any]] = result["timelines"]["causes"] if "timelines" in result else result["causes"]
    return rows_


def _cause(cause: str, say: Say) -> str:
    return say(f"cause_{cause}") if f"cause_{cause}" in TEXTS else cause


def _timelines(a: Side, b: Side, language: Language, say: Say) -> None:
    section(say("timelines"), say("timelines_note"))
    if a.timeline is None or b.timeline is None:
        quiet(say("no_timelines"))
        return
    drawn: list[dict[str, Any]] = []
    lanes: list[str] = []
    for name, side in (("A", a.timeline), ("B", b.timeline)):
        drawn += [{**row, "lane": f"{name} · {row['lane']}"} for row in rows.whole(side, {})]
        # A lane without a name keeps the two apart.
        lanes += [*([""] if lanes else []), *(f"{name} · {lane}" for lane in rows.lanes_of(side.spans))]
    longest = max(_step_us(a), _step_us(b))
    alt = say("timelines_alt", a=formats.number(_step_us(a) / 1000), b=formats.number(_step_us(b) / 1000))
    words = class_words(language), hover_words(language)
    show_with_data(timeline("timelines", drawn, lanes, *words, alt, span_us=(0.0, longest)))


def _causes(result: dict[str, Any], say: Say) -> None:
    section(say("causes"), say("causes_note"))
    moved = [
        {
            "label": _cause(row["cause"], say),
            "change": (row["b_us"] - row["a_us"]) / 1000,
            "a": row["a_us"] / 1000,
            "b": row["b_us"] / 1000,
        }
        for row in causes_of(result)
        if row["b_us"] != row["a_us"]
    ]
    if not moved:
        quiet(say("as_fast"))
        return
    parts = ", ".join(f"{row['label']} {_signed(row['change'] * 1000)}" for row in moved[:5])
    show_with_data(differences("causes", moved, say("cause"), say("causes_alt", parts=parts)))


main()
