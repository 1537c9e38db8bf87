"""Who waited for whom in the collectives of a step."""

from __future__ import annotations

from collections.abc import Sequence

from sim.step.plan import Plan
from sim.step.schedule import Schedule, launches


def waits_by_rank(plan: Plan, schedule: Sequence[Schedule]) -> dict[int, int]:
    """Nanoseconds that rank 0 waited in collectives, by the rank that it waited for. Ranks that come last together
    share a wait; a remainder is the first one's."""
    waits: dict[int, int] = {}
    groups = {number: launch.group_ranks for number, launch in enumerate(launches(plan)) if launch.rendezvous}
    for number, arrival in schedule[0].arrivals.items():
        arrivals = [rendezvous.arrivals[number] for rendezvous in schedule[: groups[number] or len(schedule)]]
        if wait := max(arrivals) - arrival:
            last = [rank for rank, ns in enumerate(arrivals) if ns == arrival + wait]
            for rank in last:
                waits[rank] = waits.get(rank, 0) + wait // len(last)
            waits[last[0]] += wait % len(last)
    return dict(sorted(waits.items()))
