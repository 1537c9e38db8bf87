"""An engine profile as the text of its file."""

from __future__ import annotations

import json
from dataclasses import fields

from sim.engines.profile import SECTIONS, EngineProfile
from sim.hardware.profile import Number

#: Words that YAML 1.2 reads as something else.
NO_TEXT = {"true", "false", "null"}


def engine_text(engine: EngineProfile) -> str:
    """The YAML of `engine`, complete: it extends nothing."""
    file = engine.profile
    lines = [f"name: {_quoted(file.name)}", f"description: {_quoted(file.description)}"]
    for section, kind in SECTIONS.items():
        part = getattr(file, section)
        lines += ["", f"{section}:"]
        lines += [f"  {field.name}: {_flow(getattr(part, field.name))}" for field in fields(kind)]
    if file.defaults:
        lines += ["", "defaults:"]
        lines += [
            f"  {name}: {{value: {_plain(default.value)}, source: {default.source}, origin: {_quoted(default.origin)}}}"
            for name, default in file.defaults.items()
        ]
    return "\n".join(lines) + "\n"


def _flow(number: Number) -> str:
    text = f"{{value: {number.value:g}, source: {number.source}, origin: {_quoted(number.origin)}"
    if number.low is not None:
        text += f", low: {number.low:g}"
    if number.high is not None:
        text += f", high: {number.high:g}"
    return text + "}"


def _plain(value: str | int) -> str:
    """A word as it is, anything that YAML would read as no text in quotes."""
    if isinstance(value, int):
        return str(value)
    return value if value.isidentifier() and value.lower() not in NO_TEXT else _quoted(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
