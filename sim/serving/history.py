"""A served load over time: how many requests run and wait, and how full the KV cache is."""

from __future__ import annotations

import numpy as np

from scenarios.records import dataclass
from sim.serving.outcome import Floats, Ints, ServingOutcome


@dataclass(frozen=True, slots=True)
class History:
    """At each of some moments: seconds from the first arrival, requests that run and that wait, and the share of the KV
    cache's tokens that hold keys and values (whole blocks and shared prefixes are not counted, so it is a little below
    what the allocator reserves)."""

    at_s: Floats
    running: Ints
    waiting: Ints
    kv_share: Floats


def history_of(outcome: ServingOutcome, kv_tokens: int, points: int = 240) -> History:
    """`points` moments from the first arrival to the last token. kv_tokens: what the cache holds.

    A request holds its prompt from when it was let in, and one token more with each that it generates. One that was
    preempted counts as running until it is done: the time in between is not recorded.
    """
    end_ns = int(outcome.last_ns.max()) if len(outcome.ids) else 0
    at_ns = np.linspace(0, end_ns, points)
    arrived, started, last = (
        _count(times, at_ns) for times in (outcome.arrived_ns, outcome.started_ns, outcome.last_ns)
    )
    return History(at_ns / 1e9, started - last, arrived - started, _tokens(outcome, at_ns) / max(1, kv_tokens))


def _count(times_ns: Ints, at_ns: Floats) -> Ints:
    """How many of the times are past, at each moment."""
    return np.searchsorted(np.sort(times_ns), at_ns, side="right").astype(np.int64)


def _tokens(outcome: ServingOutcome, at_ns: Floats) -> Floats:
    held = np.zeros(len(at_ns))
    for n in range(len(outcome.ids)):
        first, last = outcome.first_ns[n], outcome.last_ns[n]
        inside = (at_ns >= outcome.started_ns[n]) & (at_ns < last)
        done = np.clip((at_ns[inside] - first) / max(1, last - first), 0, 1)
        held[inside] += outcome.input_tokens[n] + done * outcome.output_tokens[n]
    return held
