"""The side bar of the lab: scenario, chip, sliders and switches.

They stand where the URL has them, and where the scenario does without it; what is moved goes into the URL.
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app_pages.parts import answers, own, state
from app_pages.parts.controls import CONTROLS, GROUPS, Control, text_of
from app_pages.parts.page import literal
from app_pages.parts.state import Question, value_of, written
from app_pages.parts.texts import Language, Say, speaker
from app_pages.parts.texts.fields import GROUP_LABELS, HELP_ZH, LABELS
from app_pages.parts.texts.refusals import in_words
from scenarios.errors import ScenarioError
from scenarios.loader import shipped_names
from scenarios.schema import Scenario

SCENARIO = "lab:scenario"
#: Fields whose value may be a file of the reader.
_OWN: dict[str, own.Kind] = {"model": "model", "hardware": "hardware"}
#: What the widgets were last set to.
SHOWN = "kept:shown"


def settings(question: Question, language: Language, refused: Mapping[str, str]) -> None:
    """Draw the widgets as `question` has them. refused: what is wrong, by field."""
    shown = _values(question)
    if st.session_state.get(SHOWN) != question or SCENARIO not in st.session_state:
        st.session_state[SCENARIO] = question.scenario
        for control in CONTROLS:
            st.session_state[control.key] = shown[control.field]
        st.session_state[SHOWN] = question
    label = speaker(LABELS, language)
    names = [*own.refs("scenario"), *shipped_names()]
    if question.scenario not in names and own.path_of(question.scenario) is not None:
        names.insert(0, question.scenario)
    if question.scenario not in names:
        st.session_state[SCENARIO] = state.FIRST_SCENARIO
    st.selectbox(label("scenario"), names, key=SCENARIO, on_change=_choose, format_func=own.plain)
    group_label = speaker(GROUP_LABELS, language)
    for name, controls in GROUPS.items():
        wrong = [control for control in controls if control.field in refused]
        if name == "workload":
            _group(controls, shown, label, language, refused)
            continue
        # What is folded away is not drawn: thirty widgets less for each redraw.
        folded = st.expander(group_label(name), expanded=name == "issue", key=f"group:{name}", on_change="rerun")
        if folded.open or wrong:
            with folded:
                _group(controls, shown, label, language, refused)


def _group(
    controls: tuple[Control, ...],
    shown: Mapping[str, object],
    label: Say,
    language: Language,
    refused: Mapping[str, str],
) -> None:
    for control in controls:
        # The session may lack a widget that was not drawn for a while: another page was.
        st.session_state.setdefault(control.key, shown[control.field])
        offered = control.offered(shown[control.field])
        kind = _OWN.get(control.field)
        if kind is not None:
            offered += [ref for ref in own.refs(kind) if ref not in offered]
        _widget(control, offered, label(control.field), help_of(control.field, language))
        if control.field in refused:
            st.error(literal(in_words(refused[control.field], language)))


def _widget(control: Control, options: list[object], label: str, hint: str) -> None:
    if control.widget == "toggle":
        st.toggle(label, key=control.key, help=hint, on_change=_change)
    elif control.widget == "choice":
        st.segmented_control(label, options, key=control.key, help=hint, on_change=_change, required=True)
    elif control.widget == "list":
        st.selectbox(label, options, key=control.key, help=hint, on_change=_change, format_func=_named)
    else:
        slider, typed = st.columns([5, 3], gap="small", vertical_alignment="bottom")
        slider.select_slider(label, options, key=control.key, help=hint, on_change=_change, format_func=_short)
        _typed(typed, control, label)


def _typed(place: DeltaGenerator, control: Control, label: str) -> None:
    """The exact number next to a slider: any that the schema takes, not only the stops."""
    value = st.session_state[control.key]
    if not isinstance(value, int) or isinstance(value, bool):
        return
    key = f"typed:{control.field}"
    st.session_state[key] = value
    place.number_input(label, step=1, key=key, on_change=_change_typed, args=(control,), label_visibility="collapsed")


def _change_typed(control: Control) -> None:
    st.session_state[control.key] = st.session_state[f"typed:{control.field}"]
    _change()


def _named(value: object) -> str:
    return own.plain(str(value))


def _short(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _values(question: Question) -> dict[str, object]:
    """Where the widgets stand: as asked; what is refused stands where the rest leaves it."""
    try:
        scenario = answers.loaded(question).scenario
    except ScenarioError:
        scenario = _nearest(question)
    return {control.field: _shown(scenario, control) for control in CONTROLS}


def _shown(scenario: Scenario, control: Control) -> object:
    """Where a widget stands for `scenario`; a switch that is not set is off."""
    value = own.reference(value_of(scenario, control.field))
    return bool(value) if control.widget == "toggle" else value


def _nearest(question: Question) -> Scenario:
    """The scenario with as many of the settings, in their order, as stand together."""
    if question.scenario not in shipped_names() and own.path_of(question.scenario) is None:
        question = Question(sets=question.sets)
    kept = Question(question.scenario)
    scenario = answers.loaded(kept).scenario
    for pair in question.sets:
        tried = Question(kept.scenario, (*kept.sets, pair))
        try:
            scenario = answers.loaded(tried).scenario
        except ScenarioError:
            continue
        kept = tried
    return scenario


def help_of(field: str, language: Language) -> str:
    """What a field is: the schema's own words, or in Chinese."""
    return HELP_ZH[field] if language == "zh" else schema_help(field)


def schema_help(field: str) -> str:
    """The description of a dotted field in the schema."""
    return text_of(field).replace("\n", " ")


def _choose() -> None:
    """Another scenario: as it ships, with nothing set on it."""
    ask(Question(st.session_state[SCENARIO]))


def _change() -> None:
    """A widget moved: what differs from the scenario as it ships is set."""
    asked: Question = st.session_state[SHOWN]
    before = _values(asked)
    ships = answers.loaded(Question(asked.scenario)).scenario
    sets = dict(asked.sets)
    for control in CONTROLS:
        value = st.session_state.get(control.key, before[control.field])
        if value is None or value == before[control.field]:
            continue
        sets.pop(control.field, None)
        if value != _shown(ships, control):
            sets[control.field] = written(value)
    question = Question(asked.scenario, tuple(sorted(sets.items())))
    st.session_state[SHOWN] = question
    ask(question, redraw=False)


def ask(question: Question, redraw: bool = True) -> None:
    """Put a question into the URL, in a callback. redraw: set all widgets to it."""
    dropped = {key: None for key in st.query_params if state.is_question(key)}
    state.write({**dropped, **question.params})
    if redraw:
        st.session_state.pop(SHOWN, None)
