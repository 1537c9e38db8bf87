"""The length of a step whose kernels share the device, from its columns: what `sim.step.engine` gives, without SimPy.

Kernels in flight progress at max-min fair rates (`sim.step.sharing`), which change only where one starts or ends; ranks
meet in their collectives. A rank that waits for no other goes on alone, since nothing else can change what it does; one
that waits is looked at in order of time, from a heap. Where no two kernels of a rank can meet, a stream runs ahead of
the others up to the next moment at which they could. A test holds the end of the step equal to the engine's, to the
nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush

from sim.kernel.time import KernelTime
from sim.step.layout import NEVER, Layout
from sim.step.lengths import threads
from sim.step.schedule import SimulationStuck
from sim.step.sharing import FULL_RATE, Shares, rates, shares

#: Later than any time: a start that is not known yet.
UNKNOWN = 1 << 62

_rates = lru_cache(maxsize=4096)(rates)

#: What a kernel waits for: a host step or -1, events, and whether other ranks.
Bound = tuple[int, tuple[int, ...], bool]


def end_ns(laid: Layout, host: float = 1.0, device: float = 1.0) -> int:
    """Length of the step of rank 0, ns, with host and kernel times of one rank multiplied.

    Raises SimulationStuck where ranks or streams wait for what never comes.
    """
    step = _Step(laid, host, device)
    return step.end_ns()


class _Step:
    """What all ranks share: the queues of streams, and the collectives in which ranks wait."""

    def __init__(self, laid: Layout, host: float, device: float) -> None:
        self.laid = laid
        queues: dict[int, list[int]] = {}
        for number, stream in enumerate(laid.streams):
            queues.setdefault(stream, []).append(number)
        self.queues, self.streams = list(queues.values()), list(queues)
        #: Of each kernel: the number of what it takes of the device; and those shares by number.
        self.shares: list[int] = []
        self.distinct: list[Shares] = []
        self._number_shares()
        #: Of each set of kernels in flight, by the numbers of their shares: their rates.
        self.known_rates: dict[tuple[int, ...], list[int]] = {}
        #: Of each kernel: what it waits for besides the one before and its launch, as (host step or -1, events, whether
        #: ranks meet in it), or None; and the events that it records.
        self.bound: list[Bound | None] = [None] * len(laid.streams)
        for number in {*laid.gates, *laid.waits, *laid.meets}:
            self.bound[number] = laid.gates.get(number, -1), laid.waits.get(number, ()), number in laid.meets
        self.records: list[tuple[int, ...]] = [()] * len(laid.streams)
        for number, events in laid.records.items():
            self.records[number] = events
        #: By kernel and group: ranks that have arrived, and when the last of them did.
        self.arrived: dict[tuple[int, int], tuple[list[tuple[_Rank, int]], int]] = {}
        self.heap: list[tuple[int, int]] = []
        self.ranks = [_Rank(self, number, *times) for number, times in enumerate(_times(laid, host, device))]

    def _number_shares(self) -> None:
        known: dict[int, int] = {}
        numbers: dict[Shares, int] = {}
        for kernel in self.laid.kernels:
            if id(kernel) not in known:
                known[id(kernel)] = numbers.setdefault(shares_of(kernel), len(numbers))
            self.shares.append(known[id(kernel)])
        self.distinct = list(numbers)

    def rates_of(self, taken: tuple[int, ...]) -> list[int]:
        """The rates of kernels that run together, by the numbers of their shares."""
        known = self.known_rates[taken] = _rates(tuple(self.distinct[number] for number in taken))
        return known

    def end_ns(self) -> int:
        for rank in self.ranks:
            rank.find_starts(range(len(self.queues)))
        for rank in self.ranks:
            rank.push()
        heap, ranks = self.heap, self.ranks
        while heap:
            now, number = heappop(heap)
            rank = ranks[number]
            if now == rank.due:
                rank.go_on()
        if not all(rank.finished for rank in ranks):
            raise SimulationStuck("the simulation is stuck: kernels wait for an event or a rank that never comes")
        first = ranks[0]
        return max(first.through, self.laid.busy_ns, *first.free) + first.last_ns

    def arrive(self, rank: _Rank, stream: int, number: int, ns: int) -> int:
        """`rank` is ready for a collective at `ns`; when it starts, UNKNOWN before the last of its group has come."""
        size = self.laid.meets[number] or len(self.ranks)
        if size == 1:
            return ns
        key = number, rank.number // size
        waiting, last = self.arrived.pop(key, ([], 0))
        last = max(last, ns)
        if len(waiting) + 1 < size:
            waiting.append((rank, stream))
            self.arrived[key] = waiting, last
            return UNKNOWN
        for other, its in waiting:
            other.when[its] = last
            other.meeting -= 1
            other.push()
        return last


@lru_cache(maxsize=65536)
def shares_of(kernel: KernelTime) -> Shares:
    """`sim.step.sharing.shares`, remembered."""
    return shares(kernel)


class _Rank:
    """One rank's device. Of each stream: at, its next kernel or the one in flight, as a place in its queue; free, until
    when it was busy; when, at which moment that kernel starts or, in flight, ends (UNKNOWN while it waits).

    flying: streams whose kernel is in flight. Of these, left: what was left of it at `since`, in nanoseconds times
    FULL_RATE, and its rate. meeting: streams that wait for other ranks. due: when something happens next here.
    """

    def __init__(
        self,
        step: _Step,
        number: int,
        host_ends: Sequence[int],
        through: int,
        ready: Sequence[int],
        durations: Sequence[int],
        last_ns: int,
    ) -> None:
        self.step, self.number = step, number
        self.through, self.last_ns = through, last_ns
        self._ended, self._durations = host_ends, durations
        #: Of each kernel: when it has been launched.
        self._ready = [ready[entry] for entry in step.laid.launched]
        streams = len(step.queues)
        self.at = [0] * streams
        self.free = [NEVER if stream else step.laid.busy_ns for stream in step.streams]
        self.when = [UNKNOWN] * streams
        self.flying: list[int] = []
        self._left = [0] * streams
        self._rate = [FULL_RATE] * streams
        self._since = [0] * streams
        self._blocked: list[int] = []
        self.meeting = 0
        self.due = UNKNOWN
        self._recorded: dict[int, int] = {}

    @property
    def finished(self) -> bool:
        """Whether all kernels have run."""
        return all(at == len(queue) for at, queue in zip(self.at, self.step.queues, strict=True))

    def push(self) -> None:
        """Set when this rank has to be looked at again."""
        self.due = min(self.when)
        if self.due < UNKNOWN:
            heappush(self.step.heap, (self.due, self.number))

    def find_starts(self, streams: Sequence[int]) -> None:
        """When the next kernels of these idle streams start, as far as it is known."""
        for stream in streams:
            self.when[stream] = self._start(stream)

    def _start(self, stream: int) -> int:
        step = self.step
        queue, at = step.queues[stream], self.at[stream]
        if at == len(queue):
            return UNKNOWN
        number = queue[at]
        start, launched = self.free[stream] + step.laid.gaps_ns[number], self._ready[number]
        start = launched if launched > start else start
        bound = step.bound[number]
        return self._bound_start(stream, number, start, bound) if bound else start

    def _bound_start(self, stream: int, number: int, start: int, bound: Bound) -> int:
        """When a kernel starts that waits for more than the one before and its launch, which leave it to `start`."""
        gate, waits, meets = bound
        if gate >= 0 and self._ended[gate] > start:
            start = self._ended[gate]
        for event in waits:
            recorded = self._recorded.get(event)
            if recorded is None:
                self._blocked.append(stream)
                return UNKNOWN
            start = recorded if recorded > start else start
        if meets:
            start = self.step.arrive(self, stream, number, start)
            self.meeting += start == UNKNOWN
        return start

    def go_on(self) -> None:
        """All that happens from `due` on, until this rank waits for one that may be behind it.

        One kernel starts or ends at a time. Those of one moment may come in any order: rates that last for no time
        change nothing.
        """
        step, heap, when, flying = self.step, self.step.heap, self.when, self.flying
        queues, durations, left, rate, since = step.queues, self._durations, self._left, self._rate, self._since
        while (now := min(when)) < UNKNOWN:
            stream = when.index(now)
            if self.meeting:
                if heap and heap[0][0] < now:
                    break
            elif not flying:
                when[stream] = UNKNOWN
                if self._run_alone(stream, now, min(when)):
                    continue
                when[stream] = now
            if stream in flying:
                flying.remove(stream)
                self._end(stream, now)
            elif duration := durations[queues[stream][self.at[stream]]]:
                flying.append(stream)
                left[stream], rate[stream], since[stream] = duration * FULL_RATE, FULL_RATE, now
                when[stream] = now + duration
            else:
                self._end(stream, now)
                continue
            if len(flying) > 1:
                self._share(now)
            elif flying and rate[other := flying[0]] != FULL_RATE:
                self._set_rate(other, now, FULL_RATE)
        self.push()

    def _end(self, stream: int, now: int) -> None:
        """The kernel of `stream` is through."""
        step, queue, at = self.step, self.step.queues[stream], self.at[stream]
        self.free[stream] = now
        self.at[stream] = at + 1
        if events := step.records[queue[at]]:
            for event in events:
                self._recorded[event] = now
            if self._blocked:
                blocked, self._blocked = self._blocked, []
                self.find_starts(blocked)
        if at + 1 == len(queue):
            self.when[stream] = UNKNOWN
            return
        number = queue[at + 1]
        start, launched = now + step.laid.gaps_ns[number], self._ready[number]
        start = launched if launched > start else start
        bound = step.bound[number]
        self.when[stream] = self._bound_start(stream, number, start, bound) if bound else start

    def _run_alone(self, stream: int, start: int, horizon: int) -> bool:
        """Play `stream`, whose next kernel starts at `start`, as long as its kernels end before another stream may
        start (`horizon`); whether any did."""
        step, queue, durations, ready = self.step, self.step.queues[stream], self._durations, self._ready
        bound, records, gaps = step.bound, step.records, step.laid.gaps_ns
        at = first = self.at[stream]
        count = len(queue)
        while (end := start + durations[number := queue[at]]) <= horizon:
            at += 1
            if at == count or records[number] or bound[following := queue[at]]:
                self.at[stream] = at - 1
                self._end(stream, end)
                return True
            start, launched = end + gaps[following], ready[following]
            start = launched if launched > start else start
        self.at[stream], self.when[stream] = at, start
        return at > first

    def _share(self, now: int) -> None:
        """Give every kernel in flight its rate."""
        step, queues, at = self.step, self.step.queues, self.at
        taken = tuple([step.shares[queues[stream][at[stream]]] for stream in self.flying])
        rates_now = step.known_rates.get(taken) or step.rates_of(taken)
        for stream, rate in zip(self.flying, rates_now, strict=True):
            if rate != self._rate[stream]:
                self._set_rate(stream, now, rate)

    def _set_rate(self, stream: int, now: int, rate: int) -> None:
        """The kernel in flight of `stream` goes on at `rate`."""
        self._left[stream] = left = self._left[stream] - self._rate[stream] * (now - self._since[stream])
        self._since[stream], self._rate[stream] = now, rate
        self.when[stream] = now - (-left // rate) if rate else UNKNOWN


def _times(laid: Layout, host: float, device: float) -> list[tuple[list[int], int, list[int], list[int], int]]:
    """Of each rank: its host's and launches' times as `sim.step.lengths.threads` gives them, its kernels', and how long
    the host takes at the end of the step."""
    if laid.hosts is None or laid.kernel_matrix is None:
        host_ns = [round(ns * host) for ns in laid.host_ns]
        launch_ns = [round(ns * host) for ns in laid.launch_ns] if laid.threaded else []
        durations = laid.durations_ns if device == 1.0 else [max(1, round(ns * device)) for ns in laid.durations_ns]
        return [(*threads(laid, host_ns[:-1], launch_ns), durations, host_ns[-1])]
    columns = (matrix.T.tolist() for matrix in (laid.hosts.host_ns, laid.hosts.launch_ns, laid.kernel_matrix))
    return [
        (*threads(laid, host_ns[:-1], launch_ns), durations, host_ns[-1])
        for host_ns, launch_ns, durations in zip(*columns, strict=True)
    ]
