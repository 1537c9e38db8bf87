"""second_stream: kernels of a family run alongside the others, as far as what they need and what needs them allows."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.timeline import Span
from sim.compare.kernels import shapes_of
from sim.imported.replay.change import Change
from sim.imported.replay.graph import Edge, Graph
from sim.imported.replay.transforms.base import Asked, Bound, Changed
from sim.imported.replay.transforms.scale import of_subject

#: How far a producer or a consumer is looked for, kernels.
NEAR = 64


def second_stream(graph: Graph, asked: Asked, end: Bound) -> Changed:
    """Move kernels to a stream of their own.

    A profile has no tensors. A kernel is taken to need the nearest kernel before it that wrote a shape which it reads,
    and to be needed by the nearest one behind it that reads a shape which it wrote; where shapes are not known, by its
    neighbours, and nothing is gained.
    """
    change = Change(graph)
    known = 0
    for (_, lane), numbers in change.lanes().items():
        moved: list[int] = []
        stands_for: dict[int, int] = {}  # a moved kernel -> what its stream did before it
        for place, number in enumerate(numbers):
            task = change.tasks[number]
            if task.what == "kernel" and task.span is not None and of_subject(task.span, asked.subject):
                producer, consumer, by_shape = _neighbours(change, numbers, place)
                known += by_shape
                before = numbers[place - 1] if place else None
                if before is not None:
                    stands_for[number] = stands_for.get(before, before)
                _move(change, number, producer, moved[-1] if moved else None)
                if consumer is not None:
                    _wait(change, consumer, number)
                moved.append(number)
            elif place and (skipped := stands_for.get(numbers[place - 1])) is not None:
                _follow(change, number, numbers[place - 1], skipped)
        change.places += len(moved)
        for number in moved:
            change.tasks[number] = change.tasks[number]._replace(lane=f"{lane} beside")
    assumed = (
        f"{change.places:,} kernels run on a stream of their own; {known:,} of them wait by shapes alike, the others "
        "for their neighbours",
        "kernels that run together are not slowed: cores and HBM are taken to suffice for both",
    )
    return Changed(_renamed(change), change.places, assumed)


def _neighbours(change: Change, numbers: Sequence[int], place: int) -> tuple[int | None, int | None, bool]:
    """(the kernel it needs, the kernel that needs it, whether shapes say so)."""
    span = change.tasks[numbers[place]].span
    assert span is not None
    read, written = _shapes(shapes_of(span)), _shapes(_written(span))
    producer = consumer = None
    for number in reversed(numbers[max(0, place - NEAR) : place]):
        other = change.tasks[number].span
        if other is not None and read & _shapes(_written(other)):
            producer = number
            break
    for number in numbers[place + 1 : place + 1 + NEAR]:
        other = change.tasks[number].span
        if other is not None and written & _shapes(shapes_of(other)):
            consumer = number
            break
    before = numbers[place - 1] if place else None
    behind = numbers[place + 1] if place + 1 < len(numbers) else None
    by_shape = producer is not None and consumer is not None
    return (producer, consumer, True) if by_shape else (before, behind, False)


def _written(span: Span) -> str:
    return next((str(value) for key, value in span.args if key == "Output Shapes"), "").strip('"')


def _shapes(text: str) -> set[str]:
    """Shapes of more than one element; scalars are alike everywhere."""
    return {part for part in text.split(";") if part and set(part.split(",")) != {"1"}}


def _move(change: Change, number: int, producer: int | None, before: int | None) -> None:
    """Let a kernel follow the moved one before it, and wait for what it needs."""
    task, gap_ns = change.tasks[number], change.graph.gap_ns
    after = [e for e in task.after if e.why != "queue"]
    after += [Edge(before, True, gap_ns, "queue")] if before is not None else []
    after += [Edge(producer, True, gap_ns, "inferred")] if producer is not None else []
    change.tasks[number] = task._replace(after=tuple(after) or task.after)


def _wait(change: Change, number: int, moved: int) -> None:
    task = change.tasks[number]
    change.tasks[number] = task._replace(after=(*task.after, Edge(moved, True, change.graph.gap_ns, "inferred")))


def _follow(change: Change, number: int, moved: int, before: int) -> None:
    """Let the kernel behind a moved one follow what the stream did before that."""
    task = change.tasks[number]
    after = tuple(
        e._replace(source=before, at_end=True) if e.why == "queue" and e.source == moved else e for e in task.after
    )
    change.tasks[number] = task._replace(after=after)


def _renamed(change: Change) -> Graph:
    """The graph with the moved kernels' spans on a thread of their own."""
    for number, task in enumerate(change.tasks):
        if task.lane.endswith(" beside") and task.span is not None:
            span = task.span
            moved = Span(
                span.name,
                span.process,
                thread=f"{span.thread} beside",
                start_ns=span.start_ns,
                end_ns=span.end_ns,
                kind=span.kind,
                op_type=span.op_type,
                index=span.index,
                layer=span.layer,
                launched_by=span.launched_by,
                args=span.args,
            )
            change.tasks[number] = task._replace(span=moved)
    return change.finished()
