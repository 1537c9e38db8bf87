"""Colours of the lab: one for each class of work, the same in every chart, scenario and theme.

Okabe and Ito's set, which readers with any of the common colour blindnesses distinguish, on white and on near-black.
"""

from __future__ import annotations

from scenarios.ops.catalogue import CATALOGUE

#: What draws the eye: the scenario as it stands, the selected, the gain.
ACCENT = "#0f766e"
GOOD, BAD, NEUTRAL = "#009e73", "#d55e00", "#8a939e"
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
    "wait": IDLE,
    "graph": "#7b6bb0",
    "host": "#6b7784",
    "launch": "#a3adb8",
    "ai_cpu": "#4d4d4d",
}

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
