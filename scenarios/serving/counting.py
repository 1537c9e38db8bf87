"""The scheduler's steps where nothing is preempted, with KV blocks counted instead of handed out.

A simulator has no block tables to fill. Where requests are let in as they came and blocks have no contents that others
could find, all that a step needs is a number of blocks, and its plan is `Scheduler`'s in that arithmetic: from `count`
on, `plan_counted` and `commit_counted` stand for `plan` and `commit`, until `hand_out` gives the running requests their
blocks again. A step that might lack blocks is not planned here: who would lose its own is for `Scheduler` to say.
tests/sim/serving/test_counting.py holds the two against each other.
"""

from __future__ import annotations

from heapq import heapify, heappop

from scenarios.serving.entry import Entry
from scenarios.serving.kv_cache import PagedCache, blocks_of
from scenarios.serving.scheduler import Scheduler

#: What is prefilled in a step: (request, tokens, tokens in the cache before, whether they are its prompt's last).
CountedChunk = tuple[Entry, int, int, bool]

_NONE: list[Entry] = []


class CountingScheduler(Scheduler):
    """A scheduler that counts blocks where it may."""

    #: Of the step that `plan_counted` planned: requests that decode, tokens in their caches, what is prefilled.
    decoding: int
    context_tokens: int
    chunks: list[CountedChunk]
    _free: int
    #: Whether all requests so far start with tokens to compute.
    _computes = True

    def add(self, entry: Entry) -> None:
        if not entry.target or entry.comes_ready:
            self._computes = False
        super().add(entry)

    def count(self) -> bool:
        """Take the blocks of all requests back and count from now on; False, and nothing is done, where the settings or
        what has come ask for more than counting."""
        limits = self.limits
        if (
            not self._computes
            or type(self.kv.cache) is not PagedCache
            or self.drafts is not None
            or limits.by_priority
            or (limits.swap and self.preemptions)
        ):
            return False
        self._free = self.kv.free_blocks
        for key in self.running:
            self.kv.cache.free(key)
        current = {id(item[2]): item for item in self._ends if self._is_current(item)}
        self._ends = list(current.values())
        heapify(self._ends)
        self._settled = True
        self._swapped = 0
        return True

    def hand_out(self) -> None:
        """Give the running requests the blocks that were counted for them."""
        for key, entry in self.running.items():
            held = entry.target + self._clock - entry.joined if entry.decoding else entry.computed
            self.kv.cache.allocate(key, held)

    def plan_counted(self) -> bool:
        """As `plan`: the step decodes `decoding` requests with `context_tokens` in their caches and prefills `chunks`.
        False, and nothing is done, where it might lack blocks."""
        self.decoding = decoding = self._decoding
        self.context_tokens = self._base + decoding * self._clock
        grown = len(self._due[self._clock % self._size]) if decoding else 0
        if self._waiting or self._cut is not None:
            return self._plan_prefills(grown)
        if grown:
            if grown > self._free:
                return False
            self._take(grown)
        self.chunks = []
        self.blocked = ""
        return True

    def _take(self, blocks: int) -> None:
        self._free -= blocks
        if self._free < self.kv.min_free:
            self.kv.min_free = self._free

    def _plan_prefills(self, grown: int) -> bool:
        cut, size = self._cut, self._size
        budget = self.limits.max_num_batched_tokens - self._decoding
        chunks: list[CountedChunk] = []
        if cut is not None:
            tokens = min(budget, cut.target - cut.computed)
            if tokens > 0:
                grown += blocks_of(cut.computed + tokens, size) - blocks_of(cut.computed, size)
                chunks.append((cut, tokens, cut.computed, cut.computed + tokens == cut.target))
                budget -= tokens
        if grown > self._free or not self._computes:
            return False
        if chunks and chunks[0][3]:
            self._cut = None
        self._take(grown)
        self.chunks = chunks
        self.blocked = self._admit_counted(budget) if self._waiting else ""
        return True

    def _admit_counted(self, budget: int) -> str:
        """As `_admit`."""
        limits, waiting, running, size, free = self.limits, self._waiting, self.running, self._size, self._free
        blocked = ""
        while waiting:
            if budget <= 0:
                blocked = "prefill"
                break
            if len(running) >= limits.max_num_seqs:
                blocked = "slots"
                break
            entry = waiting[0]
            target = entry.target
            tokens = target if target < budget else budget
            blocks = -(-tokens // size)
            if (-(-target // size) if limits.reserves_all else blocks) > free:
                blocked = "kv"
                break
            free -= blocks
            waiting.popleft()
            running[entry.request.id] = entry
            self.kv.asked_tokens += target
            self.chunks.append((entry, tokens, 0, tokens == target))
            if tokens < target:
                self._cut = entry
            budget -= tokens
        self._take(self._free - free)
        return blocked

    def steady_counted(self) -> int:
        """As `steady`."""
        repeats = self._ends[0][0] - self._clock
        if self._decoding * (repeats // self._size + 1) <= self._free:
            return repeats
        left = self._free
        for ahead in range(1, repeats):
            left -= len(self._due[(self._clock + ahead) % self._size])
            if left < 0:
                return ahead
        return repeats

    def commit_counted(self, repeats: int = 1) -> list[Entry]:
        """As `commit`, of the step's decodes: the requests that ended with them."""
        if repeats > 1:
            self._grow_counted(repeats - 1)
        self._clock += repeats
        ends, clock = self._ends, self._clock
        if ends[0][0] > clock:
            return _NONE
        ended = []
        while ends and ends[0][0] <= clock:
            entry = heappop(ends)[2]
            self._stop_decoding(entry)
            self._leave_counted(entry)
            ended.append(entry)
        return ended

    def commit_chunks(self) -> list[Entry]:
        """As `commit`, of the step's prefills, after its decodes: the requests that ended with them."""
        ended = _NONE
        for entry, tokens, _, is_last in self.chunks:
            entry.computed += tokens
            if is_last:
                entry.produced += 1
                if entry.produced < entry.request.output_tokens:
                    self._decode(entry)
                else:
                    self._leave_counted(entry)
                    ended = [*ended, entry]
        return ended

    def _grow_counted(self, steps: int) -> None:
        """The blocks of so many steps after the one planned."""
        due, size = self._due, self._size
        blocks = steps // size * self._decoding
        place = (self._clock + 1) % size
        for _ in range(steps % size):
            blocks += len(due[place])
            place = place + 1 if place + 1 < size else 0
        if blocks:
            self._take(blocks)

    def _leave_counted(self, entry: Entry) -> None:
        del self.running[entry.request.id]
        entry.computed = entry.target
        self._free += -(-entry.target // self._size)
