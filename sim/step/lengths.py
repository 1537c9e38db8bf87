"""The length of a step from its columns, in several variants: of one rank in plain integers, of several with numpy.

The same max-plus recurrence as `sim.step.recurrence` and `sim.step.ranks` for steps that end with their one wait for
the device, so the host is through with all launches before any kernel's time is asked for. Kernels between two that
wait for something follow one another, so a run of them is one sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING

from scenarios.records import dataclass
from sim.step.layout import NEVER, Layout
from sim.step.meetings import meetings_of, met
from sim.step.rank_hosts import RankHosts, threads_of
from sim.step.ranks import Variant, last_of_group, scaled_ns

if TYPE_CHECKING:  # a rank alone needs no numpy
    from numpy import int64
    from numpy.typing import NDArray

    from sim.step.layout import Numbers
    from sim.step.ranks import Clocks


def length_ns(laid: Layout, host: float = 1.0, device: float = 1.0) -> int:
    """Length of the step of one rank on one stream, ns, with host and kernel times multiplied."""
    return lengths_ns(laid, (Variant(host=host, device=device),))[0]


def lengths_ns(laid: Layout, variants: Sequence[Variant]) -> list[int]:
    """As `length_ns`, in several variants: the host is walked once for each of its speeds."""
    walks = {scale: host_walk(laid, scale) for scale in {variant.host for variant in variants}}
    lengths = []
    for variant in variants:
        ended, through, ready = walks[variant.host]
        durations = laid.durations_ns
        if variant.device != 1.0:
            durations = [max(1, round(ns * variant.device)) for ns in durations]
        free = _one_stream(laid, durations, ended, ready)
        lengths.append(max(through, free) + round(laid.host_ns[-1] * variant.host))
    return lengths


def host_walk(laid: Layout, scale: float) -> tuple[list[int], int, list[int]]:
    """(when each host step ends, when both threads are through, when each entry's first kernel may run), ns; without
    the last step."""
    host_ns = _scaled_ns(laid.host_ns[:-1], scale)
    if laid.late_ns:
        host_ns[0] = laid.late_ns[0]
    launch_ns = _scaled_ns(laid.launch_ns, scale) if laid.threaded else []
    return threads(laid, host_ns, launch_ns)


def _scaled_ns(times_ns: Sequence[float], scale: float) -> list[int]:
    return list(map(round, times_ns if scale == 1.0 else [ns * scale for ns in times_ns]))


def threads(laid: Layout, host_ns: Sequence[int], launch_ns: Sequence[int]) -> tuple[list[int], int, list[int]]:
    """As `host_walk`, of one rank's own times."""
    delays = [max(0, ns) for ns in laid.start_ns]
    if not laid.threaded or (len(launch_ns) <= laid.depth and not any(launch_ns)):
        sums = list(accumulate(host_ns))
        return sums, sums[-1] if sums else 0, [sums[at] + ns for at, ns in zip(laid.entries, delays, strict=True)]
    ready: list[int] = []
    launcher = 0
    if len(launch_ns) <= laid.depth:  # the queue never fills up
        sums = list(accumulate(host_ns))
        for at, ns, delay in zip(laid.entries, launch_ns, delays, strict=True):
            clock = sums[at]
            launcher = (clock if clock > launcher else launcher) + ns
            ready.append(launcher + delay)
        return sums, max(sums[-1] if sums else 0, launcher), ready
    ends: list[int] = []
    begun: list[int] = []
    clock = step = 0
    depth = laid.depth
    for number, at in enumerate(laid.entries):
        for ns in host_ns[step : at + 1]:
            clock += ns
            ends.append(clock)
        step = at + 1
        if number >= depth and begun[number - depth] > clock:  # the entry so many places before must have left
            clock = begun[number - depth]
        start = clock if clock > launcher else launcher
        begun.append(start)
        launcher = start + launch_ns[number]
        ready.append(launcher + delays[number])
    for ns in host_ns[step:]:
        clock += ns
        ends.append(clock)
    return ends, max(clock, launcher), ready


def host_of_first(laid: Layout) -> tuple[int, int]:
    """(when both host threads of rank 0 are through, when its first kernel may start), ns; without the last step."""
    ended, through, ready = host_walk(laid, 1.0)
    first = ready[laid.launched[0]]
    return through, max(first, ended[laid.gates[0]]) if 0 in laid.gates else first


def _one_stream(laid: Layout, durations: Sequence[int], ended: Sequence[int], ready: Sequence[int]) -> int:
    """When the last kernel of a single stream ends."""
    free, launched, gaps, gates = laid.busy_ns, laid.launched, laid.gaps_ns, laid.gates
    sums = [0, *accumulate(map(add, gaps, durations))]
    number, count = 0, len(durations)
    gated = [*sorted(gates), count]
    following = 0
    while number < count:
        entry = launched[number]
        if laid.start_ns[entry] < 0:
            start = free + gaps[number]
            may = ready[entry]
            free = (may if may > start else start) + durations[number]
            number += 1
            continue
        start = max(ready[entry], free + gaps[number])
        if number in gates:
            start = max(start, ended[gates[number]])
        free = start + durations[number]
        while gated[following] <= number:
            following += 1
        until = min(gated[following], _end_of_entry(launched, number))
        free += sums[until] - sums[number + 1]
        number = until
    return free


def _end_of_entry(launched: Sequence[int], number: int) -> int:
    """The first kernel behind `number` that another entry launches."""
    from bisect import bisect_right

    return bisect_right(launched, launched[number], number)


def lengths_of_ranks_ns(laid: Layout, variants: Sequence[Variant]) -> list[int] | None:
    """Length of the step of rank 0 in each variant, ns, as `sim.step.ranks.totals_ns` of its plans; None where the
    queue between the host's threads fills up."""
    walk = walk_of_ranks(laid, variants)
    return None if walk is None else walk.lengths_ns


@dataclass(frozen=True, slots=True)
class Walk:
    """A step of several ranks, played in several variants. lengths_ns: of rank 0, by variant. Of shape (places,
    variants, ranks), ns: ended, when each host step is through; ready, when each entry's first kernel may run. met: the
    kernels in which ranks meet, and when each of them starts."""

    lengths_ns: list[int]
    ended: Clocks
    ready: Clocks
    met: tuple[Numbers, Clocks]


def walk_of_ranks(laid: Layout, variants: Sequence[Variant]) -> Walk | None:
    """`lengths_of_ranks_ns` with the times on the way."""
    import numpy as np

    threads = threads_of(_hosts(laid), laid.threaded, laid.depth, tuple(variants))
    if threads is None:
        return None
    devices = list(dict.fromkeys(v.device for v in variants))
    speeds = [devices.index(v.device) for v in variants]
    kernels = np.array(laid.durations_ns)[:, None] if laid.kernel_matrix is None else laid.kernel_matrix
    durations = scaled_ns(kernels, devices)
    if laid.meetings is None:
        laid.meetings = meetings_of(laid)
    if laid.meetings is None:
        free, met_in = _streams(laid, durations, threads.ended, threads.ready, speeds)
        met_at = np.array(list(met_in), np.int64), np.array(list(met_in.values()), np.int64)
        clock = np.maximum.reduce([threads.through, *free.values()]) + threads.last_ns
    else:
        end, together = met(laid.meetings, durations, threads, speeds, laid.busy_ns)
        met_at = laid.meetings.meets, together
        clock = np.maximum(threads.through, end) + threads.last_ns
    return Walk([int(ns) for ns in clock[:, 0]], threads.ended, threads.ready, met_at)


def _hosts(laid: Layout) -> RankHosts:
    """The hosts of all ranks; of ranks folded to one, those of rank 0."""
    import numpy as np

    if laid.hosts is not None:
        return laid.hosts
    host, launch = (np.rint(np.array(ns)).astype(np.int64)[:, None] for ns in (laid.host_ns, laid.launch_ns))
    return RankHosts(host, launch, tuple(laid.entries), tuple(laid.start_ns), laid.late_ns)


def _streams(
    laid: Layout, durations: Clocks, ended: Clocks, ready: Clocks, speeds: Sequence[int]
) -> tuple[dict[int, Clocks], dict[int, Clocks]]:
    """When each stream is free, by stream; and when the kernels start in which ranks meet, by kernel. speeds: of each
    variant, its place among the durations."""
    import numpy as np

    gaps = np.array(laid.gaps_ns, np.int64)
    starts = runs_of(laid)
    met: dict[int, Clocks] = {}
    ends = [*starts[1:], len(gaps)]
    whole = np.add.reduceat(durations, starts, axis=0) + np.add.reduceat(gaps, starts)[:, None, None]
    taken = (whole - gaps[starts, None, None])[:, speeds]  # of each run, from its first kernel's start
    at_least = _issued_late(laid, gaps, durations, ready, starts=starts, ends=ends, speeds=speeds)
    never = np.full(taken.shape[1:], NEVER, np.int64)
    free: dict[int, Clocks] = {0: never + (laid.busy_ns - NEVER)}
    recorded: dict[int, Clocks] = {}
    maximum = np.maximum
    for run, number in enumerate(starts):
        stream = laid.streams[number]
        start = maximum(ready[laid.launched[number]], free.get(stream, never) + laid.gaps_ns[number])
        if number in laid.gates:
            start = maximum(start, ended[laid.gates[number]])
        for event in laid.waits.get(number, ()):
            start = maximum(start, recorded[event])
        if number in laid.meets:
            met[number] = start = last_of_group(start, laid.meets[number])
        end = start + taken[run]
        if run in at_least:
            end = maximum(end, at_least[run])
        for event in laid.records.get(ends[run] - 1, ()):
            recorded[event] = end
        free[stream] = end
    return free, met


def runs_of(laid: Layout) -> list[int]:
    """The first kernels of runs: each follows the one before on its stream, waits for nothing else, and none but the
    last records an event."""
    first = {0, *laid.gates, *laid.waits, *laid.meets, *(number + 1 for number in laid.records)}
    streams = laid.streams
    if any(streams):
        first |= {number for number in range(1, len(streams)) if streams[number] != streams[number - 1]}
    first.discard(len(streams))
    return sorted(first)


def _issued_late(
    laid: Layout,
    gaps: NDArray[int64],
    durations: Clocks,
    ready: Clocks,
    starts: Sequence[int],
    ends: Sequence[int],
    speeds: Sequence[int],
) -> dict[int, Clocks]:
    """When a run ends at the earliest because of kernels in it, behind the first, that the host launches late; by run.

    Kernel k of a run that ends with kernel e may not start before ready_k: the run ends at ready_k + duration_k + the
    sum of what follows, or later. In a run of one replay all are ready with the first.
    """
    import numpy as np

    launched = laid.launched
    several = [run for run, number in enumerate(starts) if launched[number] != launched[ends[run] - 1]]
    if not several:
        return {}
    inside = [number for run in several for number in range(starts[run], ends[run])]
    widths = [ends[run] - starts[run] for run in several]
    firsts = np.cumsum([0, *widths[:-1]])  # of each run among them
    own = durations[inside]
    sums = np.cumsum(own + gaps[inside, None, None], axis=0)  # from the first of these runs on: differences count
    lead = ready[[launched[number] for number in inside]]
    lead += (own - sums)[:, speeds]
    lead[firsts] = NEVER  # is waited for already
    bounds = np.maximum.reduceat(lead, firsts, axis=0) + sums[firsts + widths - 1][:, speeds]
    return dict(zip(several, bounds, strict=True))
