"""Ratios with their intervals around the line of no effect: a dot a switch, on one axis that 1 divides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app_pages.parts.charts.base import LEGEND, NUMBERS, Chart, Row, Spec, axis

ROW = 26
#: Room at the right for the numbers, as a share of the axis; and what the title of the axis takes, pixels.
ROOM, TITLE = 0.45, 22


def ratios(name: str, rows: Sequence[Row], alt: str, colours: Mapping[str, str], *, title: str) -> Chart:
    """rows: {label, series, value, low, high, shown}, from top to bottom. colours: of the series, in the order of the
    legend. Values are ratios, above 1 is better."""
    ends = [end for row in rows for end in (row["low"], row["high"])] or [1.0]
    low, high = min(0.98, *ends), max(1.02, *ends)
    scale: Spec = {"domain": [low - 0.02 * (high - low), high + ROOM * (high - low)], "nice": False, "zero": False}
    x: Spec = {"field": "value", "type": "quantitative", "axis": axis(title, tickCount=6, format="~g"), "scale": scale}
    y: Spec = {
        "field": "label",
        "type": "nominal",
        "sort": None,
        "axis": axis(grid=False, labelLimit=260, labelOverlap=False),
    }
    colour: Spec = {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": list(colours), "range": list(colours.values())},
        "legend": {
            "orient": "top",
            "title": None,
            "direction": "horizontal",
            "symbolType": "circle",
            "symbolStrokeWidth": 0,
            "columns": 0,
            "labelLimit": 300,
            "offset": 6,
        },
    }
    tip = [{"field": key, "title": " "} for key in ("label", "series", "shown")]
    spec: Spec = {
        "height": ROW * len(rows) + NUMBERS + TITLE + LEGEND,
        "layer": [
            {
                "data": {"values": [{"at": 1.0}]},
                "mark": {"type": "rule", "strokeDash": [4, 3], "color": "#5d6872"},
                "encoding": {"x": {"field": "at", "type": "quantitative"}},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour},
            },
            {
                "mark": {"type": "circle", "size": 80, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour, "tooltip": tip},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 8, "fontSize": 12, "color": "#6b7580"},
                "encoding": {"x": {**x, "field": "high"}, "y": y, "text": {"field": "shown"}},
            },
        ],
    }
    return Chart(name, rows, spec, alt)
