"""What all reports write alike: numbers with their units, bars, and texts that steer no terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.padding import Padding
from rich.text import Text

from scenarios.errors import printable
from sim.report.tables import NARROW

GIB, MIB = 1 << 30, 1 << 20
#: Bars of a table: on a wide terminal, and below NARROW columns.
BAR_WIDTH, SHORT_BAR = 12, 6
STEP_BAR_WIDTH = 40


def plain(document: Any) -> Any:
    """The document with the control characters of its texts escaped, so that no name or text steers a terminal."""
    if isinstance(document, str):
        return printable(" ".join(document.split()), limit=4096)
    if isinstance(document, Mapping):
        # Keys may be names too: of what was left out of a profile, say.
        return {plain(key): plain(value) for key, value in document.items()}
    return [plain(value) for value in document] if isinstance(document, list | tuple) else document


def bar(share: float, width: int = BAR_WIDTH, full: str = "█") -> str:
    """A bar for a share of 0 to 1; anything above zero shows at least a sliver."""
    filled = max(0.0, min(1.0, share)) * width
    eighths = round(filled * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    whole, rest = divmod(eighths, 8)
    return full * whole + ("" if not rest or full != "█" else " ▏▎▍▌▋▊▉"[rest])


def bar_pair(change: float, width: int) -> Text:
    """A bar for a change of -1 to 1 of a time: green where it shrinks, red where it grows."""
    return Text(bar(abs(change), bar_width(width)), style="green" if change <= 0 else "red")


def ms(microseconds: float, signed: bool = False) -> str:
    """Microseconds as milliseconds with as many digits as help: 13.493, 151.5, 2,771.3."""
    value = round(microseconds / 1000, 3 if abs(microseconds) < 100_000 else 1) + 0.0  # -0.0 has no sign to show
    sign = "+" if signed and value else ""
    return f"{value:{sign},.{3 if abs(microseconds) < 100_000 else 1}f}"


def size(count_bytes: float) -> str:
    """Bytes as GiB, or MiB where that says more."""
    return f"{count_bytes / GIB:,.1f} GiB" if count_bytes >= GIB / 10 else f"{count_bytes / MIB:,.0f} MiB"


def counted(number: int, noun: str, ending: str = "s") -> str:
    """`1 request`, `2,048 requests`."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def bar_width(width: int) -> int:
    """Cells of a bar in a table, on a terminal of `width`."""
    return BAR_WIDTH if width >= NARROW else SHORT_BAR


def share_bar(share: float, width: int) -> str:
    """A share of 0 to 1 as a bar with its percents, on a terminal of `width`."""
    return f"{bar(share, bar_width(width)):<{bar_width(width)}} {share:5.1%}"


def paragraph(text: str | Text, style: str = "") -> Padding:
    """Indented by two, so that a sentence that wraps stays apart from the lines around it."""
    return Padding(Text(text, style=style) if isinstance(text, str) else text, (0, 0, 0, 2))
