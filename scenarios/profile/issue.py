"""When the host issued what ran on the device: the start of the first call in the chain of its launches."""

from __future__ import annotations

import numpy as np

from scenarios.profile.table import NO_ROW, Events, Int64

#: Calls between the first one and the kernel: an operator, its enqueueing, its dequeueing, CANN's launch.
MAX_CALLS = 8


def issued_ns(events: Events, device: Int64) -> Int64:
    """The issue time of each row of the device, ns; -1 where unknown."""
    at = events.launched_by[device].astype(np.int64)
    issued = np.where(at != NO_ROW, events.start_ns[at], -1)
    for _ in range(MAX_CALLS):
        above = np.where(at != NO_ROW, events.launched_by[at], NO_ROW).astype(np.int64)
        going = above != NO_ROW
        if not going.any():
            break
        at = np.where(going, above, at)
        issued = np.where(going, events.start_ns[at], issued)
    return issued
