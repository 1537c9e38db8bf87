"""Inside kernels: the lanes of one core, tile by tile, and the start of each kernel."""

from __future__ import annotations

from collections.abc import Sequence

from app_pages.parts.charts.base import NUMBERS, Chart, Row, Spec, axis, names, zoom
from app_pages.parts.palette import CLASSES

LANES = ("start", "MTE2", "VECTOR", "MTE3")
COLOURS = {"start": "#b9bec6", "MTE2": CLASSES["vector"], "VECTOR": CLASSES["norm"], "MTE3": CLASSES["cache"]}


def core_lanes(name: str, rows: Sequence[Row], alt: str, words: dict[str, str], end_us: float) -> Chart:
    """rows: {lane, kernel, tile, start, end}, us. words: names of the lanes. end_us: of the axis."""
    drawn = [{**row, "colour": COLOURS[row["lane"]], "lane": words[row["lane"]]} for row in rows]
    used = {row["lane"] for row in rows}
    order = [words[lane] for lane in LANES if lane in used]
    spec: Spec = {
        "mark": {"type": "bar", "height": 15, "stroke": "white", "strokeWidth": 0.4, "clip": True},
        "params": [zoom("x")],
        "encoding": {
            "x": {
                "field": "start",
                "type": "quantitative",
                "axis": axis(unit="µs", format="~f"),
                "scale": {"domain": [0, end_us], "nice": False},
            },
            "x2": {"field": "end"},
            "y": {
                "field": "lane",
                "type": "nominal",
                "sort": order,
                "scale": {"domain": order},
                "axis": names(),
            },
            "color": {"field": "colour", "type": "nominal", "scale": None},
            "tooltip": [
                {"field": "kernel", "title": " "},
                {"field": "lane", "title": " "},
                {"field": "us", "title": "µs", "type": "quantitative", "format": ",.3f"},
            ],
        },
        "height": 26 * len(order) + NUMBERS,
    }
    return Chart(name, drawn, spec, alt)
