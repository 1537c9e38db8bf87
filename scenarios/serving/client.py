"""The client of a load: which request is sent when, and which waits for another to end. Times are ns."""

from __future__ import annotations

import heapq
from collections import deque
from operator import itemgetter

from scenarios.serving.requests import Load, Request

#: By when a request is sent.
_BY_TIME = itemgetter(Request._fields.index("arrival_ns"), Request._fields.index("id"))


class Client:
    """Sends requests at their time, at most `concurrency` at once, and a turn of a conversation after its last.

    is_open: what is sent never depends on what ended; then `requests` are sent in their order, and the first `sent` of
    them have been.
    """

    def __init__(self, load: Load) -> None:
        self._turns = {r.after: r for r in load.requests if r.after >= 0}
        self.is_open = load.concurrency is None and not self._turns
        self.requests = sorted(load.requests, key=_BY_TIME)
        self.sent = 0
        # Since when each request more may be in flight, the earliest first.
        self._free = [0] * (len(load.requests) if load.concurrency is None else load.concurrency)
        self._ready: list[tuple[int, int, Request]] = []  # turns that may be sent, by time
        self._opening = deque(() if self.is_open else (r for r in self.requests if r.after < 0))

    def _next(self) -> int | None:
        first = self._opening[0].arrival_ns if self._opening else None
        if self._ready and (first is None or self._ready[0][0] <= first):
            return self._ready[0][0]
        return first

    def next_ns(self) -> int | None:
        """When the next request is sent; None where none is, or none before another ends."""
        if self.is_open:
            return self.requests[self.sent].arrival_ns if self.sent < len(self.requests) else None
        following = self._next() if self._free else None
        return None if following is None else max(following, self._free[0])

    def send(self, now_ns: int) -> list[tuple[int, Request]]:
        """(time, request) of what is sent up to now."""
        sent: list[tuple[int, Request]] = []
        while (at := self.next_ns()) is not None and at <= now_ns:
            if self.is_open:
                request = self.requests[self.sent]
                self.sent += 1
            elif self._ready and self._ready[0][0] == self._next():
                request = heapq.heappop(self._ready)[-1]
            else:
                request = self._opening.popleft()
            if not self.is_open:
                heapq.heappop(self._free)
            sent.append((at, request))
        return sent

    def ended(self, request: Request, now_ns: int) -> None:
        """The last token of a request was received: another may be sent."""
        if self.is_open:
            return
        heapq.heappush(self._free, now_ns)
        turn = self._turns.get(request.id)
        if turn is not None:
            heapq.heappush(self._ready, (max(now_ns + turn.think_ns, turn.arrival_ns), turn.id, turn))
