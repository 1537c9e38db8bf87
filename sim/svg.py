"""Pictures as SVG text, with no plotting library: the few elements that our pictures are made of."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

#: Colours that colour-blind readers can tell apart (Okabe and Ito), and greys.
BLUE, VERMILION, GREEN, SKY, PURPLE, ORANGE, YELLOW = (
    "#0072b2", "#d55e00", "#009e73", "#56b4e9", "#cc79a7", "#e69f00", "#f0e442",
)  # fmt: skip
DARK, GREY, LIGHT, LINE, WHITE = "#333333", "#777777", "#c4c4c4", "#e3e3e3", "#ffffff"


def picture(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    """A whole file: `parts` on white; `label` is what a screen reader says. All lengths are pixels."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(label)}">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="{WHITE}"/>', *parts]) + "\n</svg>\n"


def text(x: float, y: float, what: str, anchor: str = "start", **more: str) -> str:
    """A line of text whose base line is at y; anchor: start, middle or end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{_attributes(more)}>{escape(what)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, title: str = "", opacity: float = 1.0) -> str:
    """A filled rectangle; `title` shows where the pointer rests on it."""
    faint = "" if opacity >= 1 else f' fill-opacity="{opacity:.2f}"'
    place = f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{fill}"{faint}'
    return f"{place}><title>{escape(title)}</title></rect>" if title else f"{place}/>"


def circle(x: float, y: float, radius: float, fill: str, title: str = "", opacity: float = 1.0) -> str:
    """A filled circle around (x, y)."""
    faint = "" if opacity >= 1 else f' fill-opacity="{opacity:g}"'
    place = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"{faint}'
    return f"{place}><title>{escape(title)}</title></circle>" if title else f"{place}/>"


def path(drawn: str, stroke: str = LINE, dashed: bool = False) -> str:
    """A line along SVG path commands."""
    return f'<path d="{drawn}" stroke="{stroke}"{_DASHES if dashed else ""}/>'


_DASHES = ' stroke-dasharray="4 4"'


def _attributes(more: dict[str, str]) -> str:
    return "".join(f' {key.replace("_", "-")}="{escape(value)}"' for key, value in more.items())
