"""The scheduler's steps where nothing is preempted, with KV blocks counted instead of handed out.

A simulator has no block tables to fill. Where requests are let in as they came and blocks have no contents that others
could find, all that a step needs is a number of blocks, and its plan is `Scheduler`'s in that arithmetic, over requests
that are numbers in columns: `CountingScheduler.count` makes `Counts` of what it holds, and `hand_out` gives blocks to
whoever runs. A step that might lack blocks is not planned here: who would lose its own is for `Scheduler` to say.
tests/sim/serving/test_counting.py holds the two against each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter

from scenarios.serving.entry import Entry
from scenarios.serving.kv_cache import PagedCache
from scenarios.serving.requests import Request
from scenarios.serving.scheduler import Limits, Scheduler

#: What is prefilled in a step: (place of the request, tokens, tokens in the cache before).
CountedChunk = tuple[int, int, int]


class Counts:
    """The state of a scheduler in numbers. A request is its place in all of them.

    target: tokens that must be in the cache before it decodes. left: output tokens to come when it joins the decoding
    ones. held: tokens in its cache less the clock, while it decodes. joins: a number that grows with each that joins.
    clock: decode steps so far. decoding: how many decode; base: `held` of all of them.
    ends: a heap of (clock at its end << shift) + place of each that decodes.
    cut, computed: whose prefill was cut, -1 for none, and how many of its tokens are in the cache.
    peak: most blocks that a step so far has held. asked_tokens: `target` of all that were let in.
    blocked: as the scheduler's.

    A request that decodes holds (held + clock) // size + 1 blocks in the step at `clock`. With held = size x a + b,
    b in [0, size), and clock = size x c + d that is a + 1 + c, and one more where b + d >= size. So whole, the sum of
    all a + 1, and over, how many have each b, give the blocks of all at any clock.
    """

    __slots__ = (
        "asked_tokens", "base", "blocked", "blocks", "clock", "computed", "cut", "decoding", "ends", "held", "joined",
        "joins", "left", "limits", "over", "peak", "shift", "size", "target", "waiting", "whole",
    )  # fmt: skip

    def __init__(self, requests: Sequence[Request], limits: Limits, blocks: int, size: int) -> None:
        self.limits, self.blocks, self.size = limits, blocks, size
        self.target = [request.input_tokens for request in requests]
        self.left = [request.output_tokens for request in requests]
        self.held, self.joins = [0] * len(requests), [0] * len(requests)
        self.shift = len(requests).bit_length()
        self.peak = self.clock = self.joined = self.asked_tokens = self.computed = 0
        self.clear()

    def clear(self) -> None:
        """Nothing runs or waits."""
        self.decoding = self.base = self.whole = 0
        self.over = [0] * self.size
        self.ends: list[int] = []
        self.waiting: deque[int] = deque()
        self.cut, self.blocked = -1, ""

    def blocks_at(self, clock: int) -> int:
        """Blocks of those that decode, in their step at `clock`, if none ends before."""
        turns, place = divmod(clock, self.size)
        return self.whole + self.decoding * turns + sum(self.over[self.size - place :])

    def steps_within(self, repeats: int) -> int:
        """How many of the next `repeats` decode steps have their blocks; those are counted as run."""
        clock, blocks = self.clock, self.blocks
        if self.blocks_at(clock + repeats - 1) > blocks:
            repeats = bisect_right(range(repeats), blocks, key=lambda ahead: self.blocks_at(clock + ahead))
        if repeats:
            self.peak = max(self.peak, self.blocks_at(clock + repeats - 1))
        return repeats

    def let_in(self) -> list[CountedChunk] | None:
        """As `_go_on` and `_admit`: what is prefilled next to the requests that decode. None, and nothing is done,
        where the step might lack blocks."""
        size, limits, waiting, blocks = self.size, self.limits, self.waiting, self.blocks
        budget = limits.max_num_batched_tokens - self.decoding
        slots = limits.max_num_seqs - self.decoding
        chunks: list[CountedChunk] = []
        used = self.blocks_at(self.clock)
        if self.cut >= 0:
            tokens = min(budget, self.target[self.cut] - self.computed)
            used += -(-(self.computed + tokens) // size)
            chunks.append((self.cut, tokens, self.computed))
            budget -= tokens
            slots -= 1
        if used > blocks:
            return None
        self.blocked = ""
        while waiting:
            if budget <= 0:
                self.blocked = "prefill"
                break
            if slots <= 0:
                self.blocked = "slots"
                break
            place = waiting[0]
            target = self.target[place]
            tokens = target if target < budget else budget
            more = used - -tokens // size
            if more > blocks or (tokens < target and limits.reserves_all and used - -target // size > blocks):
                self.blocked = "kv"
                break
            used = more
            waiting.popleft()
            self.asked_tokens += target
            chunks.append((place, tokens, 0))
            budget -= tokens
            slots -= 1
        if used > self.peak:
            self.peak = used
        return chunks

    def ended(self) -> list[int]:
        """The places of those whose last decode step has just run; they hold nothing any more."""
        ends, size, over, clock = self.ends, self.size, self.over, self.clock
        places = []
        while ends and ends[0] >> self.shift == clock:
            place = heappop(ends) & ((1 << self.shift) - 1)
            places.append(place)
            held = self.held[place]
            self.base -= held
            self.whole -= held // size + 1
            over[held % size] -= 1
        self.decoding -= len(places)
        return places

    def computed_of(self, chunks: list[CountedChunk]) -> list[int]:
        """These chunks are computed: the places of those whose prompt is."""
        self.cut = -1
        done = []
        for place, tokens, before in chunks:
            if before + tokens < self.target[place]:
                self.cut, self.computed = place, before + tokens
            else:
                done.append(place)
        return done

    def prefilled(self, places: Sequence[int]) -> list[int]:
        """A step with the last chunks of these has run. Returns the places of those that ended with it."""
        ended: list[int] = []
        if self.decoding:
            self.clock = clock = self.clock + 1
            if self.ends[0] >> self.shift == clock:
                ended = self.ended()
        left = self.left
        for place in places:
            left[place] -= 1
        at_once = [place for place in places if not left[place]]
        if at_once:
            ended += at_once
            places = [place for place in places if left[place]]
        self.join(places, self.clock)
        return ended

    def join(self, places: Sequence[int], clock: int) -> None:
        """From the step at `clock` on these requests decode."""
        size, over, shift, ends = self.size, self.over, self.shift, self.ends
        number = self.joined
        for place in places:
            self.joins[place] = number = number + 1
            self.held[place] = held = self.target[place] - clock
            self.base += held
            self.whole += held // size + 1
            over[held % size] += 1
            heappush(ends, (clock + self.left[place] << shift) + place)
        self.joined = number
        self.decoding += len(places)


class CountingScheduler(Scheduler):
    """A scheduler that counts blocks where it may."""

    def counts(self, requests: Sequence[Request]) -> Counts | None:
        """Counts of a load in which nothing has come yet; None where the settings or its requests ask for more."""
        limits, cache = self.limits, self.kv.cache
        if (
            type(cache) is not PagedCache
            or self.drafts is not None
            or limits.by_priority
            or limits.prefill_first
            or limits.max_num_batched_tokens < limits.max_num_seqs
            or not all(request.input_tokens and not request.prefilled for request in requests)
        ):
            return None
        return Counts(requests, limits, cache.blocks, cache.block_size)

    def count(self, counts: Counts, place_of: Callable[[Entry], int]) -> bool:
        """Take all blocks back and count them. False, and nothing is done, where requests lie on the host."""
        if self.limits.swap and self.preemptions:
            return False
        for key in self.running:
            self.kv.cache.free(key)
        counts.clock = self._clock
        entries = sorted((e for e in self.running.values() if e.decoding), key=attrgetter("joined"))
        for entry in (*self._waiting, *self.running.values()):
            place = place_of(entry)
            counts.target[place], counts.left[place] = entry.target, entry.request.output_tokens - entry.produced
        for entry in entries:
            counts.join((place_of(entry),), entry.joined)
        counts.waiting.extend(map(place_of, self._waiting))
        if self._cut is not None:
            counts.cut, counts.computed = place_of(self._cut), self._cut.computed
        return True

    def hand_out(self, counts: Counts, entry_of: Callable[[int], Entry]) -> None:
        """Give the running requests the blocks that were counted for them; nothing is counted any more."""
        self._settled, self._swapped, self._joins, self._joined = True, 0, counts.joined, 0
        self._clock, self._decoding, self._base, self.blocked = counts.clock, counts.decoding, counts.base, ""
        self.running.clear()
        self._ends.clear()
        for due in self._due:
            due.clear()
        mask = (1 << counts.shift) - 1
        for order, place, end in sorted((counts.joins[n & mask], n & mask, n >> counts.shift) for n in counts.ends):
            entry, held = entry_of(place), counts.held[place]
            entry.decoding, entry.ends, entry.due = True, end, -held % counts.size
            entry.joined = entry.target - held
            entry.produced = entry.request.output_tokens - counts.left[place]
            entry.computed = entry.target
            self.running[entry.id] = self._due[entry.due][entry.id] = entry
            self._ends.append((end, order, entry))
            self._joined += entry.joined
            self.kv.cache.allocate(entry.id, held + counts.clock)
        heapify(self._ends)
        self._waiting = deque(map(entry_of, counts.waiting))
        self._cut = None
        if counts.cut >= 0:
            self._cut = entry = entry_of(counts.cut)
            entry.computed = counts.computed
            self.running[entry.id] = entry
            self.kv.cache.allocate(entry.id, entry.computed)
        self.kv.min_free = min(self.kv.min_free, counts.blocks - counts.peak)
        self.kv.asked_tokens += counts.asked_tokens
        counts.asked_tokens = 0
        counts.clear()
