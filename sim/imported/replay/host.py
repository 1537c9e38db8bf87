"""The host's calls as tasks: of each thread the calls that launch something or wait for the device, in turn.

What lies between two of them (Python, other calls) is the thread's work and stays as long as it was. Calls nest in a
profile, while tasks of a thread follow each other: a call ends as a task where the next one that matters starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from scenarios.records import dataclass
from scenarios.timeline import Timeline
from scenarios.trace.layout import HOST

_SYNCHRONISES = re.compile(r"synchroni[sz]e", re.I)
#: torch_npu and CUDA give Python's and CANN's calls of one system thread lanes of the same name, with its number.
_SYSTEM_THREAD = re.compile(r"Thread [0-9]+|.*\b[0-9]{3,}")


@dataclass(frozen=True, slots=True)
class Call:
    """A call as a task. number: of its span. end_ns: where the next call on its thread cuts it off at the latest.

    waits: whether it is the host's wait for the device.
    """

    number: int
    thread: str
    start_ns: int
    end_ns: int
    waits: bool


def calls_of(timeline: Timeline) -> dict[str, list[Call]]:
    """The calls that matter of each thread, in order; they do not overlap."""
    spans = timeline.spans
    launchers = {span.launched_by for span in spans if span.launched_by >= 0}
    threads: dict[str, list[int]] = {}
    for number, span in enumerate(spans):
        if span.process in HOST and (number in launchers or synchronises(timeline, number)):
            threads.setdefault(thread_of(span.process, span.thread), []).append(number)
    return {thread: _in_turn(timeline, thread, numbers) for thread, numbers in threads.items()}


@lru_cache(maxsize=1024)
def thread_of(process: str, thread: str) -> str:
    """The thread that a lane of the host is; Python's and CANN's lanes of one system thread are one."""
    return thread if _SYSTEM_THREAD.fullmatch(thread) else f"{process} {thread}"


def synchronises(timeline: Timeline, number: int) -> bool:
    """Whether the call is known by its name to wait for the device."""
    span = timeline.spans[number]
    return span.process in HOST and (span.synchronizes or bool(_SYNCHRONISES.search(span.name)))


def _in_turn(timeline: Timeline, thread: str, numbers: Sequence[int]) -> list[Call]:
    spans = timeline.spans
    order = sorted(numbers, key=lambda n: (spans[n].start_ns, -spans[n].end_ns, n))
    calls: list[Call] = []
    for place, number in enumerate(order):
        span = spans[number]
        start = spans[order[place + 1]].start_ns if place + 1 < len(order) else span.end_ns
        cut = span.end_ns > start
        # One that holds other calls is no wait itself: what it waits for, one of them does.
        waits = synchronises(timeline, number) and not cut and span.duration_ns > 0
        calls.append(Call(number, thread, span.start_ns, min(span.end_ns, start), waits))
    return calls
