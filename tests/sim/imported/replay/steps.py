"""Measured steps made by hand: calls, kernels and collectives as spans, with as little to read as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from scenarios.timeline import Span, Timeline


def call(
    start: int, end: int, name: str = "call", thread: str = "Python", launched_by: int = -1, kind: str = ""
) -> Span:
    process = "CANN" if thread == "launch" else "Python"
    return Span(name, process, thread, start, end, kind, launched_by=launched_by)


def kernel(
    start: int, end: int, op_type: str = "Add", by: int = -1, stream: int = 0, shapes: str = "", out: str = ""
) -> Span:
    args = [("Input Shapes", shapes)] if shapes else []
    args += [("Output Shapes", out)] if out else []
    return Span(
        op_type, "Ascend Hardware", f"Stream {stream}", start, end, op_type=op_type, launched_by=by, args=tuple(args)
    )


def collective(start: int, end: int, name: str = "hcom_allReduce__1_0_1", by: int = -1) -> Span:
    return Span(name, "Communication", "Group 0 Communication", start, end, launched_by=by)


def wait(start: int, end: int) -> Span:
    return Span("Notify_Wait", "Communication", "Plane 0", start, end, "wait")


def synchronize(start: int, end: int) -> Span:
    return call(start, end, "synchronize", kind="synchronize")


def step(*spans: Span, end: int = 0, rank: int = 0) -> Timeline:
    return Timeline(spans, 0, end or max(s.end_ns for s in spans), "MEASURED", rank)


@st.composite
def steps(draw: st.DrawFn) -> Timeline:
    """A step of two host threads, up to three streams and collectives that a FIFO device could have run."""
    free = dict.fromkeys(range(3), 0)
    spans: list[Span] = []
    python = launch = links = 0
    size = st.integers(0, 60)
    for _ in range(draw(st.integers(1, 14))):
        what = draw(st.sampled_from(["kernel", "kernel", "kernel", "collective", "synchronize"]))
        python += draw(size)
        if what == "synchronize":
            done = max([python, *(end for end in [*free.values(), links] if end)])
            spans.append(synchronize(python, done + draw(st.integers(0, 5))))
            python = spans[-1].end_ns
            continue
        spans.append(call(python, python := python + draw(size)))
        caller = len(spans) - 1
        if draw(st.booleans()):
            start = max(launch, python) + draw(st.integers(0, 20))
            launch = start + draw(size)
            spans.append(call(start, launch, "launch", "launch", caller))
            caller = len(spans) - 1
        ready = spans[caller].end_ns + draw(size)
        if what == "collective":
            start = max(links, ready)
            waited, moved = draw(size), draw(st.integers(1, 60))
            spans.append(collective(start, start + waited + moved, f"hcom_allReduce__1_{len(spans)}_1", caller))
            if waited:
                spans.append(wait(start, start + waited))
            links = start + waited + moved
        else:
            stream = draw(st.integers(0, 2))
            start = max(free[stream], ready)
            op_type = draw(st.sampled_from(["Add", "Mul", "MatMulV2", "Cast"]))
            spans.append(kernel(start, start + draw(st.integers(1, 60)), op_type, caller, stream))
            free[stream] = spans[-1].end_ns
    if all(span.process in ("Python", "CANN") for span in spans):
        spans.append(kernel(python, python + 3))
    return step(*spans, end=max(s.end_ns for s in spans) + draw(size))


@st.composite
def runs(draw: st.DrawFn) -> list[Timeline]:
    """Two or three ranks that meet in some of their collectives, or would if they were not already through."""
    return [replace(draw(steps()), rank=rank) for rank in range(draw(st.integers(2, 3)))]


def violations(timeline: Timeline) -> list[str]:
    """What no device could have done: a kernel before the call that launched it started, or two on one stream at
    once."""
    violations = []
    lanes: dict[str, list[Span]] = {}
    for span in timeline.spans:
        if span.process in ("Ascend Hardware", "AI CPU") or (
            span.process == "Communication" and "Group" in span.thread
        ):
            lanes.setdefault(span.thread, []).append(span)
        if span.launched_by >= 0 and span.start_ns < timeline.spans[span.launched_by].start_ns:
            violations.append(f"{span.name} at {span.start_ns} before its call")
    for lane, spans in lanes.items():
        own = sorted((s for s in spans if s.kind != "wait"), key=lambda s: (s.start_ns, s.end_ns))
        for one, other in pairwise(own):
            if other.start_ns < one.end_ns:
                violations.append(f"{lane}: {other.name} at {other.start_ns} before {one.name} ended at {one.end_ns}")
    return violations


def as_set(spans: Sequence[Span]) -> list[tuple[object, ...]]:
    """Spans without their order and their launchers' numbers."""
    return sorted((s.process, s.thread, s.start_ns, s.end_ns, s.name, s.kind) for s in spans)
