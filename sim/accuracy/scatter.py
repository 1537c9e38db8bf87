"""A scatter plot of predicted against measured times as SVG: both axes logarithmic, no plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

from sim.accuracy.families import by_family
from sim.accuracy.score import Scored

SIZE, MARGIN = 640, 64
#: Colours that colour-blind readers can tell apart (Okabe and Ito), by family of kernel.
COLOURS = {
    "matrix products": "#0072b2",
    "attention": "#d55e00",
    "vector and cache": "#009e73",
    "collectives": "#56b4e9",
    "whole steps": "#cc79a7",
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
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" font-family="sans-serif" font-size="12" '
        'role="img" aria-label="Predicted against measured time">',
        f'<rect width="{SIZE}" height="{SIZE}" fill="#ffffff"/>',
    ]
    for power in range(low, high + 1):
        at = 10.0**power
        parts += [
            f'<path d="M{x(at)} {y(start)}V{y(end)}M{x(start)} {y(at)}H{x(end)}" stroke="#e3e3e3"/>',
            f'<text x="{x(at)}" y="{SIZE - MARGIN + 18}" text-anchor="middle">{_label(at)}</text>',
            f'<text x="{MARGIN - 8}" y="{y(at)}" text-anchor="end" dominant-baseline="middle">{_label(at)}</text>',
        ]
    for factor, dash in ((1.0, ""), (1.2, ' stroke-dasharray="4 4"'), (1 / 1.2, ' stroke-dasharray="4 4"')):
        first, last = max(start, start / factor), min(end, end / factor)
        parts.append(f'<path d="M{x(first)} {y(first * factor)}L{x(last)} {y(last * factor)}" stroke="#777777"{dash}/>')
    for family, row in points:
        title = (
            f"{row.label}: measured {row.measured_us:.4g} us, predicted {row.predicted_us:.4g} us ({row.error:+.1%})"
        )
        parts.append(
            f'<circle cx="{x(row.measured_us)}" cy="{y(row.predicted_us)}" r="3" fill="{COLOURS[family]}" '
            f'fill-opacity="0.7"><title>{escape(title)}</title></circle>'
        )
    for number, (family, colour) in enumerate(COLOURS.items()):
        parts.append(
            f'<circle cx="{MARGIN + 12}" cy="{MARGIN + 12 + 18 * number}" r="5" fill="{colour}"/>'
            f'<text x="{MARGIN + 24}" y="{MARGIN + 16 + 18 * number}">{family}</text>'
        )
    parts.append(f'<text x="{SIZE / 2}" y="{SIZE - 16}" text-anchor="middle">measured</text>')
    parts.append(f'<text transform="rotate(-90)" x="{-SIZE / 2}" y="18" text-anchor="middle">predicted</text></svg>\n')
    return "\n".join(parts)


def _label(us: float) -> str:
    return f"{us:g} us" if us < 1_000 else f"{us / 1000:g} ms" if us < 1e6 else f"{us / 1e6:g} s"
