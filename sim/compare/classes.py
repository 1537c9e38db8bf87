"""What kind of work a span is, by the names that profilers give: the families of tables, colours and what-ifs."""

from __future__ import annotations

import re

from scenarios import timeline
from scenarios.profile.families import (
    ATTENTION,
    CACHE,
    COLLECTIVE,
    COPY,
    ELEMENTWISE,
    MATMUL,
    NORM,
    family_of_type,
)
from scenarios.timeline import QUEUED, Span
from scenarios.timeline import is_kernel as on_stream

AI_CPU, TRANSFER, WAIT, HOST, QUEUE = "AI CPU", "transfer", "waiting for other ranks", "host", "waits of a stream"

__all__ = [
    "AI_CPU", "ATTENTION", "CACHE", "COLLECTIVE", "COPY", "ELEMENTWISE", "HOST", "MATMUL", "NORM", "QUEUE", "TRANSFER",
    "WAIT", "family_of", "family_of_type", "is_collective", "is_kernel", "op_type_of", "operation_of",
]  # fmt: skip

#: The operation in the names that libraries give a collective.
_OPERATION = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send_?recv|send|recv|reduce", re.I
)
_NUMBERED = re.compile(r"(_\d+)+$")


def op_type_of(span: Span) -> str:
    """The op type, or what the name says of it: `hcom_allReduce__271_0_1` is `hcom_allReduce`."""
    if span.op_type and span.op_type != "N/A":
        return span.op_type
    return _NUMBERED.sub("", span.name).rstrip("_") or span.name


def is_collective(span: Span) -> bool:
    """A whole collective; planes hold its pieces, and waiting is part of it."""
    if span.process != "Communication" or span.is_wait or span.kind in QUEUED:
        return False
    return not span.thread.startswith("Plane")


def is_kernel(span: Span) -> bool:
    """A kernel on a stream or the AI CPU, or a whole collective."""
    return on_stream(span) or is_collective(span)


def family_of(span: Span) -> str:
    """The family of a span of any lane."""
    if span.process in ("Python", "CANN"):
        return HOST
    if span.process == "Communication":
        if span.kind in ("wait", "notify_wait"):
            return WAIT
        return TRANSFER if span.thread.startswith("Plane") else COLLECTIVE
    if span.process == "AI CPU":
        return AI_CPU
    if span.kind in QUEUED:
        return COPY if span.kind == timeline.COPY else QUEUE
    return family_of_type(op_type_of(span))


def operation_of(op_type: str) -> str:
    """What a collective does, whatever library names it: hcom_allReduce_ and all_reduce are `allreduce`."""
    match = _OPERATION.search(op_type)
    return match[0].replace("_", "").lower() if match else op_type
