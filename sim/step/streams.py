"""The device in SimPy: FIFO streams, events, and kernels that share bandwidth and cores.

Streams. Kernels of a stream run one after the other in the order in which they were submitted. A kernel starts at

    max(ready, end of the kernel before on its stream + gap_ns, every event it waits for)

and what stands behind a waiting kernel waits too. When it ends, its events are recorded.

Sharing is a fluid model. Kernels that run together progress at max-min fair rates (`sim.step.sharing`), which change
only when a kernel starts or ends. A kernel that never meets an over-subscribed resource ends exactly `duration_ns`
after its start; any other at the next whole nanosecond, and never before. So each kernel sleeps for its own time alone,
and only one that was slowed on its way waits on. One timer stands for the next end of these; a change of the running
set outdates it by a version number, so no process is ever interrupted.

A device with one stream shares nothing, and its kernels depend on nothing but the queue, events and other ranks: there
the stream runs ahead of the clock as far as these allow and sleeps once for all the kernels on the way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import lru_cache

from simpy import Environment, Event
from simpy.events import Timeout

from sim.kernel.time import KernelTime
from sim.step.plan import Launch
from sim.step.schedule import Schedule
from sim.step.sharing import FULL_RATE, Shares, rates, shares

#: Before any time: the first kernel of a stream pays no gap.
NEVER = -(1 << 62)

#: The same kernels meet on every rank.
_rates = lru_cache(maxsize=4096)(rates)

Process = Generator[Event, None, None]


def now_ns(env: Environment) -> int:
    """The simulated time, ns."""
    now = env.now
    assert isinstance(now, int), "the clock is integer nanoseconds"
    return now


@dataclass(slots=True, eq=False)
class _Running:
    """A kernel in flight: `left` is what remains of it, in ns alone times FULL_RATE. slowed: whether its rate was ever
    below 1. done: triggers when it ends, for a kernel that was slowed."""

    kernel: KernelTime
    left: int
    rate: int = FULL_RATE
    slowed: bool = False
    done: Event | None = None
    shares: Shares | None = None


class SharedEngines:
    """HBM, cube, vector and AI CPU, shared by the kernels in flight."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._running: list[_Running] = []  # in order of start
        self._settled_ns = 0
        self._version = 0
        self._due_ns = NEVER  # when the timer of this version rings

    def run(self, kernel: KernelTime, duration_ns: int) -> Process:
        """Run `kernel` from now on; it takes `duration_ns` alone."""
        if not duration_ns:
            return
        self._settle()
        running = _Running(kernel, duration_ns * FULL_RATE)
        self._running.append(running)
        self._divide()
        yield Timeout(self._env, duration_ns)
        self._settle()
        self._divide()
        if running.left > 0:
            running.done = Event(self._env)
            yield running.done

    def _settle(self) -> None:
        """Bring every kernel in flight up to now; those that are through leave."""
        now = now_ns(self._env)
        elapsed, self._settled_ns = now - self._settled_ns, now
        if not elapsed or not self._running:
            return
        still: list[_Running] = []
        for running in self._running:
            running.left -= running.rate * elapsed
            if running.left > 0:
                still.append(running)
            elif running.done is not None:
                running.done.succeed()
        self._running = still

    def _divide(self) -> None:
        """Give every kernel in flight its rate, and set the timer to the next end of one that was slowed."""
        running = self._running
        if len(running) == 1:
            running[0].rate = FULL_RATE
        elif running:
            self._divide_fairly()
        due_ns = NEVER
        for one in running:
            # Who finds no core left stands still; those who hold the cores do not, so something always ends.
            if one.slowed and one.rate:
                end_ns = self._settled_ns - (-one.left // one.rate)
                due_ns = end_ns if due_ns == NEVER else min(due_ns, end_ns)
        if due_ns != self._due_ns:
            self._due_ns = due_ns
            self._version += 1
            if due_ns != NEVER:
                timer = Timeout(self._env, due_ns - self._settled_ns, self._version)
                assert timer.callbacks is not None
                timer.callbacks.append(self._ring)

    def _divide_fairly(self) -> None:
        wanted: list[Shares] = []
        for running in self._running:
            if running.shares is None:
                running.shares = shares(running.kernel)
            wanted.append(running.shares)
        for running, rate in zip(self._running, _rates(tuple(wanted)), strict=True):
            running.rate = rate
            running.slowed |= rate < FULL_RATE

    def _ring(self, timer: Event) -> None:
        if timer.value == self._version:
            self._settle()
            self._divide()


class Rendezvous:
    """Where ranks meet for each collective, all or neighbouring ones: it starts when the last of them arrives."""

    def __init__(self, env: Environment, ranks: int) -> None:
        self._env = env
        self._ranks = ranks
        #: By name and group: ranks that are still to come, and what they set off.
        self._open: dict[tuple[str, int], tuple[int, Event]] = {}

    def arrive(self, name: str, rank: int, group_ranks: int) -> Event:
        """`rank` is ready for collective `name` of its group of `group_ranks` ranks (0: all); the event triggers when
        all are."""
        size = group_ranks or self._ranks
        key = name, rank // size
        missing, event = self._open.pop(key, (size, Event(self._env)))
        if missing == 1:
            return event.succeed()
        self._open[key] = missing - 1, event
        return event

    def missing(self) -> dict[str, int]:
        """Collectives that some ranks wait in, and how many ranks have not come."""
        return {name: missing for (name, _), (missing, _) in self._open.items()}


class Device:
    """Streams and events on top of the shared engines. A stream exists from its first kernel on.

    durations: of kernel *n* in program order, alone, ns. played: where it leaves its start and end. ended: called at
    the end of kernels, with their number. alone: whether the plan has one stream.
    """

    def __init__(
        self,
        env: Environment,
        durations: list[int],
        schedule: Schedule,
        ended: Callable[[int], None],
        rendezvous: Rendezvous,
        rank: int,
        alone: bool,
    ) -> None:
        self._env = env
        self._rendezvous = rendezvous
        self._rank = rank
        self._durations = durations
        self._arrivals = schedule.arrivals
        self._engines = SharedEngines(env)
        self._times = schedule.kernels
        self._ended = ended
        self._alone = alone
        self._queues: dict[int, deque[tuple[int, Launch, int]]] = {}
        self._sleeping: dict[int, Event] = {}
        self._recorded: dict[str, int] = {}  # when, which may be later than now
        self._awaited: dict[str, Event] = {}
        #: For each stream that is blocked now: its first kernel and the event that it waits for.
        self.blocked: dict[int, tuple[Launch, str]] = {}

    def submit(self, number: int, launch: Launch, ready_ns: int) -> None:
        """Queue kernel `number` of the plan on its stream; it may start at `ready_ns` (now or later)."""
        stream = launch.stream
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = deque()
            self._env.process((self._lone_stream if self._alone else self._stream)(stream, queue))
        queue.append((number, launch, ready_ns))
        if sleeping := self._sleeping.pop(stream, None):
            sleeping.succeed()

    def record(self, event: str, ns: int) -> None:
        """Set `event` at `ns`, now or later; whoever waits for it goes on then."""
        self._recorded[event] = ns
        if awaited := self._awaited.pop(event, None):
            awaited.succeed()

    def _stream(self, stream: int, queue: deque[tuple[int, Launch, int]]) -> Process:
        env = self._env
        free_ns = NEVER
        while True:
            while not queue:
                self._sleeping[stream] = sleeping = Event(env)
                yield sleeping
            number, launch, ready_ns = queue.popleft()
            yield from self._until(max(ready_ns, free_ns + launch.gap_ns))
            if launch.waits or launch.rendezvous:
                yield from self._wait(number, launch)
            start_ns = now_ns(env)
            yield from self._engines.run(launch.kernel, self._durations[number])
            free_ns = now_ns(env)
            self._times[number] = start_ns, free_ns
            for event in launch.records:
                self.record(event, free_ns)
            self._ended(1)

    def _lone_stream(self, stream: int, queue: deque[tuple[int, Launch, int]]) -> Process:
        """As `_stream`, where no other stream slows its kernels: it is busy until `free_ns`, ahead of the clock."""
        env, recorded = self._env, self._recorded
        free_ns, through = NEVER, 0  # the last kernel's end, and kernels since the stream last slept
        while True:
            if not queue:
                if through:
                    yield from self._until(free_ns)
                    self._ended(through)
                    through = 0
                else:
                    self._sleeping[stream] = sleeping = Event(env)
                    yield sleeping
                continue
            number, launch, ready_ns = queue.popleft()
            start_ns = max(ready_ns, free_ns + launch.gap_ns)
            if launch.rendezvous or any(event not in recorded for event in launch.waits):
                yield from self._until(start_ns)
                self._ended(through)
                through = 0
                yield from self._wait(number, launch)
                start_ns = now_ns(env)
            for event in launch.waits:
                start_ns = max(start_ns, recorded[event])
            free_ns = start_ns + self._durations[number]
            self._times[number] = start_ns, free_ns
            for event in launch.records:
                recorded[event] = free_ns
            through += 1

    def _until(self, ns: int) -> Process:
        delay = ns - now_ns(self._env)
        if delay > 0:
            yield Timeout(self._env, delay)

    def _wait(self, number: int, launch: Launch) -> Process:
        """Until the events that a kernel waits for are there, and its ranks have met."""
        for event in launch.waits:
            if event not in self._recorded:
                self.blocked[launch.stream] = launch, event
                yield self._awaited.setdefault(event, Event(self._env))
                del self.blocked[launch.stream]
            yield from self._until(self._recorded[event])
        if launch.rendezvous:
            self._arrivals[number] = now_ns(self._env)
            yield self._rendezvous.arrive(launch.rendezvous, self._rank, launch.group_ranks)
