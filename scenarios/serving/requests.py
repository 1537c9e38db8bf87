"""A request as a client sends it, and a load: requests in the order in which they are sent."""

from __future__ import annotations

from typing import NamedTuple

from scenarios.records import dataclass


class Request(NamedTuple):
    """One request: a tuple, because loads have a hundred thousand. arrival_ns: when it is sent, at the earliest.
    input_tokens: its whole prompt.

    content: what its tokens are called, from the first one that `segments` does not name on: requests of one
    conversation have one content, since each prompt repeats all before it. segments: (name, end) pairs, ends ascending:
    all prompt tokens before `end` are those that every request with this name has there. priority: smaller is served
    first. after: the request whose last token must have been received `think_ns` before; -1 where there is none.
    prefilled: another instance has computed its prompt, and its KV has come but for the last token, whose step yields
    the first one here.
    """

    id: int
    arrival_ns: int
    input_tokens: int
    output_tokens: int
    content: int = -1
    segments: tuple[tuple[int, int], ...] = ()
    priority: int = 0
    after: int = -1
    think_ns: int = 0
    prefilled: bool = False

    def block_names(self, block_size: int, tokens: int) -> list[tuple[int, int]]:
        """Names of the whole blocks of its first `tokens` tokens: equal names hold equal tokens at equal places."""
        names: list[tuple[int, int]] = []
        segments = iter(self.segments)
        segment = next(segments, None)
        own = -1 - (self.id if self.content < 0 else self.content)  # never the name of a segment, which are >= 0
        for block in range(tokens // block_size):
            end = (block + 1) * block_size
            while segment is not None and segment[1] < end:
                segment = next(segments, None)
            names.append((own if segment is None else segment[0], block))
        return names


@dataclass(frozen=True, slots=True)
class Load:
    """Requests by arrival, and how many of them the client keeps in flight at most (None: no limit). A request that
    must wait for another to end is sent then, and arrives when it is sent. warmup: first requests that do not count."""

    requests: tuple[Request, ...]
    concurrency: int | None = None
    warmup: int = 0
