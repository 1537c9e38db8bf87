"""Max-min fair rates of kernels that run together.

Kernel *i* progresses at rate r_i, at most 1 (its speed when alone), and takes r_i * share_i of each resource; no
resource gives more than the whole of itself. Of all rates that obey this, max-min fairness picks the one in which no
rate can rise without lowering a rate that is as low or lower (Bertsekas and Gallager, Data Networks, section 6.5.2).
What is shared fairly is the progress of kernels, not bytes: a kernel that wants little of a scarce resource is slowed
as much as one that wants all of it, as in one memory queue.

Vector cores are not shared in time: a kernel's blocks keep their cores until they end. Kernels of many short blocks
come out as if they shared; a collective, whose few blocks wait for those of other ranks, does not. It holds its cores
from start to end, so the others progress on what is left: next to 24 held of 40 cores, a kernel that fills all 40 takes
2.5 times as long, and one that finds none left waits. (That a collective itself waits for blocks to end before it has
all its cores is left out.)

All of it is integers, so that rates depend on nothing but the shares. A share is rounded down to 1e-9 and a rate up
to 1e-18. Both errors let a kernel end too soon, by some 1e-9 of its time, and never too late: its end, rounded up to
a whole nanosecond, is the exact one wherever that is a whole number, for kernels well under a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.kernel.time import KernelTime

#: Parts of one whole resource. Rates are in parts of FULL_RATE.
WHOLE = 10**9
FULL_RATE = 10**18
RESOURCES = ("hbm", "cube", "vector", "ai_cpu", "link", "held")
#: Vector cores that are shared, and those that a kernel holds, which the others then lack.
VECTOR, HELD = RESOURCES.index("vector"), RESOURCES.index("held")

#: Parts of WHOLE that a kernel takes of each of RESOURCES while it runs alone.
Shares = tuple[int, int, int, int, int, int]


def shares(kernel: KernelTime) -> Shares:
    """The shares of a kernel as integers; ValueError where one is not within 0 and 1."""
    hbm, cube, vector = _parts(kernel.hbm_share), _parts(kernel.cube_share), _parts(kernel.vector_share)
    shared, held = (0, vector) if kernel.holds_cores else (vector, 0)
    return hbm, cube, shared, _parts(kernel.ai_cpu_share), _parts(kernel.link_share), held


def _parts(share: float) -> int:
    # A share is a quotient of times; allow it to miss 1 by what float division can.
    if not 0.0 <= share <= 1.0 + 1e-9:
        raise ValueError(f"a kernel alone cannot use {share} of a resource; shares lie between 0 and 1")
    return min(WHOLE, int(share * WHOLE))


def contended(running: Sequence[Shares]) -> bool:
    """Whether the kernels want more of some resource than there is."""
    wanted = [sum(kernel[resource] for kernel in running) for resource in range(len(RESOURCES))]
    others = wanted[VECTOR] + wanted[HELD] if wanted[VECTOR] else 0
    return others > WHOLE or any(column > WHOLE for column in wanted)


def rates(running: Sequence[Shares]) -> list[int]:
    """The max-min fair rate of each kernel, in parts of FULL_RATE.

    Progressive filling: raise all rates together until a resource is used up; its users stay at that rate, the others
    go on, until each kernel is held by a resource or runs at its full speed.
    """
    result = [FULL_RATE] * len(running)
    rising = list(range(len(running)))
    left = [WHOLE * FULL_RATE] * len(RESOURCES)
    left[VECTOR] -= FULL_RATE * min(WHOLE, sum(wanted[HELD] for wanted in running))
    while rising:
        level, scarce = FULL_RATE, -1
        for resource in range(len(RESOURCES)):
            demand = sum(running[i][resource] for i in rising)
            if demand and (limit := -(-left[resource] // demand)) < level:
                level, scarce = limit, resource
        if scarce < 0:
            break
        for i in rising:
            if running[i][scarce]:
                result[i] = level
                for resource, share in enumerate(running[i]):
                    left[resource] -= level * share
        rising = [i for i in rising if not running[i][scarce]]
    return result
