"""Two predictions side by side: what was set differently, what changed, and where the difference lies."""

from __future__ import annotations

import math
from typing import Any

from sim.predict.result import SCHEMA_VERSION

#: A smaller relative difference of two steps is none.
AS_FAST = 5e-4

_STEP_CAUSES = (("free_us", "device idle"), ("communication_wait_us", "waiting for other ranks"))


def compare_results(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The `compare` document of two `run` documents.

    causes: kernel time by kind (of collectives, the transfer), and what is no kernel time; where no kernels overlap
    they sum to the step.
    """
    names = _names(a, b)
    return {
        "schema_version": SCHEMA_VERSION,
        "a": {"name": names[0], "hardware": a["hardware"], "bottleneck": a["bottleneck"]["name"]},
        "b": {"name": names[1], "hardware": b["hardware"], "bottleneck": b["bottleneck"]["name"]},
        "settings": _settings(a["scenario"], b["scenario"]),
        "metrics": {
            key: pair_of(a["metrics"][key]["value"], b["metrics"][key]["value"])
            for key in a["metrics"]
            if key in b["metrics"]
        },
        "step": {key: pair_of(a["step"][key], b["step"][key]) for key in a["step"] if key in b["step"]},
        "counts": {
            key: pair_of(a[key], b[key]) for key in ("kernel_count", "launches", "hbm_bytes", "global_memory_bytes")
        },
        "causes": _causes(a, b),
        "overlaps": {"a": a.get("overlaps", []), "b": b.get("overlaps", [])},
        "sentence": _sentence(a, b, names),
    }


def _names(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, str]:
    first, second = a["scenario"]["name"], b["scenario"]["name"]
    return (first, second) if first != second else (f"{first} (A)", f"{second} (B)")


def pair_of(a: float, b: float) -> dict[str, float | None]:
    """Both values and B / A, None where that is no number."""
    ratio = b / a if a else math.inf
    return {"a": a, "b": b, "ratio": ratio if math.isfinite(ratio) else None}


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _settings(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    flat_a, flat_b = _flat(a), _flat(b)
    skip = ("name", "description")
    return [
        {"setting": key, "a": flat_a.get(key), "b": flat_b.get(key)}
        for key in dict.fromkeys((*flat_a, *flat_b))
        if key not in skip and flat_a.get(key) != flat_b.get(key)
    ]


def _causes(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    def by_kind(result: dict[str, Any]) -> dict[str, float]:
        times: dict[str, float] = {}
        for row in result["kernels"]:
            times[row["kind"]] = times.get(row["kind"], 0.0) + row["total_us"]
        return {**times, **{label: result["step"][key] for key, label in _STEP_CAUSES if result["step"][key]}}

    times_a, times_b = by_kind(a), by_kind(b)
    causes = [
        {"cause": cause, "a_us": times_a.get(cause, 0.0), "b_us": times_b.get(cause, 0.0)}
        for cause in dict.fromkeys((*times_a, *times_b))
    ]
    return sorted(causes, key=lambda c: (-abs(c["b_us"] - c["a_us"]), c["cause"]))


def change_of(a_us: float, b_us: float) -> str:
    """How a step of B is to one of A, in words."""
    if not a_us or not b_us:
        return "as fast" if a_us == b_us else "one of them is empty"
    ratio = a_us / b_us
    if abs(ratio - 1) < AS_FAST:
        return "as fast"
    return f"{ratio:.2f}x faster" if ratio > 1 else f"{1 / ratio:.2f}x slower"


def _sentence(a: dict[str, Any], b: dict[str, Any], names: tuple[str, str]) -> str:
    ratio = a["step"]["total_us"] / b["step"]["total_us"]
    change = change_of(a["step"]["total_us"], b["step"]["total_us"])
    # The cause must pull in the direction of the change: what shrinks does not make a step slower.
    moved = {c["cause"]: c["b_us"] - c["a_us"] for c in _causes(a, b)}
    most = (min if ratio > 1 else max)(moved, key=moved.__getitem__, default="")
    where = ""
    if most and abs(ratio - 1) >= AS_FAST:
        where = f", most of it {most} ({moved[most] / 1000:+,.3f} ms)"
    first, second = a["bottleneck"]["name"], b["bottleneck"]["name"]
    bound = f"Both are {first}." if first == second else f"The bottleneck goes from {first} to {second}."
    ms_a, ms_b = a["step"]["total_us"] / 1000, b["step"]["total_us"] / 1000
    return f"A step of {names[1]} takes {ms_b:,.2f} ms against {ms_a:,.2f} ms of {names[0]}: {change}{where}. {bound}"
