"""A timeline: lanes one below the other, a bar for each span, its class of work as colour, a time axis that zooms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app_pages.parts.charts.base import NUMBERS, Chart, Row, Spec, axis, by_class, legend_height
from app_pages.parts.formats import size

LANE = 26
#: What the axis is in, and what its numbers are divided by: microseconds, or milliseconds for what is long.
LONG_US = 3000


def timeline(
    name: str,
    rows: Sequence[Row],
    lanes: Sequence[str],
    labels: Mapping[str, str],
    say: Mapping[str, str],
    alt: str,
    *,
    span_us: tuple[float, float],
    shaded_us: tuple[float, float] | None = None,
    legend: bool = True,
) -> Chart:
    """The picture of `rows` as `rows.span_row` makes them.

    lanes: from top to bottom. labels: words for the classes. say: words for hovers (name, time, start, layer, shapes,
    bytes, flops, bound, roofline, busy). span_us: what the axis shows at first. shaded_us: a stretch to mark.
    """
    unit, scale = ("ms", 1000.0) if span_us[1] - span_us[0] >= LONG_US else ("µs", 1.0)
    data = [_drawn(row, labels, scale) for row in rows]
    present = [row["kind"] for row in rows]
    bars: Spec = {
        # The picture has its words as a whole; hundreds of bars need none each.
        "mark": {"type": "bar", "height": LANE - 8, "clip": True, "aria": False},
        "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
        "encoding": {
            "x": {
                "field": "start",
                "type": "quantitative",
                "axis": axis(unit=unit, format="~f", tickCount=10),
                "scale": {"domain": [span_us[0] / scale, span_us[1] / scale], "nice": False, "zero": False},
            },
            "x2": {"field": "end"},
            "y": {
                "field": "lane",
                "type": "nominal",
                "sort": list(lanes),
                "scale": {"domain": list(lanes)},
                "axis": axis(grid=False, labelLimit=140),
            },
            "color": by_class(labels, present, legend),
            "opacity": {
                "field": "busy",
                "type": "quantitative",
                "legend": None,
                "scale": {"domain": [0, 1], "range": [0.25, 1]},
            },
            "tooltip": _hover(say),
        },
    }
    layers: list[Spec] = [bars]
    if shaded_us is not None:
        layers.insert(0, _shade(shaded_us[0] / scale, shaded_us[1] / scale))
    spec: Spec = {"layer": layers, "height": LANE * len(lanes) + NUMBERS + (legend_height(present) if legend else 0)}
    return Chart(name, data, spec, alt)


def _drawn(row: Row, labels: Mapping[str, str], scale: float) -> dict[str, Any]:
    """A row with its times in the axis's unit, and what the hover says as text."""
    roofline = row["roofline"]
    return {
        "lane": row["lane"],
        "start": row["start"] / scale,
        "end": row["end"] / scale,
        "class": labels[row["kind"]],
        "name": row["name"],
        "op": row["op"],
        "us": round(row["us"], 3),
        "layer": row["layer"] if row["layer"] >= 0 else None,
        "shapes": row["shapes"],
        "bytes": size(row["bytes"]) if row["bytes"] else "",
        "mflops": round(row["flops"] / 1e6, 3) if row["flops"] else None,
        "bound": row["bound"],
        "roofline": f"{roofline:.0%}" if roofline is not None else "",
        "busy": round(row["busy"], 3),
    }


def _hover(say: Mapping[str, str]) -> list[Spec]:
    fields = (
        ("name", "name", None), ("us", "time", ",.2f"), ("layer", "layer", None), ("class", "class", None),
        ("shapes", "shapes", None), ("bytes", "bytes", None), ("mflops", "flops", ",.2f"), ("bound", "bound", None),
        ("roofline", "roofline", None), ("busy", "busy", ".0%"),
    )  # fmt: skip
    return [
        {"field": field, "title": say[word], **({"type": "quantitative", "format": form} if form else {})}
        for field, word, form in fields
    ]


def _shade(start: float, end: float) -> Spec:
    return {
        "data": {"values": [{"a": start, "b": end}]},
        "mark": {"type": "rect", "color": "#808a94", "opacity": 0.18},
        "encoding": {"x": {"field": "a", "type": "quantitative"}, "x2": {"field": "b"}},
    }
