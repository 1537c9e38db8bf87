"""The tasks of one rank: its calls, the tasks of its streams, its collectives, and the marks of its step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from scenarios.timeline import COMPUTE, Span, Timeline, length_ns, union_ns
from scenarios.trace.layout import HOST
from sim.compare.classes import is_collective
from sim.imported.replay.draft import Draft
from sim.imported.replay.graph import Edge, Task
from sim.imported.replay.host import Call, calls_of, thread_of

#: Parts of a collective among the tasks of a stream.
_PARTS = ("transfer", "notify_wait", "task")
#: How many collectives may overlap another one of their lane.
_OVERLAPPING = 16


class RankTasks:
    """Tasks of one rank in a draft, without edges.

    threads, lanes: tasks in order. collectives: the transfers; the arrival stands right before each. task_of: the task
    of a span that launches.
    """

    def __init__(self, draft: Draft, rank: int, timeline: Timeline) -> None:
        """Raises ValueError for a timeline without kernels."""
        self.draft, self.rank, self.timeline, self.spans = draft, rank, timeline, timeline.spans
        self.threads: dict[str, list[int]] = {}
        self.lanes: dict[str, list[int]] = {}
        self.collectives: list[int] = []
        self.task_of: dict[int, int] = {}
        device = [n for n in range(len(self.spans)) if _is_task(self.spans[n])]
        if not device:
            raise ValueError("the timeline holds no kernels, so there is nothing to replay")
        device.sort(key=lambda n: (_when(self.spans[n]), self.spans[n].end_ns, n))
        zero = min([self.timeline.start_ns, *(span.start_ns for span in self.spans)])
        self.offset = draft.add(Task("begin", rank, "", 0, ()), min(0, zero))
        draft.offsets.append(self.offset)
        for calls in calls_of(timeline).values():
            for call in calls:
                self._add_call(call)
        parts = self._parts(device)
        for number in device:
            self._add_device(number, parts.get(number, []))
        self._attach_calls()
        self.first = draft.add(Task("first", rank, "", 0, ()), timeline.start_ns)
        self.end = draft.add(Task("end", rank, "", 0, ()), timeline.end_ns)

    def launcher(self, task: Task) -> int | None:
        """The task of the call that launched `task`, None where that is unknown."""
        if task.what == "arrive":
            return None
        if task.span is None or task.span.launched_by < 0:
            return None
        return self.task_of.get(task.span.launched_by)

    def _add_call(self, call: Call) -> None:
        span, own = self.spans[call.number], self.threads.setdefault(call.thread, [])
        if call.waits:
            own.append(self.draft.add(Task("host", self.rank, call.thread, 0, ()), call.start_ns))
            task = Task(
                "synchronise", self.rank, lane=call.thread, duration_ns=0, after=(), span=span, number=call.number
            )
            number = self.draft.add(task, call.end_ns)
        else:
            length = call.end_ns - call.start_ns
            number = self.draft.add(
                Task("host", self.rank, lane=call.thread, duration_ns=length, after=(), span=span, number=call.number),
                call.start_ns,
            )
        own.append(number)
        self.task_of[call.number] = number

    def _add_device(self, number: int, parts: Sequence[int]) -> None:
        span = self.spans[number]
        lane = f"{span.process} {span.thread}"
        own = self.lanes.setdefault(lane, [])
        if is_collective(span):
            waited = self._waited_ns(span, parts)
            arrive = self.draft.add(Task("arrive", self.rank, lane, 0, ()), span.start_ns)
            after = (Edge(arrive, True, waited, "meet"),)
            placed_task = Task(
                "transfer",
                self.rank,
                lane=lane,
                duration_ns=span.duration_ns - waited,
                after=after,
                span=span,
                number=number,
            )
            task = self.draft.add(placed_task, span.start_ns + waited)
            own += [arrive, task]
            self.collectives.append(task)
        elif _is_event_wait(span):
            task = self.draft.add(
                Task("wait", self.rank, lane=lane, duration_ns=0, after=(), span=span, number=number), span.end_ns
            )
            own.append(task)
        else:
            placed_task = Task(
                "kernel", self.rank, lane=lane, duration_ns=span.duration_ns, after=(), span=span, number=number
            )
            task = self.draft.add(placed_task, span.start_ns)
            own.append(task)
        if parts:
            self.draft.attach(task, parts)

    def _waited_ns(self, span: Span, parts: Sequence[int]) -> int:
        """How long a collective waited for other ranks, as far as its parts say."""
        waits = [self.spans[n] for n in parts if self.spans[n].is_wait]
        return length_ns(union_ns((max(span.start_ns, w.start_ns), min(span.end_ns, w.end_ns)) for w in waits))

    def _parts(self, device: Sequence[int]) -> dict[int, list[int]]:
        """Parts of collectives by the collective they lie in; by the last kernel before them where they lie in none."""
        whole = [n for n in device if is_collective(self.spans[n])]
        starts = [self.spans[n].start_ns for n in whole]
        kernels = [_when(self.spans[n]) for n in device]
        parts: dict[int, list[int]] = {}
        for number, span in enumerate(self.spans):
            if span.process in HOST or _is_task(span):
                continue
            at = bisect_right(starts, span.start_ns) - 1
            # Collectives of several groups may overlap: the one that started last and still runs.
            inside = [n for n in whole[max(0, at + 1 - _OVERLAPPING) : at + 1] if self.spans[n].end_ns >= span.end_ns]
            before = max(0, bisect_right(kernels, span.start_ns) - 1)
            parts.setdefault(inside[-1] if inside else device[before], []).append(number)
        return parts

    def _attach_calls(self) -> None:
        """Calls that are no tasks move with the last task before them on their thread, or with the start."""
        starts = {thread: [self.draft.starts_ns[n] for n in numbers] for thread, numbers in self.threads.items()}
        held: dict[int, list[int]] = {}
        for number, span in enumerate(self.spans):
            if span.process not in HOST or number in self.task_of:
                continue
            thread = thread_of(span.process, span.thread)
            at = bisect_right(starts.get(thread, []), span.start_ns) - 1
            held.setdefault(self.threads[thread][at] if at >= 0 else self.offset, []).append(number)
        for task, numbers in held.items():
            self.draft.attach(task, numbers)


def _is_event_wait(span: Span) -> bool:
    return span.kind == "event_wait"


def _is_task(span: Span) -> bool:
    """A task of a stream, or a whole collective."""
    if span.process in COMPUTE:
        return span.kind not in _PARTS
    return is_collective(span)


def _when(span: Span) -> int:
    """What counts of a task in the order of its stream: of a wait its end."""
    return span.end_ns if _is_event_wait(span) else span.start_ns
