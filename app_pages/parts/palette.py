"""Colours of the lab: one for each class of work, the same in every chart, scenario and theme.

Okabe and Ito's set, which readers with any of the common colour blindnesses distinguish, on white and on near-black.
"""

from __future__ import annotations

from scenarios.ops.catalogue import CATALOGUE

#: What draws the eye: the scenario as it stands, the selected, the gain.
ACCENT = "#0f766e"
GOOD, BAD, NEUTRAL = "#009e73", "#d55e00", "#8a939e"
#: In a specification: the colour of plain text, which `ink_of` gives for the ground. No one colour has a contrast
#: of 4.5 to 1 on white and on near-black.
INK = "#ink"
#: Text on bright colours.
DARK = "#0f151b"
_INKS = {"light": "#55606b", "dark": "#a9b4be"}
#: Where nothing happens: seen through, on either ground.
IDLE = "rgba(138,147,158,0.35)"

#: Classes of work in the order of legends, each with its colour.
CLASSES = {
    "matmul": "#0072b2",
    "attention": "#d55e00",
    "norm": "#009e73",
    "vector": "#56b4e9",
    "cache": "#cc79a7",
    "experts": "#e69f00",
    "communication": "#b59b00",
    "wait": "#8c5a3c",
    "graph": "#7b6bb0",
    "host": "#6b7784",
    "launch": "#a3adb8",
    "ai_cpu": "#4d4d4d",
}


def ink_of(theme: str | None) -> str:
    """The colour of plain text in charts on a light or dark ground."""
    return _INKS["dark" if theme == "dark" else "light"]


def ink(colour: str) -> str:
    """Dark or white, whichever is read better on `#rrggbb`."""
    bright = luminance(colour)
    return DARK if (bright + 0.05) / (luminance(DARK) + 0.05) > 1.05 / (bright + 0.05) else "#ffffff"


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, 0 to 1 (WCAG 2.1)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


#: Families of compared rows, as `sim.accuracy.families` has them.
FAMILIES = {
    "matrix products": CLASSES["matmul"],
    "attention": CLASSES["attention"],
    "vector and cache": CLASSES["vector"],
    "collectives": CLASSES["experts"],
    "whole steps": CLASSES["cache"],
}

#: The class of a kernel that belongs to no part of a layer.
_BY_UNIT = {
    "cube": "matmul",
    "mix": "matmul",
    "vector": "vector",
    "link": "communication",
    "ai_cpu": "ai_cpu",
    "copy": "cache",
}
#: Spans that are no kernels, by their kind.
_SPANS = {
    "wait": "wait",
    "transfer": "communication",
    "replay": "graph",
    "update": "graph",
    "synchronize": "wait",
    "host": "host",
}


#: Classes of the families that `sim.compare.classes` finds in other profilers' names.
BY_FAMILY = {
    "matrix products": "matmul",
    "attention": "attention",
    "norms": "norm",
    "KV cache": "cache",
    "other vector": "vector",
    "copies": "cache",
    "AI CPU": "ai_cpu",
    "transfer": "communication",
    "waiting for other ranks": "wait",
    "collectives": "communication",
    "host": "host",
    "waits of a stream": "wait",
}


def known(kind: str, process: str) -> bool:
    """Whether `class_of` knows the kind, or the lane tells all."""
    return kind in CATALOGUE or kind in _SPANS or process in ("Python", "CANN")


def class_of(kind: str, process: str = "") -> str:
    """The class of a span or kernel of `kind` on a lane of `process`."""
    if process in ("Python", "CANN") and kind not in ("synchronize", "replay", "update"):
        return "host" if process == "Python" else "launch"
    if kind in _SPANS:
        return _SPANS[kind]
    if kind in CATALOGUE and CATALOGUE[kind].part:
        return CATALOGUE[kind].part
    if process == "AI CPU":
        return "ai_cpu"
    if process == "Communication":
        return "communication"
    return _BY_UNIT[CATALOGUE[kind].unit] if kind in CATALOGUE else "vector"
