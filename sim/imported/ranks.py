"""Collectives of several ranks matched with each other: who came last, and how long the others waited.

A collective is the same one on two ranks where its name, its group and its place among those of that name agree. It
starts for good when the last rank has come; what a rank spends in it before that is waiting. Ranks of one machine have
one clock; where the clocks of two ranks differ, their collectives end at different times, and the difference is
reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from scenarios.profile import Capture, Kind, Step
from scenarios.records import dataclass
from sim.imported.kernels import in_step

#: Ends of one collective on two ranks that lie further apart than this, on median, speak of clocks that differ, ns.
SAME_CLOCK_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class RankWaits:
    """One rank's collectives. matched: those that another rank has as well; wait_us: in these, until the last came;
    last: how often this rank was the last."""

    rank: int
    collectives: int
    matched: int
    communication_us: float
    wait_us: float
    last: int


@dataclass(frozen=True, slots=True)
class MatchedCollective:
    """One collective on several ranks. late_us: how long after the first the last came."""

    name: str
    group: str
    ranks: tuple[int, ...]
    last_rank: int
    late_us: float
    longest_us: float
    transfer_us: float


@dataclass(frozen=True, slots=True)
class Waits:
    """by_rank in order of ranks; collectives with the latest first. waited_for_us: by rank, what the others waited in
    collectives that it came last to. clocks_differ_us: by how much the ends of one collective differ on median."""

    by_rank: tuple[RankWaits, ...]
    collectives: tuple[MatchedCollective, ...]
    waited_for_us: dict[int, float]
    clocks_differ_us: float

    @property
    def same_clock(self) -> bool:
        """Whether the ranks' times can be compared."""
        return self.clocks_differ_us * 1000 <= SAME_CLOCK_NS


def slowest_rank(waits: Waits) -> int | None:
    """The rank that the others waited for the longest; None where nobody waited, or the clocks cannot be compared."""
    waited = {rank: us for rank, us in waits.waited_for_us.items() if us > 0}
    if not waited or not waits.same_clock:
        return None
    return max(waited, key=lambda rank: (waited[rank], -rank))


@dataclass(frozen=True, slots=True)
class _Arrival:
    rank: int
    start_ns: int
    end_ns: int


def waits_of(captures: Sequence[Capture], steps: Sequence[Step]) -> Waits:
    """The waits of ranks in each one's own step."""
    met: dict[tuple[str, str, int], list[_Arrival]] = {}
    for capture, step in zip(captures, steps, strict=True):
        for key, arrival in _arrivals(capture, step):
            met.setdefault(key, []).append(arrival)
    shared = {key: arrivals for key, arrivals in met.items() if len(arrivals) > 1}
    waited = {capture.rank: [0, 0, 0] for capture in captures}  # matched, ns, last
    waited_for: dict[int, int] = {}
    collectives, differences = [], []
    for (name, group, _), arrivals in shared.items():
        latest = max(arrivals, key=lambda a: (a.start_ns, a.rank))
        for arrival in arrivals:
            wait = max(0, min(latest.start_ns, arrival.end_ns) - arrival.start_ns)
            waited[arrival.rank][0] += 1
            waited[arrival.rank][1] += wait
            waited_for[latest.rank] = waited_for.get(latest.rank, 0) + wait
        waited[latest.rank][2] += 1
        ends = [a.end_ns for a in arrivals]
        differences.append(max(ends) - min(ends))
        collectives.append(_matched(name, group, arrivals, latest))
    return Waits(
        by_rank=tuple(_rank(p, s, *waited[p.rank]) for p, s in zip(captures, steps, strict=True)),
        collectives=tuple(sorted(collectives, key=lambda c: (-c.late_us, c.name))),
        waited_for_us={rank: ns / 1000 for rank, ns in sorted(waited_for.items())},
        clocks_differ_us=median(differences) / 1000 if differences else 0.0,
    )


def _arrivals(capture: Capture, step: Step) -> list[tuple[tuple[str, str, int], _Arrival]]:
    seen: dict[tuple[str, str], int] = {}
    arrivals = []
    events = capture.events
    for row in in_step(capture, step, Kind.COLLECTIVE).tolist():
        name, group = capture.text(row), capture.text(row, "group")
        number = seen[name, group] = seen.get((name, group), -1) + 1
        start = int(events.start_ns[row])
        arrivals.append(((name, group, number), _Arrival(capture.rank, start, start + int(events.duration_ns[row]))))
    return arrivals


def _matched(name: str, group: str, arrivals: list[_Arrival], latest: _Arrival) -> MatchedCollective:
    return MatchedCollective(
        name=name,
        group=group,
        ranks=tuple(sorted(a.rank for a in arrivals)),
        last_rank=latest.rank,
        late_us=(latest.start_ns - min(a.start_ns for a in arrivals)) / 1000,
        longest_us=max(a.end_ns - a.start_ns for a in arrivals) / 1000,
        transfer_us=(latest.end_ns - latest.start_ns) / 1000,
    )


def _rank(capture: Capture, step: Step, matched: int, wait_ns: int, last: int) -> RankWaits:
    rows = in_step(capture, step, Kind.COLLECTIVE)
    total = int(capture.events.duration_ns[rows].sum())
    return RankWaits(capture.rank, len(rows), matched, total / 1000, wait_ns / 1000, last)
