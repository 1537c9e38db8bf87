"""Bars: the waterfall of gains, memory against what there is, and a step in its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app_pages.parts.charts.base import NUMBERS, Chart, Row, Spec, axis, names, room, row_height
from app_pages.parts.palette import ACCENT, BAD, GOOD, INK, NEUTRAL

ROW = 24
#: Room for a number of milliseconds behind a bar, pixels.
NUMBER = 64


def waterfall(
    name: str, gains: Sequence[Row], totals: tuple[float, float, float], say: Mapping[str, str], alt: str
) -> Chart:
    """From the step with nothing on to the step with all on, optimisation by optimisation.

    gains: {label, state, waterfall_us, note, differs} in the order they are switched on. totals: us with none, as it
    is, with all. say: words (none, here, all, step, change, now).
    """
    rows = _falls(gains, totals, say)
    widest = max(row["high"] for row in rows)
    x: Spec = {
        "field": "low",
        "type": "quantitative",
        "axis": axis(unit="ms", tickCount=6),
        "scale": {"domain": [0, widest], "nice": False, "range": room(NUMBER)},
    }
    deep = row_height((row["label"] for row in rows), ROW)
    y: Spec = {"field": "label", "type": "nominal", "sort": None, "axis": names()}
    color: Spec = {
        "field": "sort",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": ["total", "gain", "loss"], "range": [NEUTRAL, GOOD, BAD]},
    }
    tooltip = [
        {"field": "label", "title": say["step"]},
        {"field": "end", "title": say["change"]},
        {"field": "note", "title": say["now"]},
    ]
    spec: Spec = {
        "height": deep * len(rows) + NUMBERS,
        "layer": [
            {
                "mark": {"type": "bar", "height": ROW - 10},
                "encoding": {
                    "x": x,
                    "x2": {"field": "high"},
                    "y": y,
                    "color": color,
                    "tooltip": tooltip,
                    "opacity": {"condition": {"test": "datum.pale", "value": 0.4}, "value": 1},
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 12, "color": INK},
                "encoding": {"x": {**x, "field": "high"}, "y": y, "text": {"field": "end"}},
            },
        ],
    }
    return Chart(name, rows, spec, alt)


def _falls(gains: Sequence[Row], totals: tuple[float, float, float], say: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row per optimisation, with the step as it is where those that are on end."""
    rows: list[dict[str, Any]] = [_total(say["none"], totals[0])]
    at, here_shown = totals[0], False
    for gain in gains:
        if gain["state"] == "off" and not here_shown:
            rows.append(_total(say["here"], totals[1]))
            here_shown = True
        after = at - gain["waterfall_us"]
        rows.append(
            {
                "label": gain["label"],
                "low": min(at, after) / 1000,
                "high": max(at, after) / 1000,
                "change": (after - at) / 1000,
                "sort": "loss" if after > at else "gain",
                "note": gain["note"],
                "pale": gain["differs"],
                "end": f"{(after - at) / 1000:+.2f}".replace("-", "−"),
            }
        )
        at = after
    rows += [] if here_shown else [_total(say["here"], totals[1])]
    rows.append(_total(say["all"], totals[2]))
    return rows


def _total(label: str, us: float) -> dict[str, Any]:
    return {
        "label": label,
        "low": 0.0,
        "high": us / 1000,
        "change": None,
        "sort": "total",
        "note": "",
        "pale": False,
        "end": f"{us / 1000:,.2f} ms",
    }


def stacked(name: str, parts: Sequence[Row], unit: str, alt: str, limit: tuple[float, str] | None = None) -> Chart:
    """One bar of several parts.

    parts: {part, value, colour}, from left to right, with `row` for several bars. limit: a line at a value, and its
    label.
    """
    rows = [{"row": "", **part, "order": n} for n, part in enumerate(parts)]
    colour: Spec = {
        "field": "part",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": [p["part"] for p in parts], "range": [p["colour"] for p in parts]},
        "legend": None,
    }
    bar: Spec = {
        "mark": {"type": "bar", "height": 26},
        "encoding": {
            "x": {
                "field": "value",
                "type": "quantitative",
                "axis": axis(unit=unit, tickCount=6),
                "stack": "zero",
                "scale": {"domain": [0, sum(p["value"] for p in parts) or 1], "nice": False},
            },
            "y": {"field": "row", "type": "nominal", "axis": None},
            "color": colour,
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [{"field": "part", "title": " "}, {"field": "shown", "title": unit}],
        },
    }
    layers = [bar]
    if limit is not None:
        layers.append(
            {
                "data": {"values": [{"at": limit[0], "label": limit[1]}]},
                "mark": {"type": "rule", "color": ACCENT, "strokeWidth": 2},
                "encoding": {"x": {"field": "at", "type": "quantitative"}, "tooltip": {"field": "label"}},
            }
        )
    legend = [(part["part"], part["colour"]) for part in parts]
    return Chart(name, rows, {"height": 40 + NUMBERS, "layer": layers}, alt, legend=legend)


def differences(name: str, rows: Sequence[Row], word: str, alt: str) -> Chart:
    """Bars to the left and right of zero, ms. rows: {label, change, a, b}; less is better. word: what the rows are."""
    data = [
        {
            **row,
            "sort": "loss" if row["change"] > 0 else "gain",
            "end": f"{row['change']:+,.3f}".replace("-", "−"),
            "zero": 0.0,
        }
        for row in rows
    ]
    low, high = min(0.0, *(row["change"] for row in rows)), max(0.0, *(row["change"] for row in rows))
    # Room for the number at the end of a bar, on the sides that have bars.
    ends = [NUMBER if low < 0 else 4, NUMBER if high > 0 else 4]
    across: list[Any] = [ends[0], {"expr": f"max({ends[0] + 40}, width - {ends[1]})"}]
    x: Spec = {
        "field": "change",
        "type": "quantitative",
        "axis": axis(unit="ms", tickCount=6),
        "scale": {"domain": [low, high], "nice": False, "range": across},
    }
    deep = row_height((row["label"] for row in rows), ROW)
    y: Spec = {"field": "label", "type": "nominal", "sort": None, "axis": names()}
    tooltip: list[Spec] = [
        {"field": "label", "title": word},
        {"field": "a", "title": "A, ms", "type": "quantitative", "format": ",.3f"},
        {"field": "b", "title": "B, ms", "type": "quantitative", "format": ",.3f"},
        {"field": "change", "title": "B − A, ms", "type": "quantitative", "format": "+,.3f"},
    ]
    color: Spec = {
        "field": "sort",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": ["gain", "loss"], "range": [GOOD, BAD]},
    }
    text: Spec = {"type": "text", "fontSize": 12, "color": INK}
    spec: Spec = {
        "height": deep * len(data) + NUMBERS,
        "layer": [
            {
                "mark": {"type": "bar", "height": ROW - 10},
                "encoding": {"x": x, "x2": {"field": "zero"}, "y": y, "color": color, "tooltip": tooltip},
            },
            {
                "mark": {**text, "align": "left", "dx": 6},
                "transform": [{"filter": "datum.change > 0"}],
                "encoding": {"x": x, "y": y, "text": {"field": "end"}},
            },
            {
                "mark": {**text, "align": "right", "dx": -6},
                "transform": [{"filter": "datum.change <= 0"}],
                "encoding": {"x": x, "y": y, "text": {"field": "end"}},
            },
        ],
    }
    return Chart(name, data, spec, alt)
