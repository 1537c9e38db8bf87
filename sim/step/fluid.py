"""The length of a step whose kernels share the device, from its columns: what `sim.step.engine` gives, without SimPy.

Kernels in flight progress at max-min fair rates (`sim.step.sharing`), which change only where one starts or ends; ranks
meet in their collectives. Events are taken from a heap, one rank at a time. While the kernels of a rank cannot meet
another one, its stream runs ahead of the others up to the next moment at which they could. A test holds the end of the
step equal to the engine's, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush

from sim.kernel.time import KernelTime
from sim.step.layout import Layout
from sim.step.lengths import NEVER, threads
from sim.step.schedule import SimulationStuck
from sim.step.sharing import FULL_RATE, Shares, rates, shares

#: Later than any time: a start that is not known yet.
UNKNOWN = 1 << 62

_rates = lru_cache(maxsize=4096)(rates)


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
        self.queues = list(queues.values())
        known: dict[int, Shares] = {}
        self.shares = [known.setdefault(id(kernel), shares_of(kernel)) for kernel in laid.kernels]
        bound = {*laid.gates, *laid.waits, *laid.records, *laid.meets}
        #: Of each kernel: whether it waits for the one before and its launch alone, and nothing waits for it by name.
        self.plain = [number not in bound for number in range(len(laid.streams))]
        #: By kernel and group: ranks that have arrived, and when the last of them did.
        self.arrived: dict[tuple[int, int], tuple[list[tuple[_Rank, int]], int]] = {}
        self.heap: list[tuple[int, int]] = []
        self.ranks = [_Rank(self, number, *times) for number, times in enumerate(_times(laid, host, device))]

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
                rank.go_on(now)
        if any(rank.left for rank in ranks):
            raise SimulationStuck("the simulation is stuck: kernels wait for an event or a rank that never comes")
        first = ranks[0]
        return max(first.through, *first.free) + first.last_ns

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
            other.starts[its] = last
            other.meeting -= 1
            other.push()
        return last


@lru_cache(maxsize=65536)
def shares_of(kernel: KernelTime) -> Shares:
    """`sim.step.sharing.shares`, remembered."""
    return shares(kernel)


class _Rank:
    """One rank's device. Of each stream: free, until when it is busy; starts, when its next kernel does (UNKNOWN while
    it waits, or runs). running: [what is left, rate, kernel, stream] of kernels in flight. meeting: streams that wait
    for other ranks. due: when something happens next here."""

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
        self._ended, self._ready, self._durations = host_ends, ready, durations
        streams = len(step.queues)
        self.at = [0] * streams
        self.free = [NEVER] * streams
        self.starts = [UNKNOWN] * streams
        self.blocked = [False] * streams
        self.running: list[list[int]] = []
        self.settled = 0
        self.meeting = 0
        self.due = UNKNOWN
        self.left = len(durations)
        self._recorded: dict[int, int] = {}

    def push(self) -> None:
        """Set when this rank has to be looked at again."""
        due = min(self.starts)
        for left, rate, _, _ in self.running:
            if rate:
                end = self.settled - (-left // rate)
                due = end if end < due else due
        self.due = due
        if due < UNKNOWN:
            heappush(self.step.heap, (due, self.number))

    def find_starts(self, streams: Sequence[int]) -> None:
        """When the next kernels of these idle streams start, as far as it is known."""
        for stream in streams:
            self.starts[stream] = self._start(stream)

    def _start(self, stream: int) -> int:
        step = self.step
        queue, at = step.queues[stream], self.at[stream]
        self.blocked[stream] = False
        if at == len(queue):
            return UNKNOWN
        laid, number = step.laid, queue[at]
        start = max(self._ready[laid.launched[number]], self.free[stream] + laid.gaps_ns[number])
        if number in laid.gates:
            start = max(start, self._ended[laid.gates[number]])
        for event in laid.waits.get(number, ()):
            recorded = self._recorded.get(event)
            if recorded is None:
                self.blocked[stream] = True
                return UNKNOWN
            start = max(start, recorded)
        if number in laid.meets:
            start = step.arrive(self, stream, number, start)
            self.meeting += start == UNKNOWN
        return start

    def go_on(self, now: int) -> None:
        """All that happens at `now`, and ahead of it what no other rank or stream can change."""
        self._settle(now)
        starts = self.starts
        while (start := min(starts)) <= now:
            self._begin(starts.index(start), now)
        if not self.running:
            self._run_ahead()
        self._divide()
        self.push()

    def _settle(self, now: int) -> None:
        """Bring the kernels in flight up to now; those that are through leave, and what waits for them may start."""
        elapsed, self.settled = now - self.settled, now
        if not elapsed or not self.running:
            return
        still: list[list[int]] = []
        ended: list[list[int]] = []
        for running in self.running:
            running[0] -= running[1] * elapsed
            (still if running[0] > 0 else ended).append(running)
        self.running = still
        for _, _, number, stream in ended:
            self._end(number, stream, now)

    def _begin(self, stream: int, now: int) -> None:
        number = self.step.queues[stream][self.at[stream]]
        self.starts[stream] = UNKNOWN
        duration = self._durations[number]
        if duration:
            self.running.append([duration * FULL_RATE, FULL_RATE, number, stream])
        else:
            self._end(number, stream, now)

    def _end(self, number: int, stream: int, now: int) -> None:
        self.free[stream] = now
        self.at[stream] += 1
        self.left -= 1
        for event in self.step.laid.records.get(number, ()):
            self._recorded[event] = now
        self.starts[stream] = self._start(stream)
        if number in self.step.laid.records:
            self.find_starts([other for other, blocked in enumerate(self.blocked) if blocked])

    def _run_ahead(self) -> None:
        """Play streams one kernel after the other as long as no two could meet, and none waits for other ranks."""
        starts, queues, durations = self.starts, self.step.queues, self._durations
        while not self.meeting and (start := min(starts)) < UNKNOWN:
            stream = starts.index(start)
            starts[stream] = UNKNOWN
            horizon = min(starts)
            number = queues[stream][self.at[stream]]
            if start + durations[number] > horizon:
                starts[stream] = start
                return
            self.settled = start + durations[number]
            self._end(number, stream, self.settled)
            if not self.meeting and starts[stream] < UNKNOWN:
                self._run_plain(stream)

    def _run_plain(self, stream: int) -> None:
        """Go on with kernels of `stream` that wait for nothing but the one before and their launch, and record no
        event, as long as they end before another stream may start."""
        laid, plain, queue = self.step.laid, self.step.plain, self.step.queues[stream]
        durations, ready, gaps, launched = self._durations, self._ready, laid.gaps_ns, laid.launched
        at, first, start, free = self.at[stream], self.at[stream], self.starts[stream], self.free[stream]
        horizon = min((ns for other, ns in enumerate(self.starts) if other != stream), default=UNKNOWN)
        while at + 1 < len(queue) and plain[queue[at]] and plain[queue[at + 1]]:
            end = start + durations[queue[at]]
            if end > horizon:
                break
            at += 1
            free = end
            following = queue[at]
            may, start = ready[launched[following]], free + gaps[following]
            start = may if may > start else start
        self.at[stream], self.starts[stream], self.free[stream] = at, start, free
        self.left -= at - first
        self.settled = max(self.settled, free)

    def _divide(self) -> None:
        """Give every kernel in flight its rate."""
        running = self.running
        if len(running) == 1:
            running[0][1] = FULL_RATE
        elif running:
            shared = self.step.shares
            for one, rate in zip(running, _rates(tuple(shared[one[2]] for one in running)), strict=True):
                one[1] = rate


def _times(laid: Layout, host: float, device: float) -> list[tuple[list[int], int, list[int], list[int], int]]:
    """Of each rank: its host's and launches' times as `sim.step.lengths.threads` gives them, its kernels', and how long
    the host takes at the end of the step."""
    if laid.host_matrix is None or laid.launch_matrix is None or laid.kernel_matrix is None:
        host_ns = [round(ns * host) for ns in laid.host_ns]
        launch_ns = [round(ns * host) for ns in laid.launch_ns] if laid.threaded else []
        durations = laid.durations_ns if device == 1.0 else [max(1, round(ns * device)) for ns in laid.durations_ns]
        return [(*threads(laid, host_ns[:-1], launch_ns), durations, host_ns[-1])]
    columns = (matrix.T.tolist() for matrix in (laid.host_matrix, laid.launch_matrix, laid.kernel_matrix))
    return [
        (*threads(laid, host_ns[:-1], launch_ns), durations, host_ns[-1])
        for host_ns, launch_ns, durations in zip(*columns, strict=True)
    ]
