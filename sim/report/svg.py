"""Pictures as SVG text, with no plotting library: a frame, marks, and numbers rounded so that equal input gives equal
bytes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal

#: Colours that colour-blind readers can tell apart (Okabe and Ito).
BLUE, ORANGE, GREEN, SKY, PINK = "#0072b2", "#d55e00", "#009e73", "#56b4e9", "#cc79a7"
GREY, FAINT, INK = "#777777", "#e3e3e3", "#222222"

Anchor = Literal["start", "middle", "end"]


class Picture:
    """A picture of `width` x `height` pixels, origin at the top left. label: what it shows, for screen readers."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height = width, height
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
            f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(label)}">',
            f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>',
        ]

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1, dash: str = "") -> None:
        """A line through `points`."""
        path = "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{_n(width)}"{dashed}/>')

    def box(self, x: float, y: float, width: float, height: float, colour: str, title: str = "") -> None:
        """A filled rectangle."""
        size = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
        self._mark(f"<rect {size}", f'fill="{colour}"', "rect", title)

    def dot(self, x: float, y: float, radius: float, colour: str, hollow: bool = False, title: str = "") -> None:
        """A disc, or a ring."""
        fill = f'fill="#ffffff" stroke="{colour}" stroke-width="2"' if hollow else f'fill="{colour}"'
        self._mark(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"', fill, "circle", title)

    def text(
        self, x: float, y: float, words: str, anchor: Anchor = "start", colour: str = INK, size: float = 12,
        bold: bool = False, upwards: bool = False,
    ) -> None:  # fmt: skip
        """One line of text whose baseline is at `y`; upwards: turned to the left, around its anchor."""
        weight = ' font-weight="bold"' if bold else ""
        turn = f' transform="rotate(-90 {_n(x)} {_n(y)})"' if upwards else ""
        place = f'x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{turn}'
        self._parts.append(f'<text {place} fill="{colour}" font-size="{_n(size)}"{weight}>{escape(words)}</text>')

    def _mark(self, start: str, fill: str, tag: str, title: str) -> None:
        hover = f"><title>{escape(title)}</title></{tag}>" if title else "/>"
        self._parts.append(f"{start} {fill}{hover}")

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>\n"])


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
