"""Several ranks in one step, fast: the max-plus recurrence over vectors of ranks that meet in their collectives.

All ranks run one program, so their plans differ only in how long things take. `total_ns` walks the plan once with one
number a rank in each place; where a collective starts, every rank takes the greatest. Kernels of several streams run
as if none slowed another, which is a lower bound where some do: that is the engine's business
(`sim.engine.times_of_ranks`), and a test holds the two equal otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.plan import LATE, HostWork, Issue, Launch, Plan, Replay, Synchronize, Update

#: Before any time: the first kernel of a stream pays no gap.
_NEVER = -(1 << 62)


def total_ns(plans: Sequence[Plan], host_scale: float = 1.0, device_scale: float = 1.0, late_start: bool = True) -> int:
    """Length of the step of rank 0, ns; with host or kernel times scaled, or with ranks that all begin in time.

    Raises ValueError for plans without a final Synchronize, or that are not one program.
    """
    import numpy as np  # a rank alone needs none of this

    first = plans[0]
    if not isinstance(first.steps[-1], Synchronize):
        raise ValueError("a final Synchronize is due")
    walk = _Walk(np, len(plans), first.launch_thread, first.queue_depth, host_scale, device_scale)
    for steps in zip(*(plan.steps for plan in plans), strict=True):
        if late_start or not (isinstance(steps[0], HostWork) and steps[0].name == LATE):
            walk.step(steps)
    return int(walk.clock[0])


class _Walk:
    """Clocks of all ranks, moved through the plan step by step."""

    def __init__(self, np: Any, ranks: int, threaded: bool, depth: int, host_scale: float, device_scale: float) -> None:
        self._np = np
        self._host_scale = host_scale
        self._device_scale = device_scale
        self.clock = np.zeros(ranks, np.int64)
        self._launcher = np.zeros(ranks, np.int64)
        self._never = np.full(ranks, _NEVER, np.int64)
        self._free: dict[int, Any] = {}  # when each stream has ended its last kernel
        self._threaded = threaded
        self._depth = depth
        self._begun: list[Any] = []  # when the launch thread began with each entry
        self._waiting: list[tuple[Sequence[Launch], Any]] = []
        self._recorded: dict[str, Any] = {}

    def step(self, steps: Sequence[Any]) -> None:
        np, kind = self._np, type(steps[0])
        if kind is Issue:
            launched = [s.launch for s in steps]
            self.clock = self.clock + self._host([launch.host_ns for launch in launched])
            ready = self._through_queue(self._host([launch.launch_ns for launch in launched]))
            self._waiting.append((launched, ready))
            return
        begins = kind is HostWork and steps[0].name == LATE  # independent of how fast the hosts are
        host = np.array([s.host_ns for s in steps]) if begins else self._host([s.host_ns for s in steps])
        if kind is Synchronize:
            self._resolve()
            idle = np.maximum.reduce([self.clock, self._launcher, *self._free.values()])
            self.clock = idle + host
            return
        self.clock = self.clock + host
        if kind is Update:
            self._recorded[steps[0].records] = self.clock
        elif kind is Replay:
            ready = self._through_queue(self._host([s.launch_ns for s in steps])) + steps[0].start_ns
            self._waiting += [(launched, ready) for launched in zip(*(s.launches for s in steps), strict=True)]

    def _host(self, ns: list[int]) -> Any:
        return self._scaled(ns, self._host_scale)

    def _scaled(self, ns: list[int], scale: float) -> Any:
        """Whole nanoseconds of each rank."""
        array = self._np.array(ns)
        return array if scale == 1.0 else self._np.rint(array * scale).astype(self._np.int64)

    def _through_queue(self, launch_ns: Any) -> Any:
        """When the launch thread has handed the entry over; without one, when the Python thread is through."""
        if not self._threaded:
            return self.clock
        if len(self._begun) >= self._depth:
            self.clock = self._np.maximum(self.clock, self._begun[-self._depth])
        begin = self._np.maximum(self.clock, self._launcher)
        self._begun.append(begin)
        self._launcher = begin + launch_ns
        return self._launcher

    def _resolve(self) -> None:
        """Run the kernels issued so far: events they wait for are recorded by now."""
        np = self._np
        for launched, ready in self._waiting:
            first = launched[0]
            start = np.maximum(ready, self._free.get(first.stream, self._never) + first.gap_ns)
            for event in first.waits:
                start = np.maximum(start, self._recorded[event])
            if first.meet:
                start = np.full_like(start, start.max())
            free = start + self._scaled([launch.kernel.duration_ns for launch in launched], self._device_scale)
            for event in first.records:
                self._recorded[event] = free
            self._free[first.stream] = free
        self._waiting = []
