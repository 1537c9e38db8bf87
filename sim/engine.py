"""The SimPy player of a plan: host threads, streams, events and shared bandwidth, in integer nanoseconds.

The Python thread walks the steps of the plan in order.

- Issue: busy for host_ns, then the kernel goes to the launch thread, or straight to its stream where there is none.
- Replay: busy for host_ns, then the graph goes the same way. Its kernels stand in their streams' queues from the moment
  it is launched, so that later work stays behind them; none starts before start_ns after that.
- Update: busy for host_ns, then its event is recorded. It rides a stream of its own and never enters the launch queue.
- HostWork: busy for host_ns.
- Synchronize: waits until the launch thread has nothing left and every kernel issued so far has ended, then busy for
  host_ns.

The launch thread takes entries first in, first out, is busy for launch_ns with each and hands it to the device. An
entry leaves the queue when the thread begins with it. The queue holds `queue_depth` entries; a Python thread that
finds it full waits until one leaves.

`sim.recurrence` computes the same without contention, far faster; a property test holds the two equal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from simpy import Environment, Event
from simpy.events import Timeout

from scenarios.timeline import Timeline
from sim.device import Device, Meeting, Process, now_ns
from sim.plan import Issue, Plan, Replay, Synchronize, Update
from sim.played import Played, SimulationStuck, check, launches, step_end, stuck, timeline
from sim.rank_plans import Times, timed


def play(plan: Plan) -> Timeline:
    """The timeline of one step.

    Raises SimulationStuck if the step can never end, and ValueError if the plan has no meaning (`sim.played.check`).
    """
    return timeline(plan, times(plan))


def times(plan: Plan) -> Played:
    """As `play`, without making spans."""
    return times_of_ranks((plan,))[0]


def times_of_ranks(plans: Sequence[Plan]) -> list[Played]:
    """One step of several ranks, each with its own host and device, that meet in their collectives.

    Raises as `play` does; ranks that do not meet in the same collectives are stuck.
    """
    env = Environment()
    meeting = Meeting(env, len(plans))
    ranks = list(timed(plans))
    for plan in {id(plan): plan for plan, _ in ranks}.values():
        check(plan)
    hosts = [_Host(env, plan, times, meeting) for plan, times in ranks]
    env.run()
    for rank, ((plan, _), host) in enumerate(zip(ranks, hosts, strict=True)):
        if host.outstanding:
            error = stuck(plan, host.device.blocked, host.synchronizing, host.outstanding)
            waits = ", ".join(f"{name!r} for {n} ranks" for name, n in sorted(meeting.missing().items()))
            raise SimulationStuck(f"rank {rank}: {error}; collectives wait: {waits}") if waits else error
        host.played.end_ns = step_end(host.played)
    return [host.played for host in hosts]


def one_stream(plan: Plan) -> bool:
    """Whether no kernel can meet another on the device."""
    return len({launch.stream for launch in launches(plan)}) <= 1


class _Host:
    """Python thread and launch thread of one rank, and the device that they feed."""

    def __init__(self, env: Environment, plan: Plan, times: Times, meeting: Meeting) -> None:
        self._env = env
        self._plan = plan
        self._times = times
        self.played = Played([], [], [(0, 0)] * len(times.kernels))
        self.device = Device(env, times.kernels, self.played, self._finish, meeting, one_stream(plan))
        #: Kernels issued and not ended, and entries that the launch thread has not finished.
        self.outstanding = 0
        #: Name of the Synchronize step in which the Python thread waits.
        self.synchronizing = ""
        self._issued = 0  # kernels, in program order
        self._queue: deque[tuple[Issue | Replay, int]] = deque()
        self._room: Event | None = None
        self._work: Event | None = None
        self._drained: Event | None = None
        env.process(self._python_thread())
        if plan.launch_thread:
            env.process(self._launch_thread())

    def _python_thread(self) -> Process:
        env = self._env
        host = self.played.host
        for step, host_ns in zip(self._plan.steps, self._times.host, strict=True):
            begin_ns = now_ns(env)
            if isinstance(step, Synchronize):
                yield from self._drain(step.name)
            if host_ns:
                yield Timeout(env, host_ns)
            host.append((begin_ns, now_ns(env)))
            if isinstance(step, Update):
                self.device.record(step.records)
            elif isinstance(step, Issue | Replay):
                first = self._issued
                kernels = 1 if isinstance(step, Issue) else len(step.launches)
                self._issued += kernels
                self.outstanding += kernels
                if not self._plan.launch_thread:
                    self._submit(step, first)
                    continue
                self.outstanding += 1
                while len(self._queue) >= self._plan.queue_depth:
                    self._room = Event(env)
                    yield self._room
                self._queue.append((step, first))
                if self._work is not None:
                    self._work.succeed()
                    self._work = None

    def _drain(self, name: str) -> Process:
        if self.outstanding:
            self.synchronizing = name
            self._drained = Event(self._env)
            yield self._drained
            self.synchronizing = ""

    def _launch_thread(self) -> Process:
        env = self._env
        queue = self._queue
        for launch_ns in self._times.launch:
            while not queue:
                self._work = Event(env)
                yield self._work
            step, first = queue.popleft()
            if self._room is not None:
                self._room.succeed()
                self._room = None
            begin_ns = now_ns(env)
            if launch_ns:
                yield Timeout(env, launch_ns)
            self.played.launch.append((begin_ns, now_ns(env)))
            self._submit(step, first)
            self._finish(1)

    def _submit(self, step: Issue | Replay, first: int) -> None:
        """Hand a kernel or a whole graph to the device now; `first` is the number of its first kernel."""
        now = now_ns(self._env)
        if isinstance(step, Issue):
            self.device.submit(first, step.launch, now)
            return
        for number, launch in enumerate(step.launches, first):
            self.device.submit(number, launch, now + step.start_ns)

    def _finish(self, count: int) -> None:
        """Kernels have ended, or the launch thread is through with an entry."""
        self.outstanding -= count
        if not self.outstanding and self._drained is not None:
            self._drained.succeed()
            self._drained = None
