"""A scatter plot of predicted against measured times as SVG: both axes logarithmic, no plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

from sim import svg
from sim.accuracy.families import by_family
from sim.accuracy.score import Scored

SIZE, MARGIN = 640, 64
#: Colours by family of kernel.
COLOURS = {
    "matrix products": svg.BLUE,
    "attention": svg.VERMILION,
    "vector and cache": svg.GREEN,
    "collectives": svg.SKY,
    "whole steps": svg.PURPLE,
}


def scatter_svg(kernels: Sequence[Scored], collectives: Sequence[Scored], steps: Sequence[Scored]) -> str:
    """The picture; the diagonal is a perfect prediction, the dashed lines are 20 % off."""
    points = by_family(kernels, collectives, steps)
    values = [v for _, r in points for v in (r.measured_us, r.predicted_us)] or [1.0, 10.0]
    low, high = floor(log10(min(values))), max(ceil(log10(max(values))), floor(log10(min(values))) + 1)

    def place(us: float) -> float:
        return MARGIN + (log10(us) - low) / (high - low) * (SIZE - 2 * MARGIN)

    def x(us: float) -> str:
        return f"{place(us):.1f}"

    def y(us: float) -> str:
        return f"{SIZE - place(us):.1f}"

    start, end = 10.0**low, 10.0**high
    parts: list[str] = []
    for power in range(low, high + 1):
        at = 10.0**power
        parts += [
            svg.path(f"M{x(at)} {y(start)}V{y(end)}M{x(start)} {y(at)}H{x(end)}"),
            svg.text(float(x(at)), SIZE - MARGIN + 18, _label(at), "middle"),
            svg.text(MARGIN - 8, float(y(at)), _label(at), "end", dominant_baseline="middle"),
        ]
    for factor, dashed in ((1.0, False), (1.2, True), (1 / 1.2, True)):
        first, last = max(start, start / factor), min(end, end / factor)
        parts.append(svg.path(f"M{x(first)} {y(first * factor)}L{x(last)} {y(last * factor)}", svg.GREY, dashed))
    for family, row in points:
        title = (
            f"{row.label}: measured {row.measured_us:.4g} us, predicted {row.predicted_us:.4g} us ({row.error:+.1%})"
        )
        parts.append(svg.circle(float(x(row.measured_us)), float(y(row.predicted_us)), 3, COLOURS[family], title, 0.7))
    for number, (family, colour) in enumerate(COLOURS.items()):
        parts.append(svg.circle(MARGIN + 12, MARGIN + 12 + 18 * number, 5, colour))
        parts.append(svg.text(MARGIN + 24, MARGIN + 16 + 18 * number, family))
    parts.append(svg.text(SIZE / 2, SIZE - 16, "measured", "middle"))
    parts.append(svg.text(-SIZE / 2, 18, "predicted", "middle", transform="rotate(-90)"))
    return svg.picture(SIZE, SIZE, "Predicted against measured time", parts)


def _label(us: float) -> str:
    return f"{us:g} us" if us < 1_000 else f"{us / 1000:g} ms" if us < 1e6 else f"{us / 1e6:g} s"
