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


def exact(key: str, label: str, default: Number, low: Number, high: Number) -> Number:
    """A number that is typed, any between two ends, kept in the URL; what the URL says and cannot be is the default."""
    kind = type(default)
    try:
        asked = kind(st.query_params.get(key, ""))
    except ValueError:
        asked = default
    st.session_state[key] = asked if low <= asked <= high else default
    step = kind(1)
    return st.number_input(
        label,
        min_value=low,
        max_value=high,
        step=step,
        format="%d" if kind is int else "%g",
        key=key,
        on_change=_keep,
        args=(key,),
    )


def whole_numbers(key: str, label: str, default: Sequence[int], high: int, most: int) -> tuple[int, ...] | None:
    """Whole numbers from 1 to `high`, typed with commas between, at most `most` of them, kept in the URL; each once and
    in order. None where something else is typed."""
    st.session_state[key] = st.query_params.get(key) or ", ".join(map(str, default))
    typed = st.text_input(label, key=key, on_change=_keep, args=(key,), max_chars=200)
    words = [word.strip() for word in str(typed).split(",") if word.strip()]
    if (
        not words
        or len(words) > most
        or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words)
    ):
        return None
    numbers = tuple(sorted({int(word) for word in words}))
    return numbers if numbers[0] >= 1 and numbers[-1] <= high else None


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
