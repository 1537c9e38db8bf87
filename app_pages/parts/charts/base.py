"""What every chart is: a specification, its rows, and what a reader hears who cannot see it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
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
    """A picture. name: of its file and its widget. rows: its data, one record a mark. alt: what it shows, in words."""

    name: str
    rows: Sequence[Row]
    spec: Spec
    alt: str
    extra: Mapping[str, Sequence[Row]] = field(default_factory=dict)


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


def by_class(labels: Mapping[str, str], present: Sequence[str], legend: bool = True) -> Spec:
    """The colour of the class in field `class`, the same in every chart; a legend of those present."""
    used = [name for name in CLASSES if name in set(present)]
    spec: Spec = {
        "field": "class",
        "type": "nominal",
        "scale": {"domain": [labels[name] for name in used], "range": [CLASSES[name] for name in used]},
        "legend": None,
    }
    if legend:
        spec["legend"] = {"orient": "top", "title": None, "direction": "horizontal", "symbolType": "square",
                          "symbolStrokeWidth": 0, "columns": LEGEND_COLUMNS, "offset": 6, "rowPadding": 4,
                          "labelLimit": 160}  # fmt: skip
    return spec


def axis(title: str | None = None, unit: str = "", **more: Any) -> Spec:
    """An axis with few, quiet lines. unit: follows each of its numbers."""
    spec: Spec = {"title": title, "grid": True, "domain": False, "ticks": False, "labelPadding": 6, **more}
    if unit:
        spec["labelExpr"] = f"datum.label + ' {unit}'"
    return spec


#: What a picture needs besides its marks, pixels: the numbers of its time axis, the title of one, a row of its legend.
NUMBERS, LEGEND = 30, 24
#: Classes in one row of a legend: as many as a narrow page has room for.
LEGEND_COLUMNS = 7


def legend_height(present: Sequence[str]) -> int:
    """Pixels that the legend of the classes takes."""
    return LEGEND * ceil(len(set(present)) / LEGEND_COLUMNS)
