"""Collectives: left out, shrunk, or met by ranks that arrive together."""

from __future__ import annotations

from sim.imported.replay.change import Change
from sim.imported.replay.graph import Graph
from sim.imported.replay.transforms.base import Asked, Bound, Changed
from sim.imported.replay.transforms.scale import of_subject


def remove_collectives(graph: Graph, asked: Asked, end: Bound) -> Changed:
    """Leave collectives out with their waiting and their calls: the bound of everything that hides or shortens them."""
    change = Change(graph)
    numbers = _transfers(change, asked.subject)
    change.remove([*numbers, *map(change.arrival, numbers)])
    change.places = len(numbers)
    assumed = (
        f"{change.places:,} collectives take no time at all, waiting included: no optimisation of them gains more",
        f"{change.saved_calls:,} calls of the host are saved; what one rank sends, another still waits for",
    )
    return Changed(change.finished(), change.places, assumed)


def shrink_collectives(graph: Graph, asked: Asked, end: Bound) -> Changed:
    """Multiply the transfer of collectives by `factor`; waiting stays."""
    factor = asked.number("factor", 0.5)
    change = Change(graph)
    for number in _transfers(change, asked.subject):
        change.set_duration(number, round(change.tasks[number].duration_ns * factor))
        change.places += 1
    assumed = (f"{change.places:,} collectives transfer in {factor:g} of their time; waiting for other ranks stays",)
    return Changed(change.finished(), change.places, assumed)


def no_waits(graph: Graph, asked: Asked, end: Bound) -> Changed:
    """Let every collective start when this rank arrives: what balanced ranks and steady hosts could gain at most.

    Transfers point to point stay: they wait for data.
    """
    change = Change(graph)
    for number in _transfers(change, asked.subject):
        if change.carries(number):
            continue
        task = change.tasks[number]
        # With several ranks its own arrival is the one right in front of it on its lane.
        own = [e for e in task.after if change.tasks[e.source].rank == task.rank]
        after = tuple(e._replace(lag_ns=0) for e in own)
        if after != task.after:
            change.tasks[number] = task._replace(after=after)
            change.places += 1
    assumed = (f"{change.places:,} collectives find all other ranks waiting already; sends and receives stay",)
    return Changed(change.finished(), change.places, assumed)


def _transfers(change: Change, subject: str) -> list[int]:
    return [
        number
        for number, task in enumerate(change.tasks)
        if task.what == "transfer" and task.span is not None and of_subject(task.span, subject)
    ]
