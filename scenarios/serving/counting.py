"""The scheduler's steps where nothing is preempted, with KV blocks counted instead of handed out.

A simulator has no block tables to fill. Where requests are let in as they came and blocks have no contents that others
could find, all that a step needs is a number of blocks, and its plan is `Scheduler`'s in that arithmetic: `counted`
stands for `plan` and `commit`, from taking all blocks back until the running requests have theirs again. A step that
might lack blocks is not planned here: who would lose its own is for `Scheduler` to say.
tests/sim/serving/test_counting.py holds the two against each other.

Some hundred thousand steps go through `_counted`: its state is in locals, and it calls nothing that a few lines can do.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import Any

from scenarios.serving.entry import Entry
from scenarios.serving.kv_cache import PagedCache
from scenarios.serving.scheduler import Scheduler

#: What is prefilled in a step: (request, tokens, tokens in the cache before, whether they are its prompt's last).
CountedChunk = tuple[Entry, int, int, bool]
#: A step that is planned: (requests that decode, tokens in their caches, what is prefilled, tokens of that, how often
#: the step can run before its composition changes, whether a request that comes now could be in the next one).
CountedStep = tuple[int, int, list[CountedChunk], int, int, bool]
#: A step, then the requests that ended with it, and so on. It is sent how often the step has run; None for one that is
#: empty, and then plans again.
CountedSteps = Generator[Any, int | None, None]

_NO_CHUNKS: list[CountedChunk] = []
_NO_ENTRIES: list[Entry] = []


class CountingScheduler(Scheduler):
    """A scheduler that counts blocks where it may."""

    #: Whether nothing runs, between two steps of `counted`.
    is_idle = True
    #: Whether all requests so far start with tokens to compute.
    _computes = True

    def add(self, entry: Entry) -> None:
        if not entry.target or entry.request.prefilled:
            self._computes = False
        if self.limits.by_priority:
            super().add(entry)
        else:
            self._waiting.append(entry)

    def counted(self) -> CountedSteps | None:
        """Steps with their blocks counted, up to one that might lack some; then, or when it is closed, all running
        requests hold their blocks. None where the settings or what has come ask for more than counting."""
        limits = self.limits
        if (
            not self._computes
            or type(self.kv.cache) is not PagedCache
            or self.drafts is not None
            or limits.by_priority
            or limits.prefill_first
            or (limits.swap and self.preemptions)
        ):
            return None
        return self._counted()

    def _counted(self) -> CountedSteps:
        waiting, size, slots = self._waiting, self._size, self.limits.max_num_seqs
        clock, decoding, base = self._clock, self._decoding, self._base
        books = self._take_back()
        due, ending, ends = books.due, books.ending, books.ends
        free = lowest = books.free
        try:
            while True:
                place = clock % size
                left = free - due[place]
                chunks, tokens = _NO_CHUNKS, 0
                if waiting or self._cut is not None:
                    chunks = []
                    left, tokens = self._let_in(left, decoding, chunks)
                elif self.blocked:
                    self.blocked = ""
                if left < 0:
                    return
                free = left
                most = 1
                if decoding and not chunks:
                    most = ends[0] - clock
                    if decoding * most > free:
                        most = _steps_within(free, due, decoding, clock, most)
                may_admit = decoding < slots and not waiting
                repeats = yield decoding, base + decoding * clock, chunks, tokens, most, may_admit
                if repeats is None:
                    continue
                if repeats > 1:  # blocks of the steps after the one planned
                    end = place + repeats
                    if repeats > size:
                        free -= (repeats - 1) // size * decoding
                        end -= (repeats - 1) // size * size
                    place += 1
                    while place < end:
                        free -= due[place if place < size else place - size]
                        place += 1
                if free < lowest:
                    lowest = free
                ended = _NO_ENTRIES
                if decoding:
                    clock += repeats
                    if ends[0] == clock:  # as `_end`
                        heappop(ends)
                        ended = ending.pop(clock)
                        for entry in ended:
                            held = entry.target - entry.joined
                            base -= held
                            free -= (-held - clock) // size
                            due[entry.due] -= 1
                        decoding -= len(ended)
                if chunks:
                    joined, held, freed, at_once = books.prefilled(chunks, clock)
                    decoding, base, free = decoding + joined, base + held, free + freed
                    if at_once:
                        ended = [*ended, *at_once]
                self.is_idle = not decoding and self._cut is None
                yield ended
        finally:
            self._clock, self._decoding, self._base = clock, decoding, base
            self.kv.min_free = min(self.kv.min_free, lowest)
            self._hand_out(books)

    def _let_in(self, free: int, decoding: int, chunks: list[CountedChunk]) -> tuple[int, int]:
        """As `_go_on` and `_admit`: chunks next to `decoding` requests. (blocks that are free then, tokens of the
        chunks); of blocks fewer than 0, and nothing is done, where the step might lack some."""
        if not self._computes:
            return -1, 0
        size, limits, waiting, kv = self._size, self.limits, self._waiting, self.kv
        whole = budget = limits.max_num_batched_tokens - decoding
        slots = limits.max_num_seqs - decoding
        entry = self._cut
        if entry is not None:
            done, target = entry.computed, entry.target
            tokens = min(budget, target - done)
            if tokens > 0:
                free -= -(-(done + tokens) // size) - -(-done // size)
            if free < 0:
                return free, 0
            slots -= 1
            if tokens > 0:
                chunks.append((entry, tokens, done, done + tokens == target))
                budget -= tokens
                if done + tokens == target:
                    self._cut = None
        self.blocked = ""
        while waiting:
            if budget <= 0:
                self.blocked = "prefill"
                break
            if slots <= 0:
                self.blocked = "slots"
                break
            entry = waiting[0]
            target = entry.target
            tokens = target if target < budget else budget
            left = free - -(-tokens // size)
            if left < 0 or (tokens < target and limits.reserves_all and -(-target // size) > free):
                self.blocked = "kv"
                break
            free = left
            del waiting[0]
            kv.asked_tokens += target
            chunks.append((entry, tokens, 0, tokens == target))
            if tokens < target:
                self._cut = entry
            budget -= tokens
            slots -= 1
        return free, whole - budget

    def _take_back(self) -> _Books:
        """All blocks from the running requests; what is counted instead."""
        books = _Books(self.kv.free_blocks, [len(entries) for entries in self._due])
        for key in self.running:
            self.kv.cache.free(key)
        for entry in sorted((e for e in self.running.values() if e.decoding), key=attrgetter("joined")):
            books.joins += 1
            entry.order = books.joins
            books.ending.setdefault(entry.ends, []).append(entry)
        books.ends = sorted(books.ending)
        self.is_idle, self.blocked = not self.running, ""
        return books

    def _hand_out(self, books: _Books) -> None:
        """Give the running requests the blocks that were counted for them."""
        self._settled, self._swapped, self._joins, self._joined = True, 0, books.joins, 0
        self.running.clear()
        self._ends.clear()
        for due in self._due:
            due.clear()
        cache = self.kv.cache
        for entry in sorted(chain.from_iterable(books.ending.values()), key=attrgetter("order")):
            entry.decoding = True
            self.running[entry.id] = self._due[entry.due][entry.id] = entry
            self._ends.append((entry.ends, entry.order, entry))
            self._joined += entry.joined
            cache.allocate(entry.id, entry.target + self._clock - entry.joined)
        heapify(self._ends)
        if self._cut is not None:
            self.running[self._cut.id] = self._cut
            cache.allocate(self._cut.id, self._cut.computed)


@dataclass(slots=True)
class _Books:
    """free: blocks that nobody held at first. due: how many decoding requests need a block at each clock, modulo the
    block size. ending: who ends at which clock; ends: a heap of those clocks. joins: how often one joined."""

    free: int
    due: list[int]
    ending: dict[int, list[Entry]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    joins: int = 0

    def prefilled(self, chunks: list[CountedChunk], clock: int) -> tuple[int, int, int, list[Entry]]:
        """A step with these chunks has run. (requests that decode from now on, tokens that they hold less the clock,
        blocks of those that ended at once, and those)."""
        joined = held = freed = 0
        ended, due = _NO_ENTRIES, self.due
        for entry, tokens, _, is_last in chunks:
            entry.computed += tokens
            if not is_last:
                continue
            target = entry.target
            entry.produced = produced = entry.produced + 1
            left = entry.request.output_tokens - produced
            if not left:
                freed -= -target // len(due)
                ended = [*ended, entry]
                continue
            joined += 1  # as `_decode`
            held += target - clock
            self.joins += 1
            entry.order, entry.joined = self.joins, clock
            entry.ends = end = clock + left
            entry.due = place = (clock - target) % len(due)
            due[place] += 1
            if end in self.ending:
                self.ending[end].append(entry)
            else:
                self.ending[end] = [entry]
                heappush(self.ends, end)
        return joined, held, freed, ended


def _steps_within(free: int, due: list[int], decoding: int, clock: int, repeats: int) -> int:
    """How many of `repeats` decode steps from `clock` on, of which the first has its blocks, `free` blocks serve."""
    if decoding * (repeats // len(due) + 1) <= free:
        return repeats
    for ahead in range(1, repeats):
        free -= due[(clock + ahead) % len(due)]
        if free < 0:
            return ahead
    return repeats
