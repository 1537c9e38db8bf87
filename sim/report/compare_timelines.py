"""The timelines of `whatif compare` on a terminal: causes, lanes, kernels that changed, and what only one side has."""

from __future__ import annotations

from math import fsum
from typing import Any

from rich.text import Text

from sim.imported.names import short_name
from sim.report.formats import bar_pair, counted, ms
from sim.report.tables import Column, fitted

TOP_ROWS = 12
SHAPE_WIDTH = 44
LONGEST_RUN = 240


def timeline_parts(result: dict[str, Any], width: int) -> list[Any]:
    """What is printed of a `compare` document's part `timelines`."""
    timelines = result["timelines"]
    return [
        _causes(timelines, width),
        *_paths(timelines, width),
        _lanes(timelines, width),
        _kernels(timelines["kernels"], width),
        *_replaced(timelines["kernels"], width),
    ]


def op_types_part(result: dict[str, Any], width: int) -> Any:
    """Times by op type, where one side is a document without spans."""
    rows, rest = result["op_types"][:TOP_ROWS], result["op_types"][TOP_ROWS:]
    columns = [
        Column("op type", [row["op_type"] for row in rows]),
        Column("A calls", [f"{row['a_count']:,}" for row in rows], right=True, rank=1),
        Column("B calls", [f"{row['b_count']:,}" for row in rows], right=True, rank=1),
        *_times(rows, width),
    ]
    notes = [f"and {counted(len(rest), 'more type')}: {_sum(rest):+,.1f} us"] if rest else []
    notes.append("By op type only: a result holds no single kernels, so none are paired.")
    return fitted("Kernels by op type", columns, width, notes)


def _times(rows: list[dict[str, Any]], width: int) -> list[Column]:
    """A, B, their difference and its bar."""
    widest = max((abs(row["b_us"] - row["a_us"]) for row in rows), default=0.0) or 1.0
    return [
        Column("A us", [f"{row['a_us']:,.1f}" for row in rows], right=True),
        Column("B us", [f"{row['b_us']:,.1f}" for row in rows], right=True),
        Column("B - A", [f"{row['b_us'] - row['a_us']:+,.1f}" for row in rows], right=True),
        Column("", [bar_pair((row["b_us"] - row["a_us"]) / widest, width) for row in rows], rank=2),
    ]


def _sum(rows: list[dict[str, Any]]) -> float:
    return fsum(row["b_us"] - row["a_us"] for row in rows)


def _causes(timelines: dict[str, Any], width: int) -> Any:
    rows = timelines["causes"]
    notes = [f"sums to the steps: {ms(timelines['a']['step_us'])} and {ms(timelines['b']['step_us'])} ms"]
    return fitted(
        "Time of the step by cause", [Column("us", [r["cause"] for r in rows]), *_times(rows, width)], width, notes
    )


