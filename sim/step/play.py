"""The times of a step, by the player that is quickest: the recurrence where kernels cannot meet on the device, of one
rank or of all; else SimPy."""

from __future__ import annotations

from collections.abc import Sequence

from sim.step import engine, ranks, recurrence
from sim.step.plan import Plan
from sim.step.schedule import Schedule


def schedules(plans: Sequence[Plan], only_first: bool = False) -> list[Schedule]:
    """Of each rank; with `only_first`, other ranks than the first may have arrivals and an end alone.

    Raises as `sim.step.engine.times_of_ranks` does.
    """
    if not engine.one_stream(plans[0]):
        return engine.times_of_ranks(plans)
    return [recurrence.times(plans[0])] if len(plans) == 1 else ranks.times(plans, only_first)
