"""Ratios with their intervals around the line of no effect: a dot a switch, on one axis that 1 divides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app_pages.parts.charts.base import NUMBERS, TITLE, Chart, Row, Spec, axis, names, room, row_height
from app_pages.parts.palette import INK

ROW = 26
#: Width of a letter of the numbers at the right, pixels.
LETTER = 6.4


def ratios(name: str, rows: Sequence[Row], alt: str, colours: Mapping[str, str], *, title: str) -> Chart:
    """rows: {label, series, value, low, high, shown}, from top to bottom. colours: of the series, in the order of the
    legend. Values are ratios, above 1 is better."""
    ends = [end for row in rows for end in (row["low"], row["high"])] or [1.0]
    low, high = min(0.98, *ends), max(1.02, *ends)
    numbers = max((len(row["shown"]) for row in rows), default=1)
    # Numbers stand right of the line of no effect, which would cross them.
    rows = [{**row, "at": max(1.0, row["high"])} for row in rows]
    scale: Spec = {"domain": [low - 0.02 * (high - low), high], "nice": False, "zero": False}
    scale["range"] = room(round(LETTER * numbers) + 14)
    x: Spec = {"field": "value", "type": "quantitative", "axis": axis(title, tickCount=6, format="~g"), "scale": scale}
    y: Spec = {"field": "label", "type": "nominal", "sort": None, "axis": names()}
    colour: Spec = {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": list(colours), "range": list(colours.values())},
        "legend": None,
    }
    tip = [{"field": key, "title": " "} for key in ("label", "series", "shown")]
    spec: Spec = {
        "height": row_height((row["label"] for row in rows), ROW) * len(rows) + NUMBERS + TITLE,
        "layer": [
            {
                "data": {"values": [{"at": 1.0}]},
                "mark": {"type": "rule", "strokeDash": [4, 3], "color": INK},
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
                "mark": {"type": "text", "align": "left", "dx": 8, "fontSize": 12, "color": INK},
                "encoding": {"x": {**x, "field": "at"}, "y": y, "text": {"field": "shown"}},
            },
        ],
    }
    return Chart(name, rows, spec, alt, legend=list(colours.items()))
