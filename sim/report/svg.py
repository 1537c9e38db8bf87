"""Pictures as SVG text, with no plotting library: the few elements that our pictures are made of.

Lengths are pixels from the top left, rounded to hundredths, so that equal input gives equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Literal

from scenarios.errors import printable

#: Colours that colour-blind readers can distinguish (Okabe and Ito), and greys.
BLUE, VERMILION, GREEN, SKY, PURPLE, ORANGE, YELLOW = (
    "#0072b2", "#d55e00", "#009e73", "#56b4e9", "#cc79a7", "#e69f00", "#f0e442",
)  # fmt: skip
DARK, GREY, LIGHT, LINE, PALE, WHITE = "#333333", "#777777", "#c4c4c4", "#e3e3e3", "#f4f4f4", "#ffffff"

#: The font size where none is given.
SIZE = 12

Anchor = Literal["start", "middle", "end"]


def picture(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    """A whole file: `parts` on white; `label` is what a screen reader says."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="{SIZE}" role="img" aria-label="{_said(label)}">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="{WHITE}"/>', *parts]) + "\n</svg>\n"


def text(
    x: float,
    y: float,
    what: str,
    anchor: Anchor = "start",
    colour: str = "",
    size: int = SIZE,
    bold: bool = False,
    upwards: bool = False,
) -> str:
    """A line of text whose base line is at y; black where no colour is given; upwards: turned to the left."""
    style = f' fill="{colour}"' if colour else ""
    style += f' font-size="{size}"' if size != SIZE else ""
    style += ' font-weight="bold"' if bold else ""
    style += f' transform="rotate(-90 {_n(x)} {_n(y)})"' if upwards else ""
    return f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{style}>{_said(what)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, title: str = "", opacity: float = 1.0) -> str:
    """A filled rectangle; `title` shows where the pointer rests on it."""
    place = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
    return _mark("rect", f'{place} fill="{fill}"{_faint(opacity)}', title)


def circle(
    x: float, y: float, radius: float, colour: str, title: str = "", opacity: float = 1.0, hollow: bool = False
) -> str:
    """A disc around (x, y), or a ring: white within."""
    fill = f'fill="{WHITE}" stroke="{colour}" stroke-width="2"' if hollow else f'fill="{colour}"'
    return _mark("circle", f'cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" {fill}{_faint(opacity)}', title)


def line(points: Iterable[tuple[float, float]], colour: str = LINE, width: float = 1, dash: str = "") -> str:
    """A line through `points`; dash: lengths drawn and left out in turn, such as "4 4"."""
    drawn = "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
    style = f' stroke-width="{_n(width)}"' if width != 1 else ""
    style += f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="M{drawn}" fill="none" stroke="{colour}"{style}/>'


def _mark(tag: str, attributes: str, title: str) -> str:
    return f"<{tag} {attributes}><title>{_said(title)}</title></{tag}>" if title else f"<{tag} {attributes}/>"


def _faint(opacity: float) -> str:
    return "" if opacity >= 1 else f' fill-opacity="{_n(opacity)}"'


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _said(what: str) -> str:
    """Names come from other people's files: no markup, and no characters that XML does not allow."""
    return escape(printable(what, len(what)))
