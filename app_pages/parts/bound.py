"""Widgets whose value stands in the URL: by the value, never by what the reader's language calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from app_pages.parts import own, state
from sim.hardware.profile import hardware_names, load_hardware

T = TypeVar("T")
Number = TypeVar("Number", int, float)


def _asked(key: str, options: Sequence[T], default: T) -> T:
    """The option that the URL names by its value, never by what the reader's language calls it; else the default."""
    asked = st.query_params.get(key, "")
    value = next((option for option in options if str(option) == asked), default)
    st.session_state[key] = value
    return value


def _keep(key: str) -> None:
    """A widget moved: its value goes into the URL, as one step of the browser's history."""
    state.write({key: str(st.session_state[key])})


def steps(key: str, label: str, options: Sequence[Number], default: Number) -> Number:
    """A slider over given numbers, kept in the URL."""
    _asked(key, list(options), default)
    value = st.select_slider(
        label,
        list(options),
        key=key,
        on_change=_keep,
        args=(key,),
        format_func=_short,
    )
    return value


def choice(key: str, label: str, options: Sequence[str], words: Callable[[str], str] = str, default: int = 0) -> str:
    """One of a few words, kept in the URL."""
    value = _asked(key, options, options[default])
    chosen = st.segmented_control(
        label, list(options), key=key, on_change=_keep, args=(key,), format_func=words, required=True
    )
    return chosen if isinstance(chosen, str) else value


def picked(key: str, label: str, options: Sequence[str], default: str, hint: str | None = None) -> str:
    """One of many names, kept in the URL."""
    value = _asked(key, options, default)
    chosen = st.selectbox(label, list(options), key=key, on_change=_keep, args=(key,), help=hint, format_func=own.plain)
    return chosen if isinstance(chosen, str) else value


def several(key: str, label: str, options: Sequence[str], default: Sequence[str]) -> list[str]:
    """Some of many names, kept in the URL with commas between."""
    asked = st.query_params.get(key)
    named = list(default) if asked is None else asked.split(",")
    st.session_state[key] = [option for option in options if option in named]
    return st.multiselect(label, list(options), key=key, on_change=_keep_several, args=(key,))


def _keep_several(key: str) -> None:
    state.write({key: ",".join(st.session_state[key])})


def _short(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value:,}"


def npus() -> list[str]:
    """The Ascend chips that can be chosen: those that ship, and the reader's own."""
    return [name for name in hardware_names() if load_hardware(name).profile.device == "npu"] + own.refs("hardware")
