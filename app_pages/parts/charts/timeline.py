"""A timeline: lanes one below the other, a bar for each span, its class of work as colour, a time axis that zooms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app_pages.parts.charts.base import NUMBERS, Chart, Row, Spec, axis, by_class, legend_of, zoom
from app_pages.parts.formats import size
from app_pages.parts.palette import CLASSES, ink

LANE = 26
#: Width of a letter on a bar, pixels.
LETTER = 5.8
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
    data = [_drawn(row, labels, scale, span_us) for row in rows]
    present = [row["kind"] for row in rows]
    bars: Spec = {
        # The picture has its words as a whole; hundreds of bars need none each.
        "mark": {"type": "bar", "height": LANE - 8, "clip": True, "aria": False},
        "params": [zoom("x")],
        "encoding": {
            "x": {
                "field": "start",
                "type": "quantitative",
                "axis": axis(unit=unit, format="~f", tickCount={"expr": "max(2, width / 90)"}),
                "scale": {"domain": [span_us[0] / scale, span_us[1] / scale], "nice": False, "zero": False},
            },
            "x2": {"field": "end"},
            "y": {
                "field": "lane",
                "type": "nominal",
                "sort": list(lanes),
                "scale": {"domain": list(lanes)},
                "axis": axis(grid=False, labelLimit=0),
            },
            "color": by_class(labels, present),
            "opacity": {
                "field": "busy",
                "type": "quantitative",
                "legend": None,
                "scale": {"domain": [0, 1], "range": [0.25, 1]},
            },
            "tooltip": _hover(say),
        },
    }
    layers: list[Spec] = [bars, _names(bars["encoding"])]
    if shaded_us is not None:
        layers.insert(0, _shade(shaded_us[0] / scale, shaded_us[1] / scale))
    spec: Spec = {"layer": layers, "height": LANE * len(lanes) + NUMBERS}
    return Chart(name, data, spec, alt, legend=legend_of(labels, present) if legend else ())


def _names(encoding: Spec) -> Spec:
    """The name of a kernel on its bar, where it has room at the reader's width and zoom."""
    length = f"({LETTER} * length(datum.name) + 6)"
    middle = "scale('x', datum.middle)"
    room = (
        f"scale('x', datum.end) - scale('x', datum.start) > {length} && {middle} > {length} / 2"
        f" && {middle} < width - {length} / 2"
    )
    return {
        "mark": {"type": "text", "fontSize": 10, "clip": True, "aria": False, "opacity": {"expr": f"{room} ? 1 : 0"}},
        "encoding": {
            "x": {**encoding["x"], "field": "middle"},
            "y": encoding["y"],
            "text": {"field": "name"},
            "color": {"field": "ink", "type": "nominal", "scale": None},
            "tooltip": encoding["tooltip"],
        },
    }


def _drawn(row: Row, labels: Mapping[str, str], scale: float, span_us: tuple[float, float]) -> dict[str, Any]:
    """A row with its times in the axis's unit, and what the hover says as text."""
    roofline = row["roofline"]
    seen = max(row["start"], span_us[0]), min(row["end"], span_us[1])
    return {
        "lane": row["lane"],
        "start": row["start"] / scale,
        "end": row["end"] / scale,
        "middle": sum(seen) / 2 / scale,
        "class": labels[row["kind"]],
        "name": row["name"],
        "op": row["op"],
        "us": round(row["us"], 3),
        "ink": ink(CLASSES[row["kind"]]),
        "layer": str(row["layer"]) if row["layer"] >= 0 else "",
        "shapes": row["shapes"],
        "bytes": size(row["bytes"]) if row["bytes"] else "",
        "mflops": f"{row['flops'] / 1e6:,.2f}" if row["flops"] else "",
        "bound": row["bound"],
        "roofline": f"{roofline:.0%}" if roofline is not None else "",
        "busy": round(row["busy"], 3),
    }


def _hover(say: Mapping[str, str]) -> list[Spec]:
    fields = (
        ("name", "name", None), ("us", "time", ",.2f"), ("layer", "layer", None), ("class", "class", None),
        ("shapes", "shapes", None), ("bytes", "bytes", None), ("mflops", "flops", None), ("bound", "bound", None),
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