def _paths(timelines: dict[str, Any], width: int) -> list[Any]:
    """What changed by operator path: the same work, whatever its kernels are called."""
    changed = [row for row in timelines["paths"] if row["a_us"] != row["b_us"]]
    rows, rest = changed[:TOP_ROWS], changed[TOP_ROWS:]
    if not rows:
        return []
    room = max(24, width // 2)
    columns = [
        Column("operator path", [_tail(row["path"], room) for row in rows]),
        Column("", [row["what"] for row in rows], rank=1),
        *_times(rows, width),
    ]
    notes = [f"these and {counted(len(rest), 'more path')} ({_sum(rest):+,.1f} us) sum to {_sum(changed):+,.1f} us"]
    return [fitted("Changes by operator path", columns, width, notes)]


def _tail(path: str, room: int) -> str:
    """The innermost operators of a path that have room."""
    parts = [short_name(part, 40) for part in path.split(" > ")]
    kept = parts[-1]
    for part in reversed(parts[:-1]):
        if len(kept) + len(part) + 7 > room:
            return f"... > {kept}"
        kept = f"{part} > {kept}"
    return kept


def _lanes(timelines: dict[str, Any], width: int) -> Any:
    rows, rest = timelines["lanes"][:TOP_ROWS], timelines["lanes"][TOP_ROWS:]

    def cell(row: dict[str, Any], side: str, key: str) -> str:
        lane = row[side]
        if lane is None:
            return "-"
        if key == "share":
            return f"{lane['busy_us'] / timelines[side]['step_us']:.0%}" if timelines[side]["step_us"] else "-"
        return str(lane["lane"]) if key == "lane" else f"{lane[key]:,.1f}" if key == "busy_us" else f"{lane[key]:,}"

    columns = [
        Column(
            f"{side.upper()} {title}".strip(), [cell(row, side, key) for row in rows], right=key != "lane", rank=rank
        )
        for side in "ab"
        for title, key, rank in (
            ("lane", "lane", 0),
            ("busy us", "busy_us", 0),
            ("of step", "share", 1),
            ("spans", "spans", 2),
        )
    ]
    notes = [f"and {counted(len(rest), 'more lane')}"] if rest else []
    return fitted("Lanes", columns, width, notes)


def _kernels(kernels: dict[str, Any], width: int) -> Any:
    moved = [row for row in kernels["changed"] if row["a_us"] != row["b_us"]]
    rows, rest = moved[:TOP_ROWS], moved[TOP_ROWS:]
    columns = [
        Column("op type", [row["op_type"] for row in rows]),
        Column("input shapes", [_shapes(row) for row in rows], rank=3),
        Column("calls", [f"{row['count']:,}" for row in rows], right=True),
        *_times(rows, width),
    ]
    notes = []
    if rest:
        notes.append(f"and {counted(len(rest), 'more kind')}: {_sum(rest):+,.1f} us")
    other = f", {kernels['elsewhere']:,} on another lane or at another place" if kernels["elsewhere"] else ""
    notes.append(
        f"{counted(kernels['paired'], 'kernel')} paired, {kernels['same_shapes']:,} of them alike "
        f"in op type and shapes{other}"
    )
    title = "Kernels that both have and that changed" if rows else "Kernels that both have take equally long"
    return fitted(title, columns if rows else [], width, notes)


def _shapes(row: dict[str, Any]) -> str:
    a, b = _cut(row["shapes_a"]), _cut(row["shapes_b"])
    return (a or b) if a == b or not a or not b else f"{_cut(a, SHAPE_WIDTH // 2)} | {_cut(b, SHAPE_WIDTH // 2)}"


def _cut(text: str, most: int = SHAPE_WIDTH) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _replaced(kernels: dict[str, Any], width: int) -> list[Any]:
    parts = []
    rows, rest = kernels["replaced"][:TOP_ROWS], kernels["replaced"][TOP_ROWS:]
    if rows:
        columns = [
            Column("in A", [_cut(row["a"], LONGEST_RUN) for row in rows], wraps=True),
            Column("in its place in B", [_cut(row["b"], LONGEST_RUN) for row in rows], wraps=True),
            Column("times", [f"{row['count']:,}" for row in rows], right=True),
            *_times(rows, width),
        ]
        notes = [f"and {counted(len(rest), 'more kind')}: {_sum(rest):+,.1f} us"] if rest else []
        parts.append(fitted("Replaced", columns, width, notes))
    for side, other in (("a", "A"), ("b", "B")):
        only = kernels[f"only_in_{side}"]
        if only:
            shown = only[:TOP_ROWS]
            columns = [
                Column("op type", [row["op_type"] for row in shown]),
                Column("input shapes", [_cut(row["shapes"]) for row in shown], rank=1),
                Column("calls", [f"{row['count']:,}" for row in shown], right=True),
                Column("us", [f"{row['total_us']:,.1f}" for row in shown], right=True),
            ]
            left = only[TOP_ROWS:]
            notes = (
                [f"and {counted(len(left), 'more kind')}: {sum(r['total_us'] for r in left):,.1f} us"] if left else []
            )
            parts.append(fitted(f"Only in {other}", columns, width, notes))
    return parts


def notes_part(notes: list[str]) -> list[Text]:
    """What has to be said about the inputs."""
    return [Text(f"note: {note}", style="dim") for note in notes]
