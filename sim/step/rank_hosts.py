"""What the hosts of all ranks of a step do: how long each call takes on each, and when it is through.

It depends on which calls there are and not on the kernels that they launch, so steps that differ in sizes alone share
it: the points of a sweep, a step and its what-ifs on shapes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from scenarios.records import dataclass
from sim.hardware.profile import HardwareProfile
from sim.step.jitter import jitter_of_ranks
from sim.step.priced import Conditions
from sim.step.ranks import Variant, scaled_ns

if TYPE_CHECKING:  # a rank alone needs no numpy
    from sim.step.rank_plans import Matrix
    from sim.step.ranks import Clocks


class Calls(NamedTuple):
    """The calls that issue one op's kernels eagerly, before jitter, ns. entry: the first one's number among the
    launches; apart: from one to the next."""

    name: str
    host_ns: float
    launch_ns: float
    entry: int
    repeat: int
    apart: int


class Issued(NamedTuple):
    """The host steps and launches of a step, as columns of a `Layout`: times of rank 0 before they are rounded, ns.
    updates: of parameters, as (host step, what jitter is drawn by, layer, layers)."""

    host_ns: tuple[float, ...]
    launch_ns: tuple[float, ...]
    entries: tuple[int, ...]
    start_ns: tuple[int, ...]
    late_ns: tuple[int, ...]
    eager: tuple[Calls, ...]
    updates: tuple[tuple[int, str, int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class RankHosts:
    """host_ns, launch_ns: of host steps and of launches on all ranks, whole ns, of shape (places, ranks); not to be
    written to. entries, start_ns, late_ns: as in a `Layout`. Compared by identity: it is a cache key."""

    host_ns: Matrix
    launch_ns: Matrix
    entries: tuple[int, ...]
    start_ns: tuple[int, ...]
    late_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Threads:
    """Of shape (places, variants, ranks), ns: ended, when each host step but the last is through; ready, when each
    entry's first kernel may run. Of shape (variants, ranks): through, when both threads are; last_ns, of the last host
    step; latest, after which no kernel waits for the host. Not to be written to."""

    ended: Clocks
    ready: Clocks
    through: Clocks
    last_ns: Clocks
    latest: Clocks


@lru_cache(maxsize=64)
def hosts_of_ranks(hw: HardwareProfile, conditions: Conditions, issued: Issued) -> RankHosts:
    """The times of all ranks, each with its own jitter."""
    import numpy as np

    seed, sigma, ranks, scale = conditions.seed, hw.host.jitter_sigma, conditions.ranks, conditions.host_scale
    host = np.tile(np.rint(issued.host_ns).astype(np.int64)[:, None], (1, ranks))
    launch = np.tile(np.rint(issued.launch_ns).astype(np.int64)[:, None], (1, ranks))
    if issued.late_ns:
        host[0] = issued.late_ns
    for calls in issued.eager:
        jitter = jitter_of_ranks(seed, calls.name, calls.repeat, sigma, ranks)
        step, behind = issued.entries[calls.entry], (calls.repeat - 1) * calls.apart + 1
        host[step : step + behind : calls.apart] = np.rint(calls.host_ns * jitter * scale)
        launch[calls.entry : calls.entry + behind : calls.apart] = np.rint(calls.launch_ns * jitter * scale)
    for at, name, layer, layers in issued.updates:
        jitter = jitter_of_ranks(seed, name, layers, sigma, ranks)[layer]
        host[at] = np.rint(hw.host.attention_update_us * 1000 * jitter * scale)
    return RankHosts(host, launch, issued.entries, issued.start_ns, issued.late_ns)


@lru_cache(maxsize=8)  # as large as a step
def threads_of(hosts: RankHosts, threaded: bool, depth: int, variants: tuple[Variant, ...]) -> Threads | None:
    """When the calls are through in each variant; None where the queue between the two threads, of `depth` entries,
    fills up."""
    import numpy as np

    scales = [v.host for v in variants]
    host_ns = scaled_ns(hosts.host_ns, scales)
    if hosts.late_ns:  # independent of how fast the hosts are
        host_ns[0] = hosts.host_ns[0] * np.array([[v.late] for v in variants])
    ended = np.cumsum(host_ns[:-1], axis=0)
    ready = ended[list(hosts.entries)]
    through = ended[-1]
    if threaded:
        spent = np.cumsum(scaled_ns(hosts.launch_ns, scales), axis=0)
        before = np.concatenate([np.zeros_like(spent[:1]), spent[:-1]])
        issued, ready = ready, spent + np.maximum.accumulate(ready - before, axis=0)
        begun = ready - (spent - before)
        if len(begun) > depth and (begun[:-depth] > issued[depth:]).any():
            return None
        through = np.maximum(through, ready[-1])
    ready = ready + np.maximum(np.array(hosts.start_ns), 0)[:, None, None]
    latest = np.maximum(ready.max(axis=0, initial=0), ended[-1])
    return Threads(ended, ready, through, host_ns[-1], latest)
