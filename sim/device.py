"""The device in SimPy: FIFO streams, events, and kernels that share bandwidth and cores.

Streams. Kernels of a stream run one after the other in the order in which they were submitted. A kernel starts at

    max(ready, end of the kernel before on its stream + gap_ns, every event it waits for)

and what stands behind a waiting kernel waits too. When it ends, its events are recorded.

Sharing is a fluid model. Kernels that run together progress at max-min fair rates (`sim.sharing`), which change only
when a kernel starts or ends. A kernel that never meets an over-subscribed resource ends exactly `duration_ns` after
its start; any other at the next whole nanosecond. One timer stands for the next end; a change of the running set
outdates it by a version number, so no process is ever interrupted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

from simpy import Environment, Event
from simpy.events import Timeout

from sim.plan import KernelTime, Launch
from sim.played import Interval
from sim.sharing import FULL_RATE, Shares, rates, shares

#: Before any time: the first kernel of a stream pays no gap.
NEVER = -(1 << 62)

Process = Generator[Event, None, None]


def now_ns(env: Environment) -> int:
    """The simulated time, ns."""
    now = env.now
    assert isinstance(now, int), "the clock is integer nanoseconds"
    return now


@dataclass(slots=True, eq=False)
class _Running:
    """A kernel in flight: `left` is what remains of it, in ns alone times FULL_RATE."""

    kernel: KernelTime
    done: Event
    left: int
    rate: int = FULL_RATE
    shares: Shares | None = None


class SharedEngines:
    """HBM, cube, vector and AI CPU, shared by the kernels in flight."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._running: list[_Running] = []  # in order of start
        self._settled_ns = 0
        self._version = 0
        self._due_ns = NEVER  # when the timer of this version rings

    def run(self, kernel: KernelTime) -> Event:
        """Start `kernel` now; the event triggers when it ends."""
        done = Event(self._env)
        if kernel.duration_ns == 0:
            return done.succeed()
        self._settle()
        self._running.append(_Running(kernel, done, kernel.duration_ns * FULL_RATE))
        self._divide()
        return done

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
            else:
                running.done.succeed()
        self._running = still

    def _divide(self) -> None:
        """Give every kernel in flight its rate, and set the timer to the next end."""
        running = self._running
        if not running:
            return
        if len(running) == 1:
            running[0].rate = FULL_RATE
        else:
            self._divide_fairly()
        # Who finds no core left stands still; those who hold the cores do not, so something always ends.
        due_ns = self._settled_ns + min(-(-r.left // r.rate) for r in running if r.rate)
        if due_ns != self._due_ns:
            self._due_ns = due_ns
            self._version += 1
            timer = Timeout(self._env, due_ns - self._settled_ns, self._version)
            assert timer.callbacks is not None
            timer.callbacks.append(self._ring)

    def _divide_fairly(self) -> None:
        wanted: list[Shares] = []
        for running in self._running:
            if running.shares is None:
                running.shares = shares(running.kernel)
            wanted.append(running.shares)
        for running, rate in zip(self._running, rates(wanted), strict=True):
            running.rate = rate

    def _ring(self, timer: Event) -> None:
        if timer.value == self._version:
            self._settle()
            self._divide()


class Meeting:
    """Where `ranks` ranks meet for each collective: it starts when the last of them arrives."""

    def __init__(self, env: Environment, ranks: int) -> None:
        self._env = env
        self._ranks = ranks
        self._open: dict[str, tuple[int, Event]] = {}

    def arrive(self, name: str) -> Event:
        """One rank is ready for collective `name`; the event triggers when all are."""
        count, event = self._open.pop(name, (0, Event(self._env)))
        count += 1
        if count == self._ranks:
            return event.succeed()
        self._open[name] = count, event
        return event

    def missing(self) -> dict[str, int]:
        """Collectives that some ranks wait in, and how many ranks have not come."""
        return {name: self._ranks - count for name, (count, _) in self._open.items()}


class Device:
    """Streams and events on top of the shared engines. A stream exists from its first kernel on.

    times: where kernel *n* in program order leaves its start and end. ended: called at each end of a kernel.
    """

    def __init__(
        self,
        env: Environment,
        times: list[Interval],
        ended: Callable[[], None],
        meeting: Meeting,
        arrivals: dict[int, int],
    ) -> None:
        self._env = env
        self._meeting = meeting
        self._arrivals = arrivals
        self._engines = SharedEngines(env)
        self._times = times
        self._ended = ended
        self._queues: dict[int, deque[tuple[int, Launch, int]]] = {}
        self._sleeping: dict[int, Event] = {}
        self._recorded: set[str] = set()
        self._awaited: dict[str, Event] = {}
        #: For each stream that is blocked now: its first kernel and the event that it waits for.
        self.blocked: dict[int, tuple[Launch, str]] = {}

    def submit(self, number: int, launch: Launch, ready_ns: int) -> None:
        """Queue kernel `number` of the plan on its stream; it may start at `ready_ns` (now or later)."""
        stream = launch.stream
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = deque()
            self._env.process(self._stream(stream, queue))
        queue.append((number, launch, ready_ns))
        if sleeping := self._sleeping.pop(stream, None):
            sleeping.succeed()

    def record(self, event: str) -> None:
        """Set `event` now; whoever waits for it goes on."""
        self._recorded.add(event)
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
            delay = max(ready_ns, free_ns + launch.gap_ns) - now_ns(env)
            if delay > 0:
                yield Timeout(env, delay)
            for event in launch.waits:
                if event not in self._recorded:
                    self.blocked[stream] = launch, event
                    yield self._awaited.setdefault(event, Event(env))
                    del self.blocked[stream]
            if launch.meet:
                self._arrivals[number] = now_ns(env)
                yield self._meeting.arrive(launch.meet)
            start_ns = now_ns(env)
            yield self._engines.run(launch.kernel)
            free_ns = now_ns(env)
            self._times[number] = start_ns, free_ns
            for event in launch.records:
                self.record(event)
            self._ended()
