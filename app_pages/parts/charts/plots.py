"""Plain bars and lines of the lessons: one row per mark, series distinguished by colour and by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app_pages.parts.charts.base import NUMBERS, TITLE, Chart, Row, Spec, axis, names, room, row_height
from app_pages.parts.palette import ACCENT, INK

BAR, GAP = 20, 12
#: Width of a letter of the number behind a bar, pixels.
LETTER = 7


def _colour(colours: Mapping[str, str]) -> Spec:
    spec: Spec = {
        "field": "series",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": list(colours), "range": list(colours.values())},
        "legend": None,
    }
    return spec


def bars(
    name: str,
    rows: Sequence[Row],
    alt: str,
    colours: Mapping[str, str],
    *,
    title: str | None = None,
    stacked: bool = False,
    grouped: bool = True,
    log: bool = False,
    limit: float | None = None,
) -> Chart:
    """Horizontal bars. rows: {label, series, value, shown}; labels from top to bottom in their order; `low` and `high`
    draw an interval. stacked: series of a label behind each other; grouped: below each other; neither: one bar a label,
    coloured by its series. limit: a line to compare with."""
    drawn = [{**row, "order": list(colours).index(row["series"])} for row in rows]
    labels = list(dict.fromkeys(row["label"] for row in rows))
    deep = 1 if stacked or not grouped else max(1, len(colours))
    x: Spec = {
        "field": "value",
        "type": "quantitative",
        "axis": axis(title, tickCount=5),
        "scale": _extent(rows, stacked, log, limit),
        "stack": "zero" if stacked else None,
    }
    y: Spec = {"field": "label", "type": "nominal", "sort": labels, "axis": names()}
    shift: Spec = {} if deep == 1 else {"yOffset": {"field": "series", "sort": list(colours)}}
    tip = [{"field": "label", "title": " "}, {"field": "series", "title": " "}, {"field": "shown", "title": " "}]
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "height": BAR - 5},
            "encoding": {
                "x": x,
                "y": y,
                **shift,
                "color": _colour(colours),
                "tooltip": tip,
                "order": {"field": "order", "type": "quantitative"},
            },
        }
    ]
    if rows and "low" in rows[0]:
        interval = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, **shift}
        layers.append({"mark": {"type": "rule", "strokeWidth": 1.5, "color": INK}, "encoding": interval})
    if not stacked:
        layers.append(_numbers(rows, x, {"y": y, **shift}, limit))
    if limit is not None:
        layers.append(_limit(limit))
    height = len(labels) * row_height(labels, BAR * deep + GAP) + NUMBERS + (TITLE if title else 0)
    return Chart(name, drawn, {"layer": layers, "height": height}, alt, legend=_legend(colours))


def _numbers(rows: Sequence[Row], x: Spec, place: Spec, limit: float | None) -> Spec:
    """The number behind each bar or its interval, and not across the line to compare with."""
    end = "high" if rows and "high" in rows[0] else "value"
    return {
        "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 12, "color": INK},
        "transform": [{"calculate": f"max(datum.{end}, {limit or 0})", "as": "after"}],
        "encoding": {"x": {**x, "field": "after"}, **place, "text": {"field": "shown"}},
    }


def _limit(at: float) -> Spec:
    """The line to compare with."""
    return {
        "data": {"values": [{"at": at}]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": INK},
        "encoding": {"x": {"field": "at", "type": "quantitative"}},
    }


def _legend(colours: Mapping[str, str]) -> list[tuple[str, str]]:
    """What the colours mean; nothing where there is one."""
    return list(colours.items()) if len(colours) > 1 else []


def _extent(rows: Sequence[Row], stacked: bool, log: bool, limit: float | None) -> Spec:
    """The axis, with room for the number behind the longest bar."""
    if stacked:
        return {"zero": True, "nice": False}
    ends = [row.get("high", row["value"]) for row in rows] or [1.0]
    longest = max(len(str(row["shown"])) for row in rows) if rows else 1
    place = room(LETTER * longest + 12)
    if log:
        return {"type": "log", "nice": False, "domain": [min(ends) / 4, max(ends)], "range": place}
    return {"domain": [0, max(*ends, limit or 0.0)], "nice": False, "range": place}


def lines(
    name: str,
    rows: Sequence[Row],
    alt: str,
    colours: Mapping[str, str],
    *,
    x_title: str,
    y_title: str | None,
    x_log: bool = False,
    y_log: bool = False,
    zero: bool = True,
    now: float | None = None,
    height: int = 260,
    dots: bool = True,
) -> Chart:
    """Lines over a quantity. rows: {x, series, value, shown}; `low` and `high` draw a band. zero: whether the axis
    starts there. now: where the reader is. dots: whether each row has a mark of its own."""
    values = sorted({row["x"] for row in rows})
    few = x_log and len(values) <= 14
    ticks: dict[str, Any] = {"values": values, "format": ",~g"} if few else {"format": "~s", "tickCount": 8}
    x: Spec = {
        "field": "x",
        "type": "quantitative",
        "axis": axis(x_title, **ticks),
        "scale": {"nice": False, **({"type": "log", "base": 2} if x_log else {"zero": False})},
    }
    y: Spec = {
        "field": "value",
        "type": "quantitative",
        "axis": axis(y_title, tickCount=4 if y_log else 6),
        "scale": {"type": "log"} if y_log else {"zero": zero},
    }
    colour = _colour(colours)
    tip = [{"field": "x", "title": x_title}, {"field": "series", "title": " "}, {"field": "shown", "title": " "}]
    layers: list[Spec] = [] if now is None else [_now(x, now)]
    if rows and "low" in rows[0]:
        band = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}
        layers.append({"mark": {"type": "area", "opacity": 0.14}, "encoding": band})
    size = 46 if len(values) < 40 else 8
    points = {"type": "point", "filled": True, "size": size, "opacity": 1 if dots else 0}
    layers += [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": colour}},
        {"mark": points, "encoding": {"x": x, "y": y, "color": colour, "tooltip": tip}},
    ]
    return Chart(name, rows, {"layer": layers, "height": height}, alt, legend=_legend(colours))


def _now(x: Spec, at: float) -> Spec:
    """The line at which the reader is."""
    return {
        "data": {"values": [{"x": at}]},
        "encoding": {"x": x},
        "mark": {"type": "rule", "color": ACCENT, "strokeWidth": 2, "opacity": 0.5},
    }
