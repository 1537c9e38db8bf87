"""What every chart is: a specification, its rows, and what a reader hears who cannot see it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from app_pages.parts.palette import CLASSES

Row = Mapping[str, Any]
Spec = dict[str, Any]

#: A spreadsheet takes a cell that starts like this for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture. name: of its file and its widget. rows: its data, one record a mark. alt: what it shows, in words.

    legend: (word, colour) of what the colours mean; it is text of the page, which wraps at any width, and not part of
    the drawing, where it would be cut.
    """

    name: str
    rows: Sequence[Row]
    spec: Spec
    alt: str
    extra: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    legend: Sequence[tuple[str, str]] = ()


def csv_text(rows: Sequence[Row]) -> str:
    """The rows as CSV; a text that a spreadsheet would run gets a quote before it."""
    out = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(key)) for key in columns] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def by_class(labels: Mapping[str, str], present: Sequence[str]) -> Spec:
    """The colour of the class in field `class`, the same in every chart."""
    used = legend_of(labels, present)
    scale = {"domain": [word for word, _ in used], "range": [colour for _, colour in used]}
    return {"field": "class", "type": "nominal", "scale": scale, "legend": None}


def legend_of(labels: Mapping[str, str], present: Sequence[str]) -> list[tuple[str, str]]:
    """Words and colours of the classes that are present, in the order of all legends."""
    return [(labels[name], colour) for name, colour in CLASSES.items() if name in set(present)]


def axis(title: str | None = None, unit: str = "", **more: Any) -> Spec:
    """An axis with few, quiet lines. unit: follows each of its numbers."""
    spec: Spec = {"title": title, "grid": True, "domain": False, "ticks": False, "labelPadding": 6, "labelBound": True}
    spec |= {"labelSeparation": 6, **more}
    if unit:
        spec["labelExpr"] = f"datum.label + ' {unit}'"
    return spec


#: What the numbers of an axis take besides the marks, and what its title takes, pixels.
NUMBERS, TITLE = 30, 22
#: A name of a row is broken into lines of about so many letters, and Chinese ones of so many signs.
LETTERS, SIGNS = 22, 11
#: Height of a line of a name, pixels.
LINE = 14


def names(**more: Any) -> Spec:
    """The axis of the names of rows: long ones are broken into lines, none is cut."""
    broken = (
        f"test(regexp('[\\u4e00-\\u9fff]{{{SIGNS + 1},}}'), datum.label)"
        f" ? replace(datum.label, regexp('(.{{{SIGNS}}})(?=.{{3,}})', 'g'), '$1\\n')"
        f" : length(datum.label) > {LETTERS}"
        f" ? replace(datum.label, regexp('(.{{8,{LETTERS}}}[ ,=+·_/.])(?=.{{4,}})', 'g'), '$1\\n') : datum.label"
    )
    return axis(None, grid=False, labelLimit=0, labelOverlap=False, labelExpr=broken, **more)


def row_height(labels: Iterable[str], usual: int) -> int:
    """Pixels of a row that holds the longest of the names, `usual` where one line does."""
    lines = max((ceil(len(label) / (LETTERS - 7)) if len(label) > LETTERS else 1 for label in labels), default=1)
    return max(usual, LINE * lines + 4)


def room(pixels: int) -> list[Any]:
    """The range of an axis that leaves `pixels` at the right for the numbers behind its marks, at any width."""
    return [0, {"expr": f"max(40, width - {pixels})"}]


def zoom(*encodings: str) -> Spec:
    """The parameter that lets a reader drag the axes and zoom with Ctrl and the wheel: the wheel alone scrolls the
    page."""
    select = {"type": "interval", "encodings": list(encodings), "zoom": "wheel![event.ctrlKey || event.metaKey]"}
    return {"name": "zoom", "select": select, "bind": "scales"}
