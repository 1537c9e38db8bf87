"""The plans of ranks that run one program: one plan, and how long things take in it on each rank.

A plan of its own for each of 64 ranks would cost more than playing them. `RankPlans` is a sequence of plans still: it
makes a rank's plan when asked for it, and the players ask for its times instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, overload

from scenarios.records import dataclass
from sim.step.plan import HostStep, Issue, Launch, Plan, Replay
from sim.step.schedule import launches

if TYPE_CHECKING:  # a rank alone needs no numpy
    from numpy import int64
    from numpy.typing import NDArray

    Matrix = NDArray[int64]


@dataclass(frozen=True, slots=True)
class Times:
    """What ranks differ in, ns. host: of each step of the plan, what it costs the Python thread. launch: of each entry
    of the launch queue, what it costs the launch thread. kernels: durations, in program order."""

    host: list[int]
    launch: list[int]
    kernels: list[int]


def times_of(plan: Plan) -> Times:
    """The times in a plan of one rank."""
    calls = [step.launch if isinstance(step, Issue) else step for step in plan.steps]
    return Times(
        [call.host_ns for call in calls],
        [call.launch_ns for call in calls if isinstance(call, Launch | Replay)],
        [launch.kernel.duration_ns for launch in launches(plan)],
    )


@dataclass(frozen=True, eq=False)
class RankPlans(Sequence[Plan]):
    """Plans of ranks that differ in times alone.

    first: rank 0's. host_ns, launch_ns, kernel_ns: as in `Times`, whole numbers of shape (places, ranks); what rank 0
    has in its plan stands in column 0. Raises ValueError for a negative time.
    """

    first: Plan
    host_ns: Matrix
    launch_ns: Matrix
    kernel_ns: Matrix

    def __post_init__(self) -> None:
        for matrix in (self.host_ns, self.launch_ns, self.kernel_ns):
            if matrix.size and matrix.min() < 0:
                raise ValueError("times are whole nanoseconds, 0 or more")

    def __len__(self) -> int:
        return int(self.host_ns.shape[1])

    @overload
    def __getitem__(self, rank: int) -> Plan: ...
    @overload
    def __getitem__(self, rank: slice) -> Sequence[Plan]: ...
    def __getitem__(self, rank: int | slice) -> Plan | Sequence[Plan]:
        if isinstance(rank, slice):
            return [self[one] for one in range(len(self))[rank]]
        rank = range(len(self))[rank]
        return self.first if rank == 0 else _with_times(self.first, self.times(rank))

    def times(self, rank: int) -> Times:
        """The times of one rank."""
        columns = (matrix[:, rank].tolist() for matrix in (self.host_ns, self.launch_ns, self.kernel_ns))
        return Times(*columns)


def rank_plans(plans: Sequence[Plan]) -> RankPlans:
    """The same plans by their times. Raises ValueError where they are not of one program."""
    if isinstance(plans, RankPlans):
        return plans
    import numpy as np

    times = [times_of(plan) for plan in plans]

    def matrix(rows: list[list[int]]) -> Matrix:
        return np.array(list(zip(*rows, strict=True)), np.int64).reshape(-1, len(plans))

    return RankPlans(
        plans[0],
        matrix([rank_times.host for rank_times in times]),
        matrix([rank_times.launch for rank_times in times]),
        matrix([rank_times.kernels for rank_times in times]),
    )


def timed(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Times]]:
    """Each rank's plan, or one with the same steps, and the rank's times."""
    if isinstance(plans, RankPlans):
        yield from ((plans.first, plans.times(rank)) for rank in range(len(plans)))
    else:
        yield from ((plan, times_of(plan)) for plan in plans)


def _with_times(plan: Plan, times: Times) -> Plan:
    host, launch, kernels = iter(times.host), iter(times.launch), iter(times.kernels)

    def lasting(inner: Launch) -> Launch:
        return replace(inner, kernel=replace(inner.kernel, duration_ns=next(kernels)))

    steps: list[HostStep] = []
    for step in plan.steps:
        if isinstance(step, Issue):
            steps.append(Issue(replace(lasting(step.launch), host_ns=next(host), launch_ns=next(launch))))
        elif isinstance(step, Replay):
            inside = tuple(lasting(inner) for inner in step.launches)
            steps.append(replace(step, launches=inside, host_ns=next(host), launch_ns=next(launch)))
        else:
            steps.append(replace(step, host_ns=next(host)))
    return replace(plan, steps=tuple(steps))
