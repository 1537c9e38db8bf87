"""Pictures made of cells: blocks of a KV cache, and matrices small enough to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app_pages.parts.charts.base import Chart, Row, Spec
from app_pages.parts.palette import INK, ink

#: Colours that requests take in turn: neighbours differ, also for readers who see few colours.
OWNERS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b59b00", "#7b6bb0")
FREE = "#d9dde1"
CELL = 34
#: Columns of matrices next to each other whose numbers are read on a phone; rows of cells that a title takes.
MAX_COLUMNS, TITLE_ROWS = 18, 1.2


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


def block_table(name: str, table: Sequence[int], blocks_there: int, alt: str, say: Mapping[str, str]) -> Chart:
    """A block table as a picture: the logical blocks of a request above, the physical ones below, a line from each to
    its place. say: words (logical, physical)."""
    wide = max(blocks_there, len(table))
    step = wide / max(1, len(table))
    rows: list[Row] = [
        {"x": (n + 0.5) * step, "y": 0.0, "x2": place + 0.5, "y2": 1.0, "logical": str(n), "physical": str(place)}
        for n, place in enumerate(table)
    ]
    x: Spec = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, wide], "nice": False}}
    y: Spec = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [1.25, -0.25], "nice": False}}
    tip = [{"field": key, "title": say[key]} for key in ("logical", "physical")]
    places = [{"x2": n + 0.5, "y2": 1.0} for n in range(blocks_there)]
    lower: Spec = {"x": {**x, "field": "x2"}, "y": {**y, "field": "y2"}}
    square: Spec = {"type": "square", "opacity": 1}
    layers: list[Spec] = [
        {"data": {"values": places}, "mark": {**square, "size": _square(wide, 40), "color": FREE}, "encoding": lower},
        {
            "mark": {"type": "rule", "strokeWidth": 1.5, "color": OWNERS[0], "opacity": 0.7},
            "encoding": {"x": x, "y": y, "x2": {"field": "x2"}, "y2": {"field": "y2"}, "tooltip": tip},
        },
        {"mark": {**square, "size": 260, "color": OWNERS[0]}, "encoding": {"x": x, "y": y, "tooltip": tip}},
        {
            "mark": {"type": "text", "fontSize": 10, "fontWeight": "bold", "color": ink(OWNERS[0])},
            "encoding": {"x": x, "y": y, "text": {"field": "logical"}},
        },
        {"mark": {**square, "size": _square(wide, 60), "color": OWNERS[0]}, "encoding": {**lower, "tooltip": tip}},
        {
            "mark": {"type": "text", "fontSize": 10, "dy": 13, "color": INK},
            "data": {"values": _runs(table)},
            "encoding": {**lower, "text": {"field": "blocks"}},
        },
    ]
    legend = [(f"▀ {say['logical']}", ""), (f"▄ {say['physical']}", "")]
    return Chart(name, rows, {"layer": layers, "height": 130}, alt, legend=legend)


def _square(count: int, most: int) -> Spec:
    """Area of a mark, so that `count` of them next to each other stay apart at any width."""
    return {"expr": f"min({most}, pow(0.8 * width / {count}, 2))"}


def _runs(table: Sequence[int]) -> list[Row]:
    """Labels of the physical blocks: one for neighbours, whose numbers would lie on each other on a phone."""
    runs: list[list[int]] = []
    for place in sorted(table):
        if runs and place - runs[-1][-1] <= 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return [
        {
            "x2": (run[0] + run[-1] + 1) / 2,
            "y2": 1.0,
            "blocks": f"{run[0]}–{run[-1]}" if run[-1] > run[0] else f"{run[0]}",
        }
        for run in runs
    ]


def matrices(
    name: str,
    shown: Sequence[tuple[str, Sequence[Sequence[float]], Sequence[int]]],
    alt: str,
    by_row: Sequence[str] = (),
    numbers: bool = True,
) -> Chart:
    """Matrices with their values, as many next to each other as are read on a phone. shown: (title, values, rank of
    each column; -1 for none). by_row: titles of those whose ranks are of rows. numbers: whether the values are written
    into the cells."""
    rows: list[Row] = []
    titles: list[Row] = []
    left, top, deep, wide = 0.0, 0.0, 0, 0.0
    for title, values, ranks in shown:
        if left and left + len(values[0]) > MAX_COLUMNS:
            left, top, deep = 0.0, top + deep + TITLE_ROWS, 0
        titles.append({"x": left, "y": top - 0.15, "title": title})
        for r, line in enumerate(values):
            for c, value in enumerate(line):
                rank = ranks[r if title in by_row else c]
                rows.append(_cell(left + c, top + r, value if numbers else None, rank))
        left, deep = left + len(values[0]) + 0.8, max(deep, len(values))
        wide = max(wide, left)
    bottom = top + deep
    x: Spec = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, wide], "nice": False}}
    y: Spec = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [bottom, -0.9], "nice": False}}
    layers: list[Spec] = [
        {
            "mark": {"type": "rect", "opacity": 1},
            "encoding": {
                "x": x,
                "x2": {"field": "right"},
                "y": y,
                "y2": {"field": "bottom"},
                "color": {"field": "colour", "type": "nominal", "scale": None},
                **({"tooltip": {"field": "text"}} if numbers else {}),
            },
        },
        {
            "mark": {"type": "text", "fontSize": {"expr": _letters(wide)}},
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
            "encoding": {"x": x, "y": y, "text": {"field": "title"}},
        },
    ]
    return Chart(name, rows, {"layer": layers, "height": int((bottom + 0.9) * 28)}, alt)


def _letters(columns: float) -> str:
    """The size of the numbers in cells, at any width: those of three signs fit, and what is too small to read goes."""
    fits = f"0.55 * width / {columns:.1f}"
    return f"{fits} < 5 ? 0 : min(12, {fits})"


def _cell(x: float, y: float, value: float | None, rank: int) -> Row:
    colour = OWNERS[rank] if rank >= 0 else "#808a94"
    return {
        "x": x, "right": x + 0.94, "y": y, "bottom": y + 0.9, "middle": x + 0.47, "centre": y + 0.45,
        "text": "" if value is None else f"{value:.0f}".replace("-", "−"), "colour": colour, "ink": ink(colour),
    }  # fmt: skip
