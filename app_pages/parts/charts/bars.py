"""Bars: the waterfall of gains, memory against what there is, and a step in its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app_pages.parts.charts.base import Chart, Row, Spec, axis
from app_pages.parts.palette import ACCENT, BAD, GOOD, NEUTRAL

ROW = 24


def waterfall(
    name: str, gains: Sequence[Row], totals: tuple[float, float, float], say: Mapping[str, str], alt: str
) -> Chart:
    """From the step with nothing on to the step with all on, optimisation by optimisation.

    gains: {label, state, waterfall_us, note} in the order they are switched on. totals: us with none, as it is, with
    all. say: words (none, here, all, step, change, now).
    """
    rows: list[dict[str, Any]] = [_total(say["none"], totals[0])]
    at, here_shown = totals[0], False
    for gain in gains:
        if gain["state"] == "off" and not here_shown:
            rows.append(_total(say["here"], totals[1]))
            here_shown = True
        after = at - gain["waterfall_us"]
        rows.append({"label": gain["label"], "low": min(at, after) / 1000, "high": max(at, after) / 1000,
                     "change": (after - at) / 1000, "sort": "loss" if after > at else "gain", "note": gain["note"],
                     "end": f"{(after - at) / 1000:+.2f}".replace("-", "−")})  # fmt: skip
        at = after
    rows += [] if here_shown else [_total(say["here"], totals[1])]
    rows.append(_total(say["all"], totals[2]))
    x: Spec = {"field": "low", "type": "quantitative", "axis": axis("ms"), "scale": {"zero": True}}
    y: Spec = {"field": "label", "type": "nominal", "sort": None, "axis": axis(None, grid=False, labelLimit=230)}
    color: Spec = {"field": "sort", "type": "nominal", "legend": None,
                   "scale": {"domain": ["total", "gain", "loss"], "range": [NEUTRAL, GOOD, BAD]}}  # fmt: skip
    tooltip = [
        {"field": "label", "title": say["step"]},
        {"field": "change", "title": say["change"], "type": "quantitative", "format": "+,.3f"},
        {"field": "note", "title": say["now"]},
    ]
    spec: Spec = {
        "height": ROW * len(rows),
        "layer": [
            {"mark": {"type": "bar", "height": ROW - 10},
             "encoding": {"x": x, "x2": {"field": "high"}, "y": y, "color": color, "tooltip": tooltip}},
            {"mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 12},
             "encoding": {"x": {**x, "field": "high"}, "y": y, "text": {"field": "end"}}},
        ],
    }  # fmt: skip
    return Chart(name, rows, spec, alt)


def _total(label: str, us: float) -> dict[str, Any]:
    return {"label": label, "low": 0.0, "high": us / 1000, "change": None, "sort": "total", "note": "",
            "end": f"{us / 1000:,.2f} ms"}  # fmt: skip


def stacked(name: str, parts: Sequence[Row], unit: str, alt: str, limit: tuple[float, str] | None = None) -> Chart:
    """One bar of several parts.

    parts: {part, value, colour}, from left to right, with `row` for several bars. limit: a line at a value, and its
    label.
    """
    rows = [{"row": "", **part, "order": n} for n, part in enumerate(parts)]
    colour: Spec = {
        "field": "part", "type": "nominal", "sort": None,
        "scale": {"domain": [p["part"] for p in parts], "range": [p["colour"] for p in parts]},
        "legend": {"orient": "bottom", "title": None, "direction": "horizontal", "columns": 3, "symbolType": "square",
                   "labelLimit": 220},
    }  # fmt: skip
    bar: Spec = {
        "mark": {"type": "bar", "height": 26},
        "encoding": {
            "x": {"field": "value", "type": "quantitative", "axis": axis(unit), "stack": "zero"},
            "y": {"field": "row", "type": "nominal", "axis": None},
            "color": colour,
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [{"field": "part", "title": " "}, {"field": "shown", "title": unit}],
        },
    }  # fmt: skip
    layers = [bar]
    if limit is not None:
        layers.append(
            {"data": {"values": [{"at": limit[0], "label": limit[1]}]},
             "mark": {"type": "rule", "color": ACCENT, "strokeWidth": 2},
             "encoding": {"x": {"field": "at", "type": "quantitative"}, "tooltip": {"field": "label"}}}
        )  # fmt: skip
    return Chart(name, rows, {"height": 44, "layer": layers}, alt)
