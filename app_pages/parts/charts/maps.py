"""Pictures made of cells: blocks of a KV cache, and matrices small enough to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app_pages.parts.charts.base import Chart, Row, Spec
from app_pages.parts.palette import INK, ink

#: Colours that requests take in turn: neighbours differ, also for readers who see few colours.
OWNERS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b59b00", "#7b6bb0")
FREE = "#d9dde1"
CELL = 34


def blocks(name: str, cells: Sequence[tuple[int, int, float]], alt: str, say: Mapping[str, str], wide: int) -> Chart:
    """A cache: a square a block, filled from the left as far as it holds tokens, in its owner's colour, and the number
    of its holders where there are several. cells: (owner or -1, holders, share filled), `wide` in a row. say: owner,
    holders, filled, free."""
    rows = [_block(n % wide, n // wide, *cell, say["free"]) for n, cell in enumerate(cells)]
    deep = -(-len(cells) // wide)
    x: Spec = {"field": "column", "type": "quantitative", "axis": None, "scale": {"domain": [0, wide], "nice": False}}
    y: Spec = {"field": "row", "type": "quantitative", "axis": None, "scale": {"domain": [deep, 0], "nice": False}}
    colour: Spec = {"field": "colour", "type": "nominal", "scale": None}
    tip = [{"field": key, "title": say[key]} for key in ("owner", "holders", "filled")]
    around: Spec = {"x": x, "y": y, "y2": {"field": "bottom"}, "color": colour, "tooltip": tip}
    layers: list[Spec] = [
        {"mark": {"type": "rect", "opacity": 0.28}, "encoding": {**around, "x2": {"field": "right"}}},
        {"mark": {"type": "rect"}, "encoding": {**around, "x2": {"field": "fill"}}},
        {
            "mark": {"type": "text", "fontSize": 11, "fontWeight": "bold"},
            "encoding": {
                "x": {**x, "field": "middle"},
                "y": {**y, "field": "centre"},
                "text": {"field": "text"},
                "color": {"field": "ink", "type": "nominal", "scale": None},
            },
        },
    ]
    return Chart(name, rows, {"layer": layers, "height": deep * CELL}, alt)


def _block(column: int, row: int, owner: int, holders: int, filled: float, free: str) -> Row:
    colour = OWNERS[owner % len(OWNERS)] if owner >= 0 else FREE
    return {
        "column": column, "row": row, "right": column + 0.94, "bottom": row + 0.9, "fill": column + 0.94 * filled,
        "middle": column + 0.47, "centre": row + 0.45, "colour": colour, "ink": ink(colour),
        "owner": str(owner) if owner >= 0 else free, "holders": holders, "text": str(holders) if holders > 1 else "",
        "filled": f"{filled:.0%}" if owner >= 0 else "",
    }  # fmt: skip


def matrices(
    name: str,
    shown: Sequence[tuple[str, Sequence[Sequence[float]], Sequence[int]]],
    alt: str,
    by_row: Sequence[str] = (),
) -> Chart:
    """Matrices next to each other with their values. shown: (title, values, rank of each column; -1 for none). by_row:
    titles of those whose ranks are of rows."""
    rows: list[Row] = []
    titles: list[Row] = []
    left, deepest = 0.0, max(len(values) for _, values, _ in shown)
    for title, values, ranks in shown:
        titles.append({"x": left, "title": title})
        for r, line in enumerate(values):
            for c, value in enumerate(line):
                rows.append(_cell(left + c, r, value, ranks[r if title in by_row else c]))
        left += len(values[0]) + 0.8
    x: Spec = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, left], "nice": False}}
    y: Spec = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [deepest, -0.9], "nice": False}}
    layers: list[Spec] = [
        {
            "mark": {"type": "rect", "opacity": 0.85},
            "encoding": {
                "x": x,
                "x2": {"field": "right"},
                "y": y,
                "y2": {"field": "bottom"},
                "color": {"field": "colour", "type": "nominal", "scale": None},
            },
        },
        {
            "mark": {"type": "text", "fontSize": 12},
            "encoding": {
                "x": {**x, "field": "middle"},
                "y": {**y, "field": "centre"},
                "text": {"field": "text"},
                "color": {"field": "ink", "type": "nominal", "scale": None},
            },
        },
        {
            "data": {"values": titles},
            "mark": {"type": "text", "align": "left", "baseline": "bottom", "fontSize": 13, "color": INK},
            "encoding": {"x": x, "y": {"datum": -0.15, "type": "quantitative"}, "text": {"field": "title"}},
        },
    ]
    return Chart(name, rows, {"layer": layers, "height": int((deepest + 0.9) * 28)}, alt)


def _cell(x: float, y: int, value: float, rank: int) -> Row:
    colour = OWNERS[rank] if rank >= 0 else "#808a94"
    return {
        "x": x, "right": x + 0.94, "y": y, "bottom": y + 0.9, "middle": x + 0.47, "centre": y + 0.45,
        "text": f"{value:.0f}".replace("-", "−"), "colour": colour, "ink": ink(colour),
    }  # fmt: skip
