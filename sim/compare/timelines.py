"""Two timelines side by side as plain data: time by cause and by lane, kernels paired, what only one of them has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from scenarios.timeline import Timeline, length_ns, union_ns
from sim.compare.causes import causes_ns
from sim.compare.kernels import Kernel, Paired, Replaced, pair
from sim.compare.paths import compared_paths


def compare_timelines(a: Timeline, b: Timeline) -> dict[str, Any]:
    """The part `timelines` of a `compare` document. Times in us; `a_us` of all rows of `kernels` sum to the kernel
    time of A, those of `causes` to its step; so for B."""
    paired = pair(a, b)
    rows = _rows(paired.pairs)
    return {
        "a": _facts(a),
        "b": _facts(b),
        "causes": _causes(a, b),
        "paths": compared_paths(a, b),
        "lanes": _lanes(a, b, paired),
        "kernels": {
            "paired": len(paired.pairs),
            "same_shapes": sum(x.is_like(y) for x, y in paired.pairs),
            "elsewhere": paired.moved,
            "changed": [row for row in rows if not _is_alike(row)],
            "unchanged": [row for row in rows if _is_alike(row)],
            "replaced": _replaced(paired.replaced),
            "only_in_a": _only(kernel for replaced in paired.replaced if not replaced.b for kernel in replaced.a),
            "only_in_b": _only(kernel for replaced in paired.replaced if not replaced.a for kernel in replaced.b),
        },
    }


def _facts(timeline: Timeline) -> dict[str, Any]:
    return {
        "label": timeline.label.lower(),
        "rank": timeline.rank,
        "device": timeline.device,
        "step_us": (timeline.end_ns - timeline.start_ns) / 1000,
    }


def _causes(a: Timeline, b: Timeline) -> list[dict[str, Any]]:
    of_a, of_b = causes_ns(a), causes_ns(b)
    rows = [
        {"cause": cause, "a_us": of_a.get(cause, 0) / 1000, "b_us": of_b.get(cause, 0) / 1000}
        for cause in dict.fromkeys((*of_a, *of_b))
    ]
    return sorted(rows, key=lambda row: (-abs(row["b_us"] - row["a_us"]), row["cause"]))


def _lanes(a: Timeline, b: Timeline, paired: Paired) -> list[dict[str, Any]]:
    """Busy time and spans of each lane: host threads by their place, lanes of kernels as they were paired."""
    of_a, of_b = _busy(a), _busy(b)
    host = [[lane for lane in lanes if lane.startswith(("Python", "CANN"))] for lanes in (of_a, of_b)]
    longer = max(len(lanes) for lanes in host)
    threads = list(zip(*([*lanes, *[""] * (longer - len(lanes))] for lanes in host), strict=True))
    known = {lane for pair_ in (*threads, *paired.lanes) for lane in pair_}
    others = [lane for lane in dict.fromkeys((*of_a, *of_b)) if lane not in known]
    return [
        {"a": _lane(of_a, one), "b": _lane(of_b, two)}
        for one, two in (*threads, *paired.lanes, *((lane, lane) for lane in others))
    ]


def _busy(timeline: Timeline) -> dict[str, tuple[int, int]]:
    """(busy ns, spans) of each lane, in the order of their first span in the timeline."""
    lanes: dict[str, list[tuple[int, int]]] = {}
    for span in timeline.spans:
        lane = f"{span.process} {span.thread}" if span.process != span.thread else span.process
        # A thread that waits for the device is not busy.
        lanes.setdefault(lane, []).append((span.start_ns, span.start_ns if span.synchronizes else span.end_ns))
    return {lane: (length_ns(union_ns(spans)), len(spans)) for lane, spans in lanes.items()}


def _lane(lanes: dict[str, tuple[int, int]], name: str) -> dict[str, Any] | None:
    if name not in lanes:
        return None
    busy_ns, spans = lanes[name]
    return {"lane": name, "busy_us": busy_ns / 1000, "spans": spans}


def _is_alike(row: dict[str, Any]) -> bool:
    """Whether the kernels of a row are the same on both sides: op type and time."""
    return row["a_us"] == row["b_us"] and " / " not in row["op_type"]


def _rows(pairs: Iterable[tuple[Kernel, Kernel]]) -> list[dict[str, Any]]:
    """Pairs of the same op types and shapes together, the largest difference first."""
    rows: dict[tuple[str, str, str, str], list[int]] = {}
    for x, y in pairs:
        row = rows.setdefault((*x.what, *y.what), [0, 0, 0])
        row[0] += 1
        row[1] += x.duration_ns
        row[2] += y.duration_ns
    listed = [
        {
            "op_type": op_a if op_a == op_b else f"{op_a} / {op_b}",
            "shapes_a": shapes_a,
            "shapes_b": shapes_b,
            "count": count,
            "a_us": a_ns / 1000,
            "b_us": b_ns / 1000,
        }
        for (op_a, shapes_a, op_b, shapes_b), (count, a_ns, b_ns) in rows.items()
    ]
    return sorted(listed, key=lambda row: (-abs(row["b_us"] - row["a_us"]), row["op_type"], row["shapes_a"]))


def _replaced(gaps: Iterable[Replaced]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], list[int]] = {}
    for gap in gaps:
        if gap.a and gap.b:
            row = rows.setdefault((_run(gap.a), _run(gap.b)), [0, 0, 0])
            row[0] += 1
            row[1] += sum(k.duration_ns for k in gap.a)
            row[2] += sum(k.duration_ns for k in gap.b)
    listed = [
        {"a": a, "b": b, "count": count, "a_us": a_ns / 1000, "b_us": b_ns / 1000}
        for (a, b), (count, a_ns, b_ns) in rows.items()
    ]
    return sorted(listed, key=lambda row: (-abs(row["b_us"] - row["a_us"]), row["a"], row["b"]))


def _run(kernels: Sequence[Kernel]) -> str:
    """`Pow, ReduceMean, 2 Mul`."""
    counted = [(op_type, len(list(same))) for op_type, same in groupby(k.op_type for k in kernels)]
    return ", ".join(op_type if count == 1 else f"{count} {op_type}" for op_type, count in counted)


def _only(kernels: Iterable[Kernel]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], list[int]] = {}
    for kernel in kernels:
        row = rows.setdefault(kernel.what, [0, 0])
        row[0] += 1
        row[1] += kernel.duration_ns
    listed = [
        {"op_type": op_type, "shapes": shapes, "count": count, "total_us": ns / 1000}
        for (op_type, shapes), (count, ns) in rows.items()
    ]
    return sorted(listed, key=lambda row: (-row["total_us"], row["op_type"], row["shapes"]))
