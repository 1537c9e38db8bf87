"""Several ranks in one step, fast: the max-plus recurrence over vectors of ranks that meet in their collectives.

All ranks run one program, so their plans differ only in how long things take. The plan is walked once with one number a
rank in each place; where a collective starts, every rank takes the largest. Variants of the step, with all host or
kernel times scaled, are further rows of the same walk. Kernels of several streams run as if none slowed another, which
is a lower bound where some do: that is the engine's business (`sim.step.engine.times_of_ranks`), and a test holds the
two equal otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.step.plan import LATE, HostStep, HostWork, Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.rank_plans import RankPlans, rank_plans

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
    group = rank_plans(plans)
    first = group.first
    if not isinstance(first.steps[-1], Synchronize):
        raise ValueError("a final Synchronize is due")
    walk = _Walk(group, variants)
    for step in first.steps:
        walk.step(step)
    return [int(clock) for clock in walk.clock[:, 0]]


class _Walk:
    """Clocks of all ranks in all variants, moved through the plan step by step."""

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
        self._kernels = iter(scaled_ns(group.kernel_ns, [v.device for v in variants]))
        self.clock: Clocks = np.zeros(shape, np.int64)
        self._launcher: Clocks = np.zeros(shape, np.int64)
        self._never: Clocks = np.full(shape, _NEVER, np.int64)
        self._free: dict[int, Clocks] = {}  # by stream
        self._threaded, self._depth = group.first.launch_thread, group.first.queue_depth
        self._begun: list[Clocks] = []  # when the launch thread started with each entry
        self._waiting: list[tuple[Launch, Clocks]] = []
        self._recorded: dict[str, Clocks] = {}

    def step(self, step: HostStep) -> None:
        host = next(self._host)
        if isinstance(step, Synchronize):
            self._resolve()
            self.clock = self._np.maximum.reduce([self.clock, self._launcher, *self._free.values()])
        self.clock = self.clock + host
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
        if len(self._begun) >= self._depth:
            self.clock = self._np.maximum(self.clock, self._begun[-self._depth])
        start = self._np.maximum(self.clock, self._launcher)
        self._begun.append(start)
        self._launcher = start + launch
        return self._launcher

    def _resolve(self) -> None:
        """Run the kernels issued so far: events they wait for are recorded by now."""
        maximum, kernels = self._np.maximum, self._kernels
        for launch, ready in self._waiting:
            start = maximum(ready, self._free.get(launch.stream, self._never) + launch.gap_ns)
            for event in launch.waits:
                start = maximum(start, self._recorded[event])
            if launch.rendezvous:
                start = last_of_group(start, launch.group_ranks)
            free = start + next(kernels)
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
