"""From measured timelines to their dependency graph.

What a profile says: who launched a kernel, the order on each stream and thread, that a stream waited. What it does not
say is read off the times, and the graph's notes say how often:

- A task that starts later than its stream and its launch explain waits for the task of another stream that ended last
  before it (`inferred`).
- A thread of the host that idles for long while another one works waits for that one (`inferred`).
- A collective waits for the kernel that ended last before it, and the first kernel of a stream after it waits for it;
  so does a stream's wait for the last task that ended elsewhere.
- A call named synchronise waits for what the device had finished before it returned.

Every task gets one edge that gives exactly its measured start. The lags of its other edges are what such an edge
usually takes, never more than would move it; so the unchanged graph replays to the measured times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import median_low

from scenarios.timeline import Timeline
from sim.imported.replay.draft import Draft, Ends
from sim.imported.replay.graph import Edge, Graph, Task, callers, edges, ordered, renumbered
from sim.imported.replay.tasks import RankTasks

#: A thread that idles longer than this, ns, while another one works, waits for it.
HANDED_OVER_NS = 200_000
#: A delay on a stream that is longer than this, ns, and than three usual gaps, has a cause on another stream.
UNEXPLAINED_NS = 10_000


def build(timelines: Sequence[Timeline]) -> Graph:
    """The graph of the steps of all ranks, which are on one clock. Raises ValueError for a timeline without kernels."""
    draft = Draft()
    ranks = [RankTasks(draft, rank, timeline) for rank, timeline in enumerate(timelines)]
    notes = _rendezvous(ranks, draft)
    launch_ns, gap_ns = _usual(ranks, draft)
    for rank in ranks:
        notes += _Connect(rank, draft, launch_ns, gap_ns).notes
    order = ordered(draft.tasks, draft.starts_ns)
    place = {old: new for new, old in enumerate(order)}
    tasks = renumbered(draft.tasks, order)
    if inferred := edges(tasks, "inferred"):
        notes.append(
            f"{inferred:,} waits between streams or threads are not in the profile and were read off the times"
        )
    if not any(rank.task_of for rank in ranks):
        notes.append("no launches in the profile: what streams idle between kernels is taken for the host's")
    called_by = callers(tasks)
    launched: dict[int, list[int]] = {}
    for number, caller in enumerate(called_by):
        launched.setdefault(caller, []).append(number)
    return Graph(
        tasks,
        tuple(draft.starts_ns[n] for n in order),
        attached={place[n]: parts for n, parts in draft.attached.items()},
        timelines=tuple(timelines),
        callers=called_by,
        launched=launched,
        notes=tuple(dict.fromkeys(notes)),
        launch_ns=launch_ns,
        gap_ns=gap_ns,
    )


class _Connect:
    """Gives the tasks of one rank their edges: one exact, the others no longer than usual."""

    def __init__(self, rank: RankTasks, draft: Draft, launch_ns: int, gap_ns: int) -> None:
        self.rank, self.draft, self.launch_ns, self.gap_ns = rank, draft, launch_ns, gap_ns
        self.late_ns = max(UNEXPLAINED_NS, 3 * gap_ns)
        self.ends = Ends(draft, rank.lanes)
        self.calls = Ends(draft, {name: own for name, own in rank.threads.items() if not self._dequeues(own)})
        self.notes: list[str] = []
        for thread in rank.threads.values():
            self._thread(thread)
        overlapping = sum(self._lane(lane) for lane in rank.lanes.values())
        if overlapping:
            self.notes.append(f"{overlapping:,} tasks begin before the one ahead of them on their stream has ended")
        self._marks()

    def _dequeues(self, thread: Sequence[int]) -> bool:
        """Whether a thread only works off what another one hands it."""
        tasks = self.draft.tasks
        handed = [
            n for n in thread if (launcher := self.rank.launcher(tasks[n])) and tasks[launcher].lane != tasks[n].lane
        ]
        return 2 * len(handed) > len(thread)

    def _thread(self, thread: Sequence[int]) -> None:
        draft, before = self.draft, self.rank.offset
        for number in thread:
            task = draft.tasks[number]
            launcher = self.rank.launcher(task)
            if task.what == "synchronise":
                self._drain(number, before)
            elif launcher is None or draft.tasks[launcher].lane == task.lane or draft.slack_ns(launcher, number) < 0:
                draft.connect(number, self._own_work(before, number))
            else:
                # A thread that dequeues is idle until there is something; of its own it needs no time between.
                queued = draft.edge(before, number, "thread", 0)
                handed = draft.edge(launcher, number, "launch", None)
                if draft.free_ns(queued) > draft.free_ns(handed):  # the thread was busy: the call lay in its queue
                    handed = handed._replace(lag_ns=0)
                draft.connect(number, [queued, handed])
            before = number

    def _own_work(self, before: int, number: int) -> list[Edge]:
        """A call after the one before it on its thread: the time between is the thread's work, unless it is long and
        another thread had calls in it. Then the thread waited for that one: autograd's for Python's, and back."""
        draft = self.draft
        since, at = draft.end_ns(before), draft.starts_ns[number]
        other = self.calls.before(at, draft.tasks[number].lane) if at - since > HANDED_OVER_NS else None
        if other is None or draft.starts_ns[other] <= since:
            return [draft.edge(before, number, "thread", None)]
        lane = self.rank.threads[draft.tasks[other].lane]
        first = lane[bisect_right(lane, since, key=lambda n: draft.starts_ns[n])]
        until = draft.starts_ns[first] - since
        return [draft.edge(before, number, "thread", until), draft.edge(other, number, "inferred", None)]

    def _drain(self, number: int, entry: int) -> None:
        """The end of a synchronise: after the last tasks of the device that had ended by then, if it waited at all."""
        ended = self.ends.of_lanes(self.draft.starts_ns[number])
        self.draft.connect(number, [Edge(entry, True, 0, "thread"), *(Edge(n, True, 0, "drain") for n in ended)])

    def _lane(self, lane: Sequence[int]) -> int:
        """Connect the tasks of a stream; return how many overlap the one before them."""
        draft, before, overlapping, before_ends = self.draft, self.rank.offset, 0, -1 << 62
        for number in lane:
            task = draft.tasks[number]
            if task.what == "transfer":
                draft.connect(number, task.after)
            else:
                wanted = [draft.edge(before, number, "queue", self.gap_ns if before != self.rank.offset else 0)]
                overlapping += not wanted[0].at_end
                owner = draft.tasks[number + 1] if task.what == "arrive" else task
                launcher = self.rank.launcher(owner)
                if launcher is not None and draft.starts_ns[launcher] <= draft.starts_ns[number]:
                    wanted.append(draft.edge(launcher, number, "launch", self.launch_ns))
                wanted += self._across(number, wanted, before_ends if before != self.rank.offset else -1 << 62)
                draft.connect(number, wanted)
            before, before_ends = number, draft.starts_ns[number]
        return overlapping

    def _across(self, number: int, known: Sequence[Edge], lane_began_ns: int) -> list[Edge]:
        """What a task waits for on other lanes: recorded, by the order around a collective, or read off the times.

        lane_began_ns: when the task before it on its lane started.
        """
        draft, task, at = self.draft, self.draft.tasks[number], self.draft.starts_ns[number]
        other = self.ends.before(at, task.lane)
        if other is None:
            return []
        if task.what == "wait":
            return [draft.edge(other, number, "event", None)]
        explained = max(draft.free_ns(edge) for edge in known)
        if task.what == "arrive":
            return [draft.edge(other, number, "inferred" if at - explained > self.late_ns else "event", self.gap_ns)]
        edges = []
        collective = self.ends.collective_before(at, task.lane)
        if collective is not None and lane_began_ns < draft.end_ns(collective):
            edges.append(draft.edge(collective, number, "event", self.gap_ns))
            explained = max(explained, draft.end_ns(collective))
        if at - explained > self.late_ns and draft.end_ns(other) > explained:
            edges.append(draft.edge(other, number, "inferred", None))
        return edges

    def _marks(self) -> None:
        """The start of the step is that of its first kernel where the timeline has it so; its end is that of all."""
        draft, rank = self.draft, self.rank
        at = draft.starts_ns[rank.first]
        heads = [n for lane in rank.lanes.values() for n in lane if draft.starts_ns[n] == at]
        source = heads[0] if heads and at > draft.starts_ns[rank.offset] else rank.offset
        draft.connect(rank.first, [Edge(source, False, 0, "mark")])
        end = draft.starts_ns[rank.end]
        wanted = [Edge(rank.first, False, 0, "mark")]
        for numbers in (*rank.threads.values(), *rank.lanes.values()):
            inside = [(draft.end_ns(n), n) for n in numbers if draft.end_ns(n) <= end]
            if inside:
                wanted.append(Edge(max(inside)[1], True, 0, "mark"))
        draft.connect(rank.end, wanted)


def _usual(ranks: Sequence[RankTasks], draft: Draft) -> tuple[int, int]:
    """The median time from a call to its kernel where the stream was free, and between two kernels of a stream where
    the call had returned before; not where something else ended in between. It is what an edge takes when nothing else
    is waited for, ns."""
    launches: list[int] = []
    gaps: list[int] = []
    for rank in ranks:
        ends = Ends(draft, rank.lanes)
        for name, lane in rank.lanes.items():
            for before, number in pairwise(lane):
                launcher = rank.launcher(draft.tasks[number]) if draft.tasks[number].what == "kernel" else None
                gap = draft.slack_ns(before, number)
                if launcher is None or gap < 0:
                    continue
                launch = draft.slack_ns(launcher, number)
                other = ends.before(draft.starts_ns[number], name)
                if other is not None and draft.end_ns(other) > max(draft.end_ns(before), draft.end_ns(launcher)):
                    continue  # it may have waited for that
                if 0 <= launch < gap:
                    launches.append(launch)
                elif launch >= gap:
                    gaps.append(gap)
    return (median_low(launches) if launches else 0, median_low(gaps) if gaps else 0)


def _rendezvous(ranks: Sequence[RankTasks], draft: Draft) -> list[str]:
    """Let collectives that several of the ranks take part in wait for the arrival of each of them; what to say of it.

    The n-th collective of a name in a group is the same on all ranks.
    """
    rendezvous_points: dict[tuple[str, str, int], list[int]] = {}
    for rank in ranks:
        count: dict[tuple[str, str], int] = {}
        for transfer in rank.collectives:
            key = _group_and_name(draft.tasks[transfer])
            count[key] = count.get(key, 0) + 1
            rendezvous_points.setdefault((*key, count[key]), []).append(transfer)
    met = apart = 0
    for together in rendezvous_points.values():
        if len(together) < 2:
            continue
        start = max(draft.starts_ns[transfer - 1] for transfer in together)
        if any(start > draft.end_ns(transfer) for transfer in together):
            apart += 1  # one had ended before another arrived: not one collective, or clocks that differ
            continue
        met += 1
        arrivals = tuple(Edge(transfer - 1, True, 0, "meet") for transfer in together)
        for transfer in together:
            length = draft.end_ns(transfer) - start
            draft.starts_ns[transfer] = start
            draft.tasks[transfer] = draft.tasks[transfer]._replace(duration_ns=length, after=arrivals)
    notes = []
    if met:
        notes.append(f"{met:,} collectives begin when the last of the ranks here arrives")
    if any(len(together) < 2 for together in rendezvous_points.values()):
        notes.append("waiting for ranks that are not here stays as long as it was measured, as if they changed alike")
    if apart:
        notes.append(f"{apart:,} collectives of one name do not overlap in time on all ranks: each is replayed alone")
    return notes


def _group_and_name(task: Task) -> tuple[str, str]:
    assert task.span is not None
    return next((str(value) for key, value in task.span.args if key == "Group"), ""), task.span.name
