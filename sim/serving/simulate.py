"""Requests in time: a plain loop over steps, from one event to the next.

The scheduler says what runs together, the prices how long the device takes for it, the engine what its host adds:

    step = max(device, hidden) + visible,   host = per_step + per_request x requests + per_chunk x chunks,
    hidden = hidden_share x host,           visible = host - hidden

Between two events (a request comes, is prefilled, ends, loses its blocks) nothing but the contexts' length changes, so
a run of decode steps is one piece of arithmetic, exact in integer ticks.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import replace
from math import sqrt

from scenarios.serving.admission import KvCache
from scenarios.serving.entry import Entry
from scenarios.serving.requests import Load, Request
from scenarios.serving.scheduler import Limits, Scheduler, Step
from sim.serving.costs import EngineCosts
from sim.serving.outcome import Run, Served, ServingOutcome
from sim.serving.prices import ENDLESS, TICKS_PER_NS, StepPrices

#: As many steps at once as nothing stops.
UNLIMITED = 1 << 40


def serve(
    load: Load,
    limits: Limits,
    cache: KvCache,
    prices: StepPrices,
    engine: EngineCosts,
    max_model_len: int | None = None,
    kv_bytes_per_token: int = 0,
) -> ServingOutcome:
    """Serve all requests of `load` and return what became of each.

    max_model_len: longer requests are rejected. kv_bytes_per_token: what a swapped token copies.
    """
    return _Loop(load, Scheduler(limits, cache), prices, engine, max_model_len, kv_bytes_per_token).run()


class _Client:
    """Sends requests at their time, at most `concurrency` at once, and a turn of a conversation after the one before."""

    def __init__(self, load: Load) -> None:
        self._open = load.requests and load.concurrency is None
        self._free = len(load.requests) if load.concurrency is None else load.concurrency
        self._later: dict[int, Request] = {r.after: r for r in load.requests if r.after >= 0}
        self._ready: list[tuple[int, int, Request]] = []
        self._sorted = deque(sorted((r for r in load.requests if r.after < 0), key=lambda r: (r.arrival_ns, r.id)))

    def next_ns(self) -> int | None:
        """When the next request is sent, as far as is known; None where none is or all must wait for another's end."""
        if not self._free:
            return None
        times = [self._sorted[0].arrival_ns] if self._sorted else []
        if self._ready:
            times.append(self._ready[0][0])
        return min(times) if times else None

    def send(self, now_ns: int) -> list[tuple[int, Request]]:
        """(time, request) of what is sent up to now."""
        sent: list[tuple[int, Request]] = []
        while self._free:
            first = self._sorted[0].arrival_ns if self._sorted else UNLIMITED << 20
            if self._ready and self._ready[0][0] <= first:
                if self._ready[0][0] > now_ns:
                    break
                at, _, request = heapq.heappop(self._ready)
            elif first <= now_ns and self._sorted:
                request = self._sorted.popleft()
                at = first
            else:
                break
            self._free -= 1
            sent.append((at, request))
        return sent

    def ended(self, request: Request, now_ns: int) -> None:
        """The last token of a request was received: another may be sent."""
        self._free += 1
        follower = self._later.get(request.id)
        if follower is not None:
            heapq.heappush(self._ready, (max(now_ns + follower.think_ns, follower.arrival_ns), follower.id, follower))
        if self._open == 0 and self._sorted and self._sorted[0].arrival_ns < now_ns:
            waiting = self._sorted.popleft()  # sent now, not when it wanted to be
            heapq.heappush(self._ready, (now_ns, waiting.id, waiting))
