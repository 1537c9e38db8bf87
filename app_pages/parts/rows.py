"""Timelines and documents as the plain rows that charts draw; merging of what is too narrow to see, and no physics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from app_pages.parts.palette import BY_FAMILY, class_of, known
from scenarios.timeline import Span, Timeline
from sim.compare.classes import family_of

#: Spans beyond this many are merged where they are too narrow to see.
MAX_SPANS = 1500
#: Widths of a span in the whole picture below which it is merged with its neighbours.
PIECES = 700
#: Spans of one window; what lies beyond is cut.
MAX_IN_WINDOW = 4000

Args = Mapping[int, Mapping[str, Any]]


def lane_of(span: Span) -> str:
    """The lane as torch_npu's profiler names it, without what it has in common with all others."""
    if span.process == "Python":
        return f"Host · {span.thread}"
    if span.process == "CANN":
        return f"CANN · {span.thread}"
    if span.process == "Communication":
        return f"HCCL · {span.thread.replace(' Communication', '').lower()}"
    if span.process == "AI CPU":
        return "AI CPU"
    return span.thread


_ORDER = ("Host", "CANN", "Stream", "AI CPU", "HCCL", "HCCL · plane")


def lanes_of(spans: Iterable[Span]) -> list[str]:
    """Lanes from the host down to the links."""

    def place(lane: str) -> tuple[int, str]:
        return max((n for n, start in enumerate(_ORDER) if lane.startswith(start)), default=len(_ORDER)), lane

    return sorted({lane_of(span) for span in spans}, key=place)


def _class(span: Span) -> str:
    """The class of a span: by its kind where it is one of ours, else by the name that another profiler gave it."""
    return class_of(span.kind, span.process) if known(span.kind, span.process) else BY_FAMILY[family_of(span)]


def span_row(span: Span, lane: str, args: Args) -> dict[str, Any]:
    """One span with all that a reader may ask of it. Times in us from the start of the step."""
    more: Mapping[str, Any] = {}
    if span.process not in ("Python", "CANN") and not span.is_wait:
        more = args.get(span.index) or dict(span.args)
    return {
        "lane": lane,
        "start": span.start_ns / 1000,
        "end": span.end_ns / 1000,
        "kind": _class(span),
        "name": span.op_type or span.name,
        "op": span.name,
        "us": span.duration_ns / 1000,
        "layer": span.layer,
        "shapes": str(more.get("Input Shapes", ""))[:80],
        "bytes": more.get("bytes", 0),
        "flops": more.get("flops", 0),
        "bound": more.get("bound", ""),
        "roofline": more.get("roofline_share"),
        "busy": 1.0,
        "spans": 1,
    }


def window(timeline: Timeline, start_ns: int, end_ns: int, args: Args) -> list[dict[str, Any]]:
    """Every span that lies in [start_ns, end_ns) at least in part."""
    inside = [s for s in timeline.spans if s.end_ns > start_ns and s.start_ns < end_ns]
    return [span_row(span, lane_of(span), args) for span in inside[:MAX_IN_WINDOW]]


def transfers(timeline: Timeline, start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """Waiting and transfer of the collectives in [start_ns, end_ns)."""
    pieces = (s for s in timeline.spans if s.process == "Communication" and s.kind in ("wait", "transfer"))
    return [span_row(s, lane_of(s), {}) for s in pieces if s.end_ns > start_ns and s.start_ns < end_ns]


def whole(timeline: Timeline, args: Args) -> list[dict[str, Any]]:
    """The whole step. Where there are many spans, those that are too narrow to see are merged: one piece of their lane,
    of the class that fills most of it, and the share of it that is busy."""
    if len(timeline.spans) <= MAX_SPANS:
        return window(timeline, timeline.start_ns, timeline.end_ns + 1, args)
    width_ns = max(1, (timeline.end_ns - timeline.start_ns) // PIECES)
    rows: list[dict[str, Any]] = []
    for lane in lanes_of(timeline.spans):
        spans = sorted((s for s in timeline.spans if lane_of(s) == lane), key=lambda s: s.start_ns)
        pieces: dict[int, list[Span]] = {}
        for span in spans:
            if span.duration_ns >= width_ns:
                rows.append(span_row(span, lane, args))
            else:
                pieces.setdefault(span.start_ns // width_ns, []).append(span)
        rows += [_merged(members, lane, args) for members in pieces.values()]
    return rows


def _merged(members: Sequence[Span], lane: str, args: Args) -> dict[str, Any]:
    if len(members) == 1:
        return span_row(members[0], lane, args)
    start, end = members[0].start_ns, max(s.end_ns for s in members)
    by_class: dict[str, int] = {}
    for s in members:
        name = _class(s)
        by_class[name] = by_class.get(name, 0) + s.duration_ns
    busy = sum(by_class.values())
    most = max(members, key=lambda s: s.duration_ns)
    row = span_row(most, lane, {})
    row.update(
        start=start / 1000,
        end=end / 1000,
        us=busy / 1000,
        kind=max(by_class, key=lambda c: (by_class[c], c)),
        name=f"{most.op_type or most.name} + {len(members) - 1}",
        layer=members[0].layer,
        busy=min(1.0, busy / max(1, end - start)),
        spans=len(members),
    )
    return row


def layers_of(timeline: Timeline) -> list[tuple[int, int]]:
    """From the first to the last kernel of each layer in the order of the program, with a twelfth more on either side;
    ns. The numbers that spans have start again with each kind of layer, as in a model whose first layers are dense."""
    kernels = sorted((s for s in timeline.device_spans if s.layer >= 0), key=lambda s: s.index)
    runs = [list(members) for _, members in groupby(kernels, key=lambda s: s.layer)]
    if len(runs) > 1 and runs[-1][0].layer == 0:
        runs.pop()  # what follows the layers: the head, and the choice of a token
    return [_around(timeline, members) for members in runs]


def _around(timeline: Timeline, kernels: Sequence[Span]) -> tuple[int, int]:
    start, end = min(s.start_ns for s in kernels), max(s.end_ns for s in kernels)
    margin = (end - start) // 12
    return max(timeline.start_ns, start - margin), min(timeline.end_ns, end + margin)
