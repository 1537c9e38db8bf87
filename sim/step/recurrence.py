"""The max-plus player of a plan: the answer of `sim.step.engine` without contention, with no event loop.

Where no resource is over-subscribed, every time of a step is a maximum of earlier times plus a constant. The host needs
nothing from the device but at a Synchronize, so it is walked once, and the kernels issued so far are resolved at each
Synchronize and at the end: a stream goes on until its first kernel misses an event, and again when that is recorded.
Updates that follow the replay that waits for them are known by then.

Kernels that run together and want more of a resource than there is are beyond it, and it says so: `play` and `total_ns`
raise Contended, `quick` sets a flag next to a lower bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from scenarios.records import dataclass
from scenarios.timeline import Timeline, length_ns, union_ns
from sim.step.plan import Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.schedule import Interval, Schedule, check, launches, step_end, stuck, timeline
from sim.step.sharing import Shares, contended, shares

#: Before any time: the first kernel of a stream pays no gap.
_NEVER = -(1 << 62)


class Contended(ValueError):
    """Kernels that run together over-subscribe a resource; only `sim.step.engine` can play this plan."""


@dataclass(frozen=True, slots=True)
class Quick:
    """A step in three numbers. contended: the times are lower bounds, and the engine's are greater or equal.

    total_ns: length of the step. computing_ns: the union of its kernels on streams and on the AI CPU.
    """

    total_ns: int
    computing_ns: int
    contended: bool


def play(plan: Plan) -> Timeline:
    """The timeline of one step, equal to the engine's byte for byte.

    Raises Contended, SimulationStuck if the step can never end, and ValueError if the plan has no meaning.
    """
    schedule = times(plan)
    _refuse_contention(plan, schedule)
    return timeline(plan, schedule)


def total_ns(plan: Plan) -> int:
    """The length of the step, ns. Raises as `play` does."""
    schedule = times(plan)
    _refuse_contention(plan, schedule)
    return schedule.end_ns


def quick(plan: Plan) -> Quick:
    """Total and computing time of the step. Raises as `play` does, but for Contended."""
    schedule = times(plan)
    return Quick(schedule.end_ns, length_ns(union_ns(schedule.kernels)), contention(plan, schedule) is not None)


def _refuse_contention(plan: Plan, schedule: Schedule) -> None:
    if (launch := contention(plan, schedule)) is not None:
        raise Contended(
            f"{launch.name} on stream {launch.stream} shares a resource that is used up; play it with sim.step.engine"
        )


def contention(plan: Plan, schedule: Schedule) -> Launch | None:
    """The first kernel, in order of start, that makes the kernels in flight want more of a resource than there is."""
    if not _several_streams(plan):
        return None
    flying: list[tuple[int, Shares]] = []
    in_order = sorted(zip(schedule.kernels, launches(plan), strict=True), key=lambda timed: timed[0])
    for (start_ns, end_ns), launch in in_order:
        if end_ns > start_ns:
            flying = [other for other in flying if other[0] > start_ns]
            flying.append((end_ns, shares(launch.kernel)))
            if len(flying) > 1 and contended([wanted for _, wanted in flying]):
                return launch
    return None


def _several_streams(plan: Plan) -> bool:
    numbers = (launch.stream for launch in launches(plan))
    first = next(numbers, 0)
    return any(number != first for number in numbers)


def times(plan: Plan) -> Schedule:
    """Times of all steps, launches and kernels, ns, as if no kernel slowed another; a lower bound where some do."""
    check(plan)
    schedule = Schedule([], [], [])
    host, entries = schedule.host, schedule.launch
    streams = _Streams(schedule.kernels, schedule.arrivals)
    threaded, depth = plan.launch_thread, plan.queue_depth
    clock = launcher = 0  # until when the Python thread and the launch thread are busy
    for step in plan.steps:
        start = clock
        if isinstance(step, Issue):
            clock += step.launch.host_ns
            launch_ns, start_ns = step.launch.launch_ns, 0
        elif isinstance(step, Replay):
            clock += step.host_ns
            launch_ns, start_ns = step.launch_ns, step.start_ns
        else:
            if isinstance(step, Synchronize):
                idle = streams.resolve()
                if streams.pending:
                    raise stuck(plan, streams.blocked(), step.name, streams.pending)
                clock = max(clock, launcher, idle)
            clock += step.host_ns
            host.append((start, clock))
            if isinstance(step, Update):
                streams.recorded[step.records] = clock
            continue
        host.append((start, clock))
        ready = clock
        if threaded:
            # The entry `depth` places before must have left the queue.
            if len(entries) >= depth:
                clock = max(clock, entries[-depth][0])
            start = max(clock, launcher)
            ready = launcher = start + launch_ns
            entries.append((start, launcher))
        if isinstance(step, Issue):
            streams.submit(step.launch, ready)
        else:
            for launch in step.launches:
                streams.submit(launch, ready + start_ns)
    streams.resolve()
    if streams.pending:
        raise stuck(plan, streams.blocked(), "", streams.pending)
    schedule.end_ns = step_end(schedule)
    return schedule


class _Streams:
    """Kernels queued on FIFO streams, resolved as far as their events allow."""

    def __init__(self, kernels: list[Interval], arrivals: dict[int, int]) -> None:
        self._arrivals = arrivals
        self.recorded: dict[str, int] = {}
        self.pending = 0  # kernels submitted and not resolved
        self._kernels = kernels
        self._queues: dict[int, deque[tuple[int, Launch, int]]] = {}
        self._free: dict[int, int] = {}
        self._idle = 0

    def submit(self, launch: Launch, ready_ns: int) -> None:
        """The next kernel in program order; it may start at `ready_ns`."""
        queue = self._queues.get(launch.stream)
        if queue is None:
            queue = self._queues[launch.stream] = deque()
            self._free[launch.stream] = _NEVER
        queue.append((len(self._kernels), launch, ready_ns))
        self._kernels.append((0, 0))
        self.pending += 1

    def resolve(self) -> int:
        """Give every kernel that can ever run its time; return the end of the last one so far."""
        able = list(self._queues)
        waiting: dict[str, list[int]] = {}
        while able:
            stream = able.pop()
            missing = self._advance(stream, waiting, able)
            if missing:
                waiting.setdefault(missing, []).append(stream)
        return self._idle

    def _advance(self, stream: int, waiting: dict[str, list[int]], able: list[int]) -> str:
        """Run a stream until it is empty, or until its first kernel misses the event that is returned."""
        queue, free, recorded, kernels = self._queues[stream], self._free[stream], self.recorded, self._kernels
        resolved = len(queue)
        missing = ""
        while queue:
            number, launch, start = queue[0]
            if free + launch.gap_ns > start:
                start = free + launch.gap_ns
            if launch.waits:
                missing = _missing(launch, recorded)
                if missing:
                    break
                start = max(start, *[recorded[event] for event in launch.waits])
            queue.popleft()
            if launch.rendezvous:  # one rank alone is the last to arrive
                self._arrivals[number] = start
            free = start + launch.kernel.duration_ns
            kernels[number] = (start, free)
            for event in launch.records:
                recorded[event] = free
                able += waiting.pop(event, ())
        self.pending -= resolved - len(queue)
        self._free[stream] = free
        self._idle = max(self._idle, free)
        return missing

    def blocked(self) -> dict[int, tuple[Launch, str]]:
        """For each stream that cannot go on: its first kernel and the event that it misses."""
        heads = {stream: queue[0][1] for stream, queue in self._queues.items() if queue}
        return {stream: (launch, _missing(launch, self.recorded)) for stream, launch in heads.items()}


def _missing(launch: Launch, recorded: Mapping[str, int]) -> str:
    """The first event that the kernel waits for and nobody has recorded yet; empty if there is none."""
    return next((event for event in launch.waits if event not in recorded), "")
