"""Small timelines, and what tests ask of the trace events that they become."""

from __future__ import annotations

import json
from typing import Any

from scenarios.timeline import Span, Timeline
from scenarios.trace import trace_events

Event = dict[str, Any]

#: One operation through Python, the launch thread and the device: 12 µs, of which 4.5 µs compute.
PIPELINE = Timeline(
    spans=(
        Span("aten::mm", "Python", "Thread 1", 0, 3_000, index=0, layer=0),
        Span("Node@launch", "CANN", "Thread 2", 3_000, 5_001, index=0, layer=0, launched_by=0),
        Span(
            "q_proj", "Ascend Hardware", "Stream 2", 6_000, 10_500, "matmul", "MatMulV2", 0, 0, 1, (("bound", "hbm"),)
        ),
    ),
    start_ns=0,
    end_ns=12_000,
)


def events_of(timelines: Timeline | list[Timeline], **options: Any) -> list[Event]:
    return [json.loads(text) for text in trace_events(timelines, **options)]


def by_phase(events: list[Event], phase: str) -> list[Event]:
    return [event for event in events if event["ph"] == phase]


def names_of(events: list[Event], what: str) -> dict[tuple[int, int], Any]:
    key = {"sort_index": "sort_index", "labels": "labels"}.get(what.partition("_")[2], "name")
    return {(e["pid"], e["tid"]): e["args"][key] for e in by_phase(events, "M") if e["name"] == what}


def device_span(name: str, start_ns: int, end_ns: int, thread: str = "Stream 2", **fields: Any) -> Span:
    return Span(name, "Ascend Hardware", thread, start_ns, end_ns, **fields)


def of(*spans: Span, end_ns: int = 1_000, **fields: Any) -> Timeline:
    return Timeline(spans, 0, end_ns, **fields)
