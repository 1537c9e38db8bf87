"""How many workers of an engine one host runs."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile


def workers_on_a_host(ranks: int, hw: HardwareProfile) -> int:
    """Of `ranks` ranks, one worker process each: a server has a host of its own, so no host runs more than its dies."""
    return min(ranks, hw.collective.dies_per_server)
