"""Two timelines one above the other on one axis, and under them where the difference lies, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import floor, log10
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.timeline import Span, Timeline
from sim.compare import classes
from sim.compare.side import Side
from sim.report import svg

WIDTH, LEFT, RIGHT = 1280, 196, 24
LANE, GAP, HEAD = 22, 4, 26
#: At most so many lanes of a timeline are drawn, the busiest of each process.
MAX_LANES = {"Python": 2, "CANN": 2, "Communication": 4, "Ascend Hardware": 6, "Device": 6, "AI CPU": 1}
#: A narrower span is drawn together with its neighbours, pixels.
NARROW = 0.8
TOP_CAUSES = 12

COLOURS = {
    classes.MATMUL: svg.BLUE,
    classes.ATTENTION: svg.VERMILION,
    classes.NORM: svg.GREEN,
    classes.ELEMENTWISE: svg.SKY,
    classes.CACHE: svg.ORANGE,
    classes.COPY: svg.YELLOW,
    classes.AI_CPU: "#8c6d46",
    classes.COLLECTIVE: svg.PURPLE,
    classes.TRANSFER: svg.PURPLE,
    classes.WAIT: "#f3d3e3",
    classes.HOST: svg.GREY,
    "host waits": svg.LIGHT,
    classes.QUEUE: "#dedede",
}


def picture(a: Side, b: Side, document: dict[str, Any]) -> str:
    """The picture of two sides and their `compare` document; the same bytes for the same input.

    Raises ScenarioError where one of them has no timeline.
    """
    for side in (a, b):
        if side.timeline is None:
            raise ScenarioError([f"--plot: {printable(side.name, 200)}: a {side.kind} has no timeline to draw"])
    assert a.timeline is not None
    assert b.timeline is not None
    names = [document[key]["name"] for key in "ab"]
    axis = _Axis(max(t.end_ns - t.start_ns for t in (a.timeline, b.timeline)))
    parts: list[str] = []
    y = 12.0
    for letter, name, timeline in zip("AB", names, (a.timeline, b.timeline), strict=True):
        drawn, y = _timeline(f"{letter}: {_short(name, 90)}", timeline, axis, y)
        parts += drawn
    grid = axis.grid(40, y)
    legend, below = _legend(y + 30)
    bars, height = _bars(document["timelines"]["causes"], below + 30)
    return svg.picture(
        WIDTH, round(height + 10), f"Timelines of {names[0]} and {names[1]}", [*grid, *parts, *legend, *bars]
    )


class _Axis:
    """Time to pixels: both timelines start at the left end."""

    def __init__(self, longest_ns: int) -> None:
        self.longest_ns = max(1, longest_ns)
        self.scale = (WIDTH - LEFT - RIGHT) / self.longest_ns
        # 1, 2 or 5 times a power of ten, so that there are 5 to 12 marks.
        power = 10 ** floor(log10(self.longest_ns / 5)) if self.longest_ns >= 5 else 1
        self.step_ns = max(s for s in (power, 2 * power, 5 * power) if s * 5 <= self.longest_ns or s == power)

    def x(self, ns: int) -> float:
        return LEFT + ns * self.scale

    def grid(self, top: float, bottom: float) -> list[str]:
        parts = []
        for number in range(int(self.longest_ns // self.step_ns) + 1):
            ns = int(number * self.step_ns)
            x = self.x(ns)
            parts.append(svg.line([(x, top), (x, bottom + 4)]))
            parts.append(svg.text(x, bottom + 18, _time(ns), "middle", colour=svg.DARK))
        return parts


def _timeline(title: str, timeline: Timeline, axis: _Axis, y: float) -> tuple[list[str], float]:
    """Heading and lanes of one side from y down; and where they end."""
    length = timeline.end_ns - timeline.start_ns
    rank = f", rank {timeline.rank}" if timeline.rank else ""
    facts = f"{timeline.label.lower()} on {timeline.device}{rank}, step {_time(length)}"
    parts = [
        svg.text(8, y + 16, title, size=14, bold=True),
        svg.text(WIDTH - RIGHT, y + 16, facts, "end", colour=svg.DARK),
    ]
    y += HEAD
    top = y
    lanes, hidden = _lanes(timeline)
    for name, spans in lanes:
        parts.append(svg.box(LEFT, y, length * axis.scale, LANE, svg.PALE))
        parts.append(svg.text(LEFT - 8, y + LANE / 2 + 4, _short(name, 28), "end"))
        parts += _spans(spans, timeline.start_ns, timeline.end_ns, axis, y)
        y += LANE + GAP
    end = axis.x(length)
    parts.append(svg.line([(end, top - 4), (end, y)], svg.DARK))
    if hidden:
        parts.append(svg.text(LEFT, y + 10, f"and {hidden} more lanes, less busy", colour=svg.GREY, size=10))
        y += 14
    return parts, y + 12


def _lanes(timeline: Timeline) -> tuple[list[tuple[str, list[Span]]], int]:
    """Lanes from the host down to communication, and how many are left out."""
    lanes: dict[tuple[str, str], list[Span]] = {}
    for span in timeline.spans:
        lanes.setdefault((span.process, span.thread), []).append(span)
    chosen: list[tuple[str, list[Span]]] = []
    drawn = 0
    for process, most in sorted(MAX_LANES.items(), key=lambda item: _ORDER.index(item[0])):
        own = [(thread, spans) for (p, thread), spans in lanes.items() if p == process]
        # Whole collectives before their planes, then the busiest.
        busiest = sorted(own, key=lambda lane: (lane[0].startswith("Plane"), -sum(s.duration_ns for s in lane[1])))[
            :most
        ]
        for thread, spans in own:
            if any(thread == kept for kept, _ in busiest):
                name = process if process == thread else f"{process} {thread}"
                chosen.append((name.replace("Ascend Hardware ", "NPU ").replace("Communication Group", "Group"), spans))
        drawn += len(busiest)
    return chosen, sum(process in MAX_LANES for process, _ in lanes) - drawn


_ORDER = ("Python", "CANN", "Ascend Hardware", "Device", "AI CPU", "Communication")


def _spans(spans: Sequence[Span], start_ns: int, end_ns: int, axis: _Axis, y: float) -> Iterator[str]:
    """Wide spans one by one, outer ones first; narrow ones together, by what most of their pixel is."""
    narrow: dict[int, dict[str, float]] = {}
    for span in sorted(spans, key=lambda s: (s.start_ns, -s.end_ns)):
        first, last = max(span.start_ns, start_ns), min(span.end_ns, end_ns)
        start, width = axis.x(first - start_ns), (last - first) * axis.scale
        if width <= 0:  # of no length, or outside the step
            continue
        family = _family(span)
        if width >= NARROW:
            title = f"{span.name}: {_time(span.duration_ns)}"
            yield svg.box(start, y, max(0.4, width - 0.3), LANE, COLOURS[family], title)
        else:
            share = narrow.setdefault(int(start), {})
            share[family] = share.get(family, 0.0) + width
    columns = [(x, max(share, key=share.__getitem__), sum(share.values())) for x, share in sorted(narrow.items())]
    for (family, faint), run in groupby(_adjacent(columns), key=lambda column: (column[1], column[2])):
        places = [x for x, _, _ in run]
        for first, last in _runs(places):
            yield svg.box(first, y, last - first + 1, LANE, COLOURS[family], opacity=faint)


def _adjacent(columns: list[tuple[int, str, float]]) -> Iterator[tuple[int, str, float]]:
    """Columns with their coverage in quarters, so that alike neighbours are drawn as one."""
    for x, family, covered in columns:
        yield x, family, max(1, min(4, round(covered * 4))) / 4


def _runs(places: list[int]) -> Iterator[tuple[int, int]]:
    first = last = places[0]
    for place in places[1:]:
        if place != last + 1:
            yield first, last
            first = place
        last = place
    yield first, last


def _family(span: Span) -> str:
    family = classes.family_of(span)
    waits = family == classes.HOST and (span.synchronizes or "ynchroni" in span.name)
    return "host waits" if waits else family


def _legend(y: float) -> tuple[list[str], float]:
    parts, x = [], float(LEFT)
    for family, colour in COLOURS.items():
        if family == classes.TRANSFER:
            continue
        name = "collectives, transfer" if family == classes.COLLECTIVE else family
        width = 26 + 6.6 * len(name)
        if x + width > WIDTH - RIGHT:
            x, y = float(LEFT), y + 20
        parts += [svg.box(x, y, 12, 12, colour), svg.text(x + 17, y + 10, name)]
        x += width
    return parts, y + 14


def _bars(causes: Sequence[dict[str, Any]], y: float) -> tuple[list[str], float]:
    """A and B by cause, with the difference in words."""
    rows = [row for row in causes if row["a_us"] or row["b_us"]][:TOP_CAUSES]
    widest = max((max(row["a_us"], row["b_us"]) for row in rows), default=1.0)
    room = WIDTH - LEFT - RIGHT - 260
    parts = [svg.text(8, y, "Where the time of a step goes: A above, B below", size=14, bold=True)]
    y += 12
    for row in rows:
        colour = COLOURS.get(row["cause"], svg.LIGHT)
        parts.append(svg.text(LEFT - 8, y + 15, row["cause"], "end"))
        for at, (key, opacity) in enumerate((("a_us", 0.55), ("b_us", 1.0))):
            if row[key]:
                width = max(1.0, room * row[key] / widest)
                parts.append(svg.box(LEFT, y + 10 * at, width, 9, colour, opacity=opacity))
        values = f"{row['a_us'] / 1000:,.3f} → {row['b_us'] / 1000:,.3f} ms"
        change = f"{(row['b_us'] - row['a_us']) / 1000:+,.3f}"
        parts.append(svg.text(WIDTH - RIGHT - 80, y + 15, values, "end"))
        parts.append(svg.text(WIDTH - RIGHT, y + 15, change, "end", bold=True))
        y += 26
    return parts, y


def _time(ns: int) -> str:
    if ns == 0:
        return "0"
    return f"{ns} ns" if ns < 1000 else f"{ns / 1000:g} us" if ns < 1_000_000 else f"{ns / 1e6:.6g} ms"


def _short(name: str, most: int) -> str:
    shown = printable(name, 4 * most)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
