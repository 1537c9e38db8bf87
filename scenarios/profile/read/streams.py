"""A stream runs its kernels one after the other: what a file says against that is put right and reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scenarios.profile.table import Events, Kind, Lane
from scenarios.timeline import COMPUTE

#: A kernel that runs over its successor by no more than this, ns, is rounding of the file and is not reported.
ROUNDING_NS = 1_000


def fifo(events: Events, lanes: tuple[Lane, ...]) -> tuple[Events, list[str]]:
    """The events with each kernel ended where the next one of its stream starts, and a note of how many did not.

    A stream is first in, first out, so a kernel that ends behind the start of its successor has a wrong duration.
    Kernels that start together (a captured graph's branches that a profiler lays on one stream) are left as they are.
    """
    rows = events.rows(Kind.KERNEL, Kind.COLLECTIVE, Kind.COPY)
    of_stream = np.array([lane.process in COMPUTE and lane.stream >= 0 for lane in lanes], dtype=bool)
    rows = rows[of_stream[events.lane[rows]]] if len(lanes) else rows
    order = rows[np.argsort(events.lane[rows], kind="stable")]
    if len(order) < 2:
        return events, []
    same = events.lane[order[1:]] == events.lane[order[:-1]]
    room = events.start_ns[order[1:]] - events.start_ns[order[:-1]]
    over = events.duration_ns[order[:-1]] - room
    cut = same & (over > 0) & (room > 0)
    if not cut.any():
        return events, []
    duration = events.duration_ns.copy()
    duration[order[:-1][cut]] = room[cut]
    told = over[cut & (over > ROUNDING_NS)]
    notes = []
    if len(told):
        notes.append(
            f"{len(told):,} kernels run over the start of the next one on their stream (the longest by "
            f"{int(told.max()) / 1e6:,.3f} ms): a stream is first in, first out, so each ends there"
        )
    return replace(events, duration_ns=duration), notes
