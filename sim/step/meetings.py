"""Ranks of one stream that meet with the same neighbours again and again: when they meet, with no walk over kernels.

With P the time of all kernels and gaps before a kernel, it starts at P + max(c - P) over the kernels so far, where c is
what else each of them waits for. Where ranks meet, a group goes on with its last: its start is that of the meeting
before plus the longest that one of its ranks has in between, or what the largest c of one of them says, whichever is
later, which is a recurrence of the same form. What kernels wait for is looked at in blocks, and only where the device
is not behind the host already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.step.layout import NEVER, Layout, Meetings
from sim.step.rank_hosts import Threads

if TYPE_CHECKING:  # a rank alone needs no numpy
    from sim.step.ranks import Clocks

#: Kernels of one block: its times stay in the cores' caches.
BLOCK = 96


def meetings_of(laid: Layout) -> Meetings | None:
    """None where kernels run on several streams, or ranks meet with different neighbours or never."""
    import numpy as np

    groups = set(laid.meets.values())
    if len(groups) != 1 or laid.several_streams:
        return None
    launched, count = np.array(laid.launched), len(laid.launched)
    waiting = np.zeros(count, bool)
    waiting[0] = True
    waiting[1:] = launched[1:] != launched[:-1]
    meets, gates = sorted(laid.meets), sorted(laid.gates)
    waiting[[*meets, *gates]] = True
    number = np.cumsum(waiting) - 1
    places = np.flatnonzero(waiting)
    each = np.array(laid.gaps_ns, np.int64)
    gaps = np.cumsum(each)
    return Meetings(
        group=groups.pop() or laid.ranks,
        meets=np.array(meets),
        launched=launched,
        gap_times_ns=each,
        places=None if len(places) == count else places,
        entries=launched[places],
        gaps_ns=gaps[places],
        gap_sum_ns=int(gaps[-1]),
        first_gap_ns=laid.gaps_ns[0],
        at=number[meets],
        gated=number[gates] if gates else np.zeros(0, np.int64),
        updates=np.array([laid.gates[gate] for gate in gates], np.int64),
    )


def met(
    where: Meetings, durations: Clocks, threads: Threads, speeds: Sequence[int], busy_ns: int
) -> tuple[Clocks, Clocks]:
    """(when the stream is free, of shape (variants, ranks); when the ranks meet, (meetings, variants, ranks)), ns.

    durations: (kernels, speeds, ranks). speeds: of each variant, its place among the durations. busy_ns: until when the
    stream is busy with what came before.
    """
    import numpy as np

    lasting = durations if where.places is None else np.add.reduceat(durations, where.places, axis=0)
    at, gaps = where.at, where.gaps_ns[:, None, None]
    head = lasting[: at[0]].sum(axis=0)
    between = np.add.reduceat(lasting, at, axis=0)
    through = np.cumsum(between, axis=0) + head
    until = np.empty_like(between)  # each meeting's P
    until[0] = head
    until[1:] = through[:-1]
    until += gaps[at]
    before, shape = until[:, speeds], (len(speeds), -1, where.group)
    leads = _Leads(where, lasting, threads, speeds=speeds, busy_ns=busy_ns)
    grown = np.cumsum(np.diff(before, axis=0, prepend=before[:1]).reshape(len(at), *shape).max(axis=3), axis=0)
    most = np.full(before.shape, NEVER, np.int64)
    step = max(1, BLOCK * len(at) // len(gaps))
    since, known, start = np.zeros_like(head), None, 0
    for first in range(0, len(at), step):
        if known is not None and (threads.latest <= known).all():
            break  # the host is through with all that follows
        last = min(first + step, len(at))
        lead = leads.of(start, at[last - 1] + 1, since, known)
        if lead is not None:
            most[first:last] = np.maximum.reduceat(lead, np.array([0, *(at[first : last - 1] + 1 - start)]))
        if first == 0:  # what is known before all is: none meets earlier than the device's times say from there on
            lowest = (before[0] + most[0]).reshape(shape).max(axis=2)
        since = until[last - 1] - gaps[at[last - 1]] + lasting[at[last - 1]]
        known = (lowest + grown[last - 1]).repeat(where.group, axis=1)
        start = at[last - 1] + 1
    bound = (before + most).reshape(len(at), *shape).max(axis=3)
    together = (grown + np.maximum.accumulate(bound - grown, axis=0)).repeat(where.group, axis=2)
    free = together[-1] - before[-1]
    if at[-1] + 1 < len(gaps):
        since = until[-1] - gaps[at[-1]] + lasting[at[-1]]
        lead = leads.of(at[-1] + 1, len(gaps), since, together[-1])
        if lead is not None:
            free = np.maximum(free, lead.max(axis=0))
    return free + through[-1][speeds] + where.gap_sum_ns, together


class _Leads:
    """c - P of the kernels that wait for something."""

    def __init__(
        self, where: Meetings, lasting: Clocks, threads: Threads, *, speeds: Sequence[int], busy_ns: int
    ) -> None:
        self._where, self._lasting, self._threads = where, lasting, threads
        self._speeds, self._busy_ns = speeds, busy_ns

    def of(self, start: int, end: int, since: Clocks, known: Clocks | None) -> Clocks | None:
        """Of some places, of shape (places, variants, ranks). since: what the kernels before them take. None where all
        they wait for is over when ranks meet before them, at `known` at the earliest."""
        import numpy as np

        where, threads = self._where, self._threads
        waited = threads.ready[where.entries[start:end]]
        if not start:
            waited[0] = np.maximum(waited[0], self._busy_ns + where.first_gap_ns)
        low, high = np.searchsorted(where.gated, (start, end))
        if low < high:
            gated = where.gated[low:high] - start
            waited[gated] = np.maximum(waited[gated], threads.ended[where.updates[low:high]])
        if known is not None and (waited.max(axis=0) <= known).all():
            return None
        own = self._lasting[start:end]
        before = np.cumsum(own, axis=0) - own + since + where.gaps_ns[start:end, None, None]
        lead: Clocks = waited - before[:, self._speeds]
        return lead
