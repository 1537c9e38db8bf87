"""A scatter plot of predicted against measured times as SVG: both axes logarithmic, no plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

from sim.accuracy.score import Scored
from sim.report import svg

SIZE, MARGIN = 640, 64
#: Colours by family of kernel.
COLOURS = {
    "matrix products": svg.BLUE,
    "attention": svg.VERMILION,
    "vector and cache": svg.GREEN,
    "collectives": svg.SKY,
    "whole steps": svg.PURPLE,
}


def scatter_svg(points: Sequence[tuple[str, Scored]]) -> str:
    """The picture of (family, row) pairs; the diagonal is a perfect prediction, the dashed lines are 20 % off."""
    values = [v for _, r in points for v in (r.measured_us, r.predicted_us)] or [1.0, 10.0]
    low, high = floor(log10(min(values))), max(ceil(log10(max(values))), floor(log10(min(values))) + 1)

    def place(us: float) -> float:
        return MARGIN + (log10(us) - low) / (high - low) * (SIZE - 2 * MARGIN)

    def at(measured_us: float, predicted_us: float) -> tuple[float, float]:
        return place(measured_us), SIZE - place(predicted_us)

    start, end = 10.0**low, 10.0**high
    parts: list[str] = []
    for power in range(low, high + 1):
        us = 10.0**power
        parts += [
            svg.line([at(us, start), at(us, end)]),
            svg.line([at(start, us), at(end, us)]),
            svg.text(place(us), SIZE - MARGIN + 18, _label(us), "middle"),
            svg.text(MARGIN - 8, SIZE - place(us) + 4, _label(us), "end"),
        ]
    for factor, dash in ((1.0, ""), (1.2, "4 4"), (1 / 1.2, "4 4")):
        first, last = max(start, start / factor), min(end, end / factor)
        parts.append(svg.line([at(first, first * factor), at(last, last * factor)], svg.GREY, dash=dash))
    for family, row in points:
        title = (
            f"{row.label}: measured {row.measured_us:.4g} us, predicted {row.predicted_us:.4g} us ({row.error:+.1%})"
        )
        parts.append(svg.circle(*at(row.measured_us, row.predicted_us), 3, COLOURS[family], title, 0.7))
    for number, (family, colour) in enumerate(COLOURS.items()):
        parts.append(svg.circle(MARGIN + 12, MARGIN + 12 + 18 * number, 5, colour))
        parts.append(svg.text(MARGIN + 24, MARGIN + 16 + 18 * number, family))
    parts.append(svg.text(SIZE / 2, SIZE - 16, "measured", "middle"))
    parts.append(svg.text(18, SIZE / 2, "predicted", "middle", upwards=True))
    return svg.picture(SIZE, SIZE, "Predicted against measured time", parts)


def _label(us: float) -> str:
    return f"{us:g} us" if us < 1_000 else f"{us / 1000:g} ms" if us < 1e6 else f"{us / 1e6:g} s"
