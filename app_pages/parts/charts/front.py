"""Points of a sweep in two measures, and the front that none of them beats."""

from __future__ import annotations

from collections.abc import Sequence

from app_pages.parts.charts.base import Chart, Row, Spec, axis
from app_pages.parts.palette import CLASSES, INK

#: Colours of points that are beaten, and of the front.
BEATEN, FRONT = CLASSES["launch"], CLASSES["attention"]


def front(
    name: str, rows: Sequence[Row], alt: str, *, titles: tuple[str, str], words: tuple[str, str], limit: float
) -> Chart:
    """rows: {x, y, label, front (true or false)}. titles: of the axes. words: for the front and for what is beaten.
    limit: of x."""
    x: Spec = {
        "field": "x",
        "type": "quantitative",
        "axis": axis(titles[0], tickCount=6),
        "scale": {"zero": True, "nice": False},
    }
    y: Spec = {"field": "y", "type": "quantitative", "axis": axis(titles[1], tickCount=6)}
    tip = [{"field": "label", "title": " "}, {"field": "shown", "title": " "}]
    only = [{"filter": "datum.front"}]
    spec: Spec = {
        "height": 340,
        "layer": [
            {
                "data": {"values": [{"at": limit}]},
                "mark": {"type": "rule", "strokeDash": [4, 3], "color": INK},
                "encoding": {"x": {"field": "at", "type": "quantitative"}},
            },
            {
                "mark": {"type": "circle", "size": 60, "opacity": 1, "color": BEATEN},
                "encoding": {"x": x, "y": y, "tooltip": tip},
            },
            {
                "transform": only,
                "mark": {"type": "line", "strokeWidth": 2, "color": FRONT},
                "encoding": {"x": x, "y": y, "order": {"field": "x", "type": "quantitative"}},
            },
            {
                "transform": only,
                "mark": {"type": "circle", "size": 90, "opacity": 1, "color": FRONT},
                "encoding": {"x": x, "y": y, "tooltip": tip},
            },
        ],
    }
    return Chart(
        name, rows, spec, alt, legend=[(words[0], FRONT), (words[1], BEATEN), (f"╌ {titles[0]} ≤ {limit:g}", "")]
    )
