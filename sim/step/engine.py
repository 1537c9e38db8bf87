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
entry leaves the queue when the thread starts with it. The queue holds `queue_depth` entries; a Python thread that
finds it full waits until one leaves.

The two threads need nothing from the device but at a Synchronize. Until then one process keeps the times until which
they are busy and runs ahead of the clock: the device gets kernels and events with the times from which they count.

`sim.step.recurrence` computes the same without contention and without events; a property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from simpy import Environment, Event

from scenarios.timeline import Timeline
from sim.step.plan import Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.rank_plans import Times, timed
from sim.step.schedule import Schedule, SimulationStuck, check, launches, step_end, stuck, timeline
from sim.step.streams import Device, Process, Rendezvous, now_ns


def play(plan: Plan) -> Timeline:
    """The timeline of one step.

    Raises SimulationStuck if the step can never end, and ValueError if the plan has no meaning
    (`sim.step.schedule.check`).
    """
    return timeline(plan, times(plan))


def times(plan: Plan) -> Schedule:
    """As `play`, without making spans."""
    return times_of_ranks((plan,))[0]


def times_of_ranks(plans: Sequence[Plan]) -> list[Schedule]:
    """One step of several ranks, each with its own host and device, that meet in their collectives.

    Raises as `play` does; ranks that do not meet in the same collectives are stuck.
    """
    env = Environment()
    rendezvous = Rendezvous(env, len(plans))
    ranks = list(timed(plans))
    for plan in {id(plan): plan for plan, _ in ranks}.values():
        check(plan)
    hosts = [_Host(env, plan, times, rendezvous, rank) for rank, (plan, times) in enumerate(ranks)]
    env.run()
    for rank, ((plan, _), host) in enumerate(zip(ranks, hosts, strict=True)):
        if host.outstanding:
            error = stuck(plan, host.device.blocked, host.synchronizing, host.outstanding)
            waits = ", ".join(f"{name!r} for {n} ranks" for name, n in sorted(rendezvous.missing().items()))
            raise SimulationStuck(f"rank {rank}: {error}; collectives wait: {waits}") if waits else error
        host.schedule.end_ns = step_end(host.schedule)
    return [host.schedule for host in hosts]


def one_stream(plan: Plan) -> bool:
    """Whether no kernel can meet another on the device."""
    return len({launch.stream for launch in launches(plan)}) <= 1


class _Host:
    """Python thread and launch thread of one rank, and the device that they feed."""

    def __init__(self, env: Environment, plan: Plan, times: Times, rendezvous: Rendezvous, rank: int) -> None:
        self._env = env
        self._plan = plan
        self._times = times
        self.schedule = Schedule([], [], [(0, 0)] * len(times.kernels))
        self.device = Device(
            env=env,
            durations=times.kernels,
            schedule=self.schedule,
            ended=self._ended,
            rendezvous=rendezvous,
            rank=rank,
            alone=one_stream(plan),
        )
        #: Kernels issued and not ended.
        self.outstanding = 0
        #: Name of the Synchronize step in which the Python thread waits.
        self.synchronizing = ""
        self._issued = 0  # kernels, in program order
        self._python_ns = self._launch_ns = 0  # until when the threads are busy
        self._drained: Event | None = None
        env.process(self._threads())

    def _threads(self) -> Process:
        """Both threads: they wait for the device at a Synchronize and nowhere else, and run ahead of the clock."""
        host, launch_times = self.schedule.host, iter(self._times.launch)
        for step, host_ns in zip(self._plan.steps, self._times.host, strict=True):
            begin_ns = self._python_ns
            if isinstance(step, Synchronize):
                yield from self._drain(step.name)
            self._python_ns += host_ns
            host.append((begin_ns, self._python_ns))
            if isinstance(step, Update):
                self.device.record(step.records, self._python_ns)
            elif isinstance(step, Issue | Replay):
                self._submit(step, self._through_queue(next(launch_times)))

    def _drain(self, name: str) -> Process:
        if self.outstanding:
            self.synchronizing = name
            self._drained = Event(self._env)
            yield self._drained
            self.synchronizing = ""
        self._python_ns = max(self._python_ns, self._launch_ns, now_ns(self._env))

    def _through_queue(self, launch_ns: int) -> int:
        """When an entry that the Python thread hands over now has passed the launch thread."""
        if not self._plan.launch_thread:
            return self._python_ns
        entries, depth = self.schedule.launch, self._plan.queue_depth
        if len(entries) >= depth:  # the entry that many places before must have left the queue
            self._python_ns = max(self._python_ns, entries[-depth][0])
        begin_ns = max(self._python_ns, self._launch_ns)
        self._launch_ns = begin_ns + launch_ns
        entries.append((begin_ns, self._launch_ns))
        return self._launch_ns

    def _submit(self, step: Issue | Replay, ready_ns: int) -> None:
        """Hand a kernel or a whole graph to the device."""
        if isinstance(step, Issue):
            inside: tuple[Launch, ...] = (step.launch,)
        else:
            inside, ready_ns = step.launches, ready_ns + step.start_ns
        self.outstanding += len(inside)
        for launch in inside:
            self.device.submit(self._issued, launch, ready_ns)
            self._issued += 1

    def _ended(self, count: int) -> None:
        """Kernels have ended."""
        self.outstanding -= count
        if not self.outstanding and self._drained is not None:
            self._drained.succeed()
            self._drained = None
