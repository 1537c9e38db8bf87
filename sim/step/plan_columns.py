"""The columns of plans that are made already, so that `sim.step.fluid` plays them instead of the SimPy engine."""

from __future__ import annotations

from collections.abc import Sequence

from sim.step.layout import EAGER, Layout
from sim.step.plan import Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.rank_plans import RankPlans


def columns_of(plans: Sequence[Plan]) -> Layout | None:
    """The columns of one rank's plan, or of those of ranks that differ in times alone; None where the host waits for
    the device within the step."""
    several = plans if isinstance(plans, RankPlans) else None
    if several is None and len(plans) > 1:
        return None
    plan = plans[0] if several is None else several.first
    waiting = [isinstance(step, Synchronize) for step in plan.steps]
    if not waiting[-1] or any(waiting[:-1]):
        return None
    laid = _Columns(plan, len(plans)).columns()
    if several is not None:
        laid.host_matrix, laid.launch_matrix, laid.kernel_matrix = (
            several.host_ns,
            several.launch_ns,
            several.kernel_ns,
        )
    return laid


class _Columns:
    """Fills a layout from a plan, step by step."""

    def __init__(self, plan: Plan, ranks: int) -> None:
        self._plan, self._to = plan, Layout(ranks, plan.launch_thread, plan.queue_depth)
        #: The host step of each parameter update, and the number of each event of a kernel.
        self._updates = {step.records: at for at, step in enumerate(plan.steps) if isinstance(step, Update)}
        self._events: dict[str, int] = {}

    def columns(self) -> Layout:
        to = self._to
        for at, step in enumerate(self._plan.steps):
            if isinstance(step, Issue):
                to.host_ns.append(step.launch.host_ns)
                self._entry(at, step.launch.launch_ns, EAGER, (step.launch,))
                continue
            to.host_ns.append(step.host_ns)
            if isinstance(step, Replay):
                self._entry(at, step.launch_ns, step.start_ns, step.launches)
        return to

    def _entry(self, at: int, launch_ns: int, start_ns: int, launches: Sequence[Launch]) -> None:
        """What one host step, number `at`, hands to the launch thread."""
        to = self._to
        to.launched += [len(to.entries)] * len(launches)
        to.entries.append(at)
        to.launch_ns.append(launch_ns)
        to.start_ns.append(start_ns)
        for launch in launches:
            self._kernel(launch)

    def _kernel(self, launch: Launch) -> None:
        to, number = self._to, len(self._to.durations_ns)
        to.durations_ns.append(launch.kernel.duration_ns)
        to.gaps_ns.append(launch.gap_ns)
        to.streams.append(launch.stream)
        to.kernels.append(launch.kernel)
        if launch.rendezvous:
            to.meets[number] = launch.group_ranks
        for event in launch.waits:
            if event in self._updates:
                to.gates[number] = self._updates[event]
            else:
                to.waits[number] = (*to.waits.get(number, ()), self._number(event))
        if launch.records:
            to.records[number] = tuple(self._number(event) for event in launch.records)

    def _number(self, event: str) -> int:
        return self._events.setdefault(event, len(self._events))
