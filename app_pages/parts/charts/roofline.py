"""The roofline: each kind of kernel as a point under what memory and cores allow; both axes logarithmic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

from app_pages.parts.charts.base import Chart, Row, Spec, axis, by_class, legend_of
from app_pages.parts.palette import INK

#: Flops a byte at which the picture starts and ends where no kernel lies further out.
LEFT, RIGHT = 0.05, 2000.0


def roofline(
    name: str,
    points: Sequence[Row],
    roofs: Mapping[str, float],
    labels: Mapping[str, str],
    say: Mapping[str, str],
    alt: str,
) -> Chart:
    """points: {name, kind, count, us, share, intensity, tflops, roofline}. roofs: the `roofs` of a document. say: words
    (intensity, rate, name, count, time, share, roofline, peak, sustained, cube)."""
    data = [{**point, "class": labels[point["kind"]]} for point in points]
    left = min([LEFT, *(point["intensity"] / 2 for point in points)])
    right = max([RIGHT, *(point["intensity"] * 2 for point in points)])
    lines = _roof(say["peak"], roofs["hbm_peak_gbps"], roofs["cube_tflops"], left, right)
    lines += _roof(say["sustained"], roofs["hbm_sustained_gbps"], roofs["cube_tflops"], left, right)
    low = min([0.05, *(point["tflops"] for point in points)])
    high = roofs["cube_tflops"] * 2
    x = _log("intensity", say["intensity"], left, right)
    y = _log("tflops", say["rate"], low / 2, high)
    spec: Spec = {
        "height": 400,
        "layer": [
            {
                "data": {"values": lines},
                "mark": {"type": "line", "color": "#8a939e", "strokeWidth": 1.5},
                "encoding": {
                    "x": x,
                    "y": y,
                    "strokeDash": {"field": "roof", "type": "nominal", "sort": None, "legend": None},
                },
            },
            {
                "data": {"values": [{**lines[2], "label": say["cube"]}]},
                "mark": {"type": "text", "align": "right", "dy": -9, "color": INK},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
            {
                "mark": {"type": "circle", "opacity": 0.85, "stroke": "#ffffff", "strokeWidth": 0.6},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": by_class(labels, [p["kind"] for p in points]),
                    "size": {
                        "field": "share",
                        "type": "quantitative",
                        "legend": None,
                        "scale": {"domain": [0, 1], "range": [40, 900]},
                    },
                    "tooltip": _hover(say),
                },
            },
        ],
    }
    lines_of = [(f"— {say['peak']}", ""), (f"╌ {say['sustained']}", "")]
    legend = [*legend_of(labels, [p["kind"] for p in points]), *lines_of]
    return Chart(name, data, spec, alt, {"roofs": lines}, legend)


def _hover(say: Mapping[str, str]) -> list[Spec]:
    """What a point says."""
    return [
        {"field": "name", "title": say["name"]},
        {"field": "count", "title": say["count"], "type": "quantitative", "format": ","},
        {"field": "us", "title": say["time"], "type": "quantitative", "format": ",.1f"},
        {"field": "share", "title": say["share"], "type": "quantitative", "format": ".1%"},
        {"field": "intensity", "title": say["intensity"], "type": "quantitative", "format": ",.2f"},
        {"field": "tflops", "title": say["rate"], "type": "quantitative", "format": ",.3f"},
        {"field": "roofline", "title": say["roofline"], "type": "quantitative", "format": ".0%"},
    ]


def _log(field: str, title: str, low: float, high: float) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "axis": axis(title, format="~g", values=_powers(low, high)),
        "scale": {"type": "log", "domain": [low, high], "nice": False},
    }


def _powers(low: float, high: float) -> list[float]:
    """The powers of ten from low to high."""
    return [10.0**n for n in range(ceil(log10(low)), floor(log10(high)) + 1)]


def _roof(label: str, gbps: float, tflops: float, left: float, right: float) -> list[dict[str, Any]]:
    """The line along which the memory allows more the more is done with each byte, and the cores then end it."""
    corner = tflops * 1000 / gbps
    return [{"roof": label, "intensity": at, "tflops": min(tflops, at * gbps / 1000)} for at in (left, corner, right)]
