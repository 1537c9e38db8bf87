"""Predicted against measured: both axes logarithmic, the diagonal a perfect prediction, dashed lines 20 % off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

from app_pages.parts.charts.base import NUMBERS, Chart, Row, Spec, axis, names, row_height, zoom

OFF = 1.2


def scatter(name: str, points: Sequence[Row], colours: Mapping[str, str], say: Mapping[str, str], alt: str) -> Chart:
    """points: {family, label, measured_us, predicted_us, low_us, high_us, error, roofline_error}. colours: of the
    families, in the order of the legend. say: words (measured, predicted, error, interval, row;
    roofline where its error is known)."""
    values = [value for p in points for value in (p["measured_us"], p["predicted_us"])] or [1.0, 10.0]
    low, high = 10.0 ** floor(log10(min(values))), 10.0 ** ceil(log10(max(values)))
    ticks = [10.0**n for n in range(round(log10(low)), round(log10(high)) + 1)]
    x, y = (_log(f"{word}_us", say[word], ticks) for word in ("measured", "predicted"))
    tooltip = [
        {"field": "label", "title": say["row"]},
        {"field": "measured_us", "title": say["measured"], "type": "quantitative", "format": ",.2f"},
        {"field": "predicted_us", "title": say["predicted"], "type": "quantitative", "format": ",.2f"},
        {"field": "error", "title": say["error"], "type": "quantitative", "format": "+.1%"},
        {"field": "interval", "title": say["interval"]},
    ]
    if "roofline" in say:
        tooltip.append({"field": "roofline_error", "title": say["roofline"], "type": "quantitative", "format": "+.0%"})
    data = [{**p, "interval": f"{p['low_us']:,.2f}–{p['high_us']:,.2f}"} for p in points]
    spec: Spec = {
        "height": 520,
        "layer": [
            {
                "data": {"values": _lines(low, high)},
                "mark": {"type": "line", "color": "#8a939e", "strokeWidth": 1, "clip": True},
                "encoding": {
                    "x": x,
                    "y": y,
                    "detail": {"field": "factor"},
                    "strokeDash": {
                        "field": "dashed",
                        "type": "nominal",
                        "legend": None,
                        "scale": {"domain": [False, True], "range": [[1, 0], [4, 4]]},
                    },
                },
            },
            {
                "mark": {"type": "circle", "size": 52, "opacity": 0.75, "clip": True},
                "params": [zoom("x", "y")],
                "encoding": {
                    "x": x,
                    "y": y,
                    "tooltip": tooltip,
                    "color": {
                        "field": "family",
                        "type": "nominal",
                        "scale": {"domain": list(colours), "range": list(colours.values())},
                        "legend": None,
                    },
                },
            },
        ],
    }
    return Chart(name, data, spec, alt, legend=list(colours.items()))


def _log(field: str, title: str, ticks: list[float]) -> Spec:
    label = (
        "datum.value >= 1e6 ? datum.value / 1e6 + ' s' : datum.value >= 1e3 ? datum.value / 1e3 + ' ms'"
        " : datum.value + ' µs'"
    )
    return {
        "field": field,
        "type": "quantitative",
        "axis": axis(title, values=ticks, labelExpr=label),
        "scale": {"type": "log", "domain": [ticks[0], ticks[-1]], "nice": False},
    }


def _lines(low: float, high: float) -> list[dict[str, Any]]:
    return [
        {"measured_us": at, "predicted_us": at * factor, "factor": factor, "dashed": factor != 1.0}
        for factor in (1.0, OFF, 1 / OFF)
        for at in (low, high)
    ]


def intervals(name: str, rows: Sequence[Row], say: Mapping[str, str], alt: str) -> Chart:
    """Rows of {label, measured, predicted, low, high, scored}: a bar for the predicted interval, a mark for each time.

    say: words (row, measured, predicted, interval, error)."""
    data = [
        {**row, "interval": f"{row['low']:,.2f}–{row['high']:,.2f}", "error": row["predicted"] / row["measured"] - 1}
        for row in rows
    ]
    edge = [value for row in rows for value in (row["low"], row["high"], row["measured"])] or [1.0, 10.0]
    low, high = min(edge) * 0.9, max(edge) * 1.1
    scale = {"type": "log", "domain": [low, high], "nice": False}
    ticks = [v for n in range(-1, 4) for v in (10.0**n, 2 * 10.0**n, 5 * 10.0**n) if low <= v <= high]
    x: Spec = {"field": "low", "type": "quantitative", "scale": scale, "axis": axis(unit="ms", values=ticks)}
    y: Spec = {"field": "label", "type": "nominal", "sort": None, "axis": names()}
    tooltip = [
        {"field": "label", "title": say["row"]},
        {"field": "measured", "title": say["measured"], "type": "quantitative", "format": ",.2f"},
        {"field": "predicted", "title": say["predicted"], "type": "quantitative", "format": ",.2f"},
        {"field": "interval", "title": say["interval"]},
        {"field": "error", "title": say["error"], "type": "quantitative", "format": "+.1%"},
    ]
    spec: Spec = {
        "height": row_height((row["label"] for row in rows), 24) * len(rows) + NUMBERS,
        "layer": [
            {
                "mark": {"type": "bar", "height": 7, "color": "#56b4e9", "opacity": 0.45},
                "encoding": {"x": x, "x2": {"field": "high"}, "y": y, "tooltip": tooltip},
            },
            {
                "mark": {"type": "tick", "thickness": 3, "size": 15, "color": "#0072b2"},
                "encoding": {"x": {**x, "field": "predicted"}, "y": y, "tooltip": tooltip},
            },
            {
                "mark": {"type": "point", "shape": "diamond", "size": 62, "stroke": "#d55e00", "strokeWidth": 1.5},
                "encoding": {
                    "x": {**x, "field": "measured"},
                    "y": y,
                    "tooltip": tooltip,
                    "fill": {"condition": {"test": "datum.scored", "value": "#d55e00"}, "value": "transparent"},
                },
            },
        ],
    }
    return Chart(name, data, spec, alt)
