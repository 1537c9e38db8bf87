"""Several ranks in one step, fast: the max-plus recurrence over vectors of ranks that meet in their collectives.

All ranks run one program, so their plans differ only in how long things take. The plan is walked once with one number a
rank in each place; where a collective starts, every rank takes the largest. Variants of the step, with all host or
kernel times scaled, are further rows of the same walk. Kernels of several streams run as if none slowed another, which
is a lower bound where some do: that is the engine's business (`sim.step.engine.times_of_ranks`), and a test holds the
two equal otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scenarios.records import dataclass
from sim.step.plan import LATE, HostStep, HostWork, Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.rank_plans import RankPlans, rank_plans
from sim.step.schedule import Schedule

if TYPE_CHECKING:  # a rank alone needs no numpy
    from numpy import int64
    from numpy.typing import NDArray

    Clocks = NDArray[int64]  # of shape (variants, ranks)

#: Before any time: the first kernel of a stream pays no gap.
_NEVER = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Variant:
    """How a step is played: factors of host and kernel times, and whether ranks lag (rank skew)."""

    host: float = 1.0
    device: float = 1.0
    late: bool = True


def total_ns(plans: Sequence[Plan]) -> int:
    """Length of the step of rank 0, ns. Raises as `totals_ns` does."""
    return totals_ns(plans, (Variant(),))[0]


def totals_ns(plans: Sequence[Plan], variants: Sequence[Variant]) -> list[int]:
    """Length of the step of rank 0 in each variant, ns.

    Raises ValueError for plans without a final Synchronize, or that are not one program.
    """
    return [int(clock) for clock in _walked(rank_plans(plans), variants).clock[:, 0]]


def times(plans: Sequence[Plan], only_first: bool = False) -> list[Schedule]:
    """Times of all ranks, as `sim.step.engine.times_of_ranks` where no kernel slows another; with `only_first`, of the
    ranks behind rank 0 their arrivals and end alone. Raises as `totals_ns` does."""
    walk = _walked(rank_plans(plans), (Variant(),))

    def of_rank(rank: int) -> Schedule:
        if rank and only_first:
            return Schedule([], [], [], int(walk.clock[0, rank]))
        host, launch, kernels = (
            [(int(start[0, rank]), int(end[0, rank])) for start, end in intervals]
            for intervals in (walk.host, walk.launch, walk.kernels)
        )
        return Schedule(host, launch, kernels, int(walk.clock[0, rank]))

    schedules = [of_rank(rank) for rank in range(len(plans))]
    for number, clock in walk.arrivals.items():
        for schedule, ns in zip(schedules, clock[0].tolist(), strict=True):
            schedule.arrivals[number] = ns
    return schedules


def _walked(group: RankPlans, variants: Sequence[Variant]) -> _Walk:
    """The walk through a whole plan."""
    if not isinstance(group.first.steps[-1], Synchronize):
        raise ValueError("a final Synchronize is due")
    walk = _Walk(group, variants)
    for step in group.first.steps:
        walk.step(step)
    return walk


class _Walk:
    """Clocks of all ranks in all variants, moved through the plan step by step. host, launch, kernels: start and end of
    each, and arrivals: when ranks were ready for a collective, as in `sim.step.schedule.Schedule`."""

    def __init__(self, group: RankPlans, variants: Sequence[Variant]) -> None:
        import numpy as np

        self._np = np
        shape = len(variants), len(group)
        host_scales = [v.host for v in variants]
        host = scaled_ns(group.host_ns, host_scales)
        for at, step in enumerate(group.first.steps):
            if isinstance(step, HostWork) and step.name == LATE:  # independent of how fast the hosts are
                host[at] = group.host_ns[at] * np.array([[v.late] for v in variants])
        self._host = iter(host)
        self._launch = iter(scaled_ns(group.launch_ns, host_scales))
        self._durations = iter(scaled_ns(group.kernel_ns, [v.device for v in variants]))
        self.clock: Clocks = np.zeros(shape, np.int64)
        self._launcher: Clocks = np.zeros(shape, np.int64)
        self._never: Clocks = np.full(shape, _NEVER, np.int64)
        self._free: dict[int, Clocks] = {}  # by stream
        self._threaded, self._depth = group.first.launch_thread, group.first.queue_depth
        self.host: list[tuple[Clocks, Clocks]] = []
        self.launch: list[tuple[Clocks, Clocks]] = []
        self.kernels: list[tuple[Clocks, Clocks]] = []
        self.arrivals: dict[int, Clocks] = {}
        self._waiting: list[tuple[Launch, Clocks]] = []
        self._recorded: dict[str, Clocks] = {}

    def step(self, step: HostStep) -> None:
        host, start = next(self._host), self.clock
        if isinstance(step, Synchronize):
            self._resolve()
            self.clock = self._np.maximum.reduce([self.clock, self._launcher, *self._free.values()])
        self.clock = self.clock + host
        self.host.append((start, self.clock))
        if isinstance(step, Issue):
            self._waiting.append((step.launch, self._through_queue()))
        elif isinstance(step, Replay):
            ready = self._through_queue() + step.start_ns
            self._waiting += [(launch, ready) for launch in step.launches]
        elif isinstance(step, Update):
            self._recorded[step.records] = self.clock

    def _through_queue(self) -> Clocks:
        """When the launch thread has handed the entry over; without one, when the Python thread is through."""
        launch = next(self._launch)
        if not self._threaded:
            return self.clock
        if len(self.launch) >= self._depth:
            self.clock = self._np.maximum(self.clock, self.launch[-self._depth][0])
        start = self._np.maximum(self.clock, self._launcher)
        self._launcher = start + launch
        self.launch.append((start, self._launcher))
        return self._launcher

    def _resolve(self) -> None:
        """Run the kernels issued so far: events they wait for are recorded by now."""
        maximum, kernels = self._np.maximum, self._durations
        for launch, ready in self._waiting:
            start = maximum(ready, self._free.get(launch.stream, self._never) + launch.gap_ns)
            for event in launch.waits:
                start = maximum(start, self._recorded[event])
            if launch.rendezvous:
                self.arrivals[len(self.kernels)] = start
                start = last_of_group(start, launch.group_ranks)
            free = start + next(kernels)
            self.kernels.append((start, free))
            for event in launch.records:
                self._recorded[event] = free
            self._free[launch.stream] = free
        self._waiting = []


def last_of_group(start: Clocks, group_ranks: int) -> Clocks:
    """When the last of each group of `group_ranks` neighbouring ranks (0: of all) is ready, for each of them."""
    variants, ranks = start.shape
    groups = start.reshape(variants, -1, group_ranks or ranks)
    last: Clocks = groups.max(axis=2, keepdims=True).repeat(groups.shape[2], axis=2).reshape(variants, ranks)
    return last


def scaled_ns(ns: Clocks, scales: Sequence[float]) -> Clocks:
    """Whole nanoseconds of shape (places, variants, ranks) from those of (places, ranks)."""
    import numpy as np

    return np.stack([ns if scale == 1.0 else np.rint(ns * scale).astype(np.int64) for scale in scales], axis=1)
