"""Which requests are in the next step: continuous batching with chunked prefill, as vLLM V1 does it.

Running requests come first, each decoding one with one token; then a prefill that was cut goes on; then waiting ones
are let in while there are slots (`max_num_seqs`), tokens (`max_num_batched_tokens`) and KV blocks for all their tokens.
A chunk takes all tokens that are left, so that at most one prefill is ever cut, and it is the last to have come.
A request that finds no block for its next token makes the last one to have come (by priority: the one with the largest
number) lose its own.

With `prefill_first`, as vLLM-Ascend's own scheduler and MindIE do it, prompts are never cut: waiting ones are let in
whole, as many as a step's tokens hold and one at least, in a step of their own, and what decodes stands still in it.

Times are not known here. The simulator and the device engine drive the same object: `plan`, run the step, `commit`.
Between two events nothing changes, so a driver may run a step of decodes `steady()` times and commit them at once.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import field
from math import ceil

from scenarios.records import dataclass
from scenarios.serving.admission import Admission, KvCache
from scenarios.serving.drafts import Drafts
from scenarios.serving.entry import Entry
from scenarios.serving.kv_pool import KvPool
from scenarios.serving.requests import Request


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine allows. by_priority: waiting requests by their priority, not as they came. swap: a request that
    loses its blocks is copied to the host, not computed again. reserves_all: a request is let in where there are blocks
    for all that must be computed; otherwise for its first chunk, and then a full cache makes the prefills of the last
    to have come start again and again. prefill_first: steps are of whole prompts or of decoding requests, and waiting
    prompts go first."""

    max_num_seqs: int
    max_num_batched_tokens: int
    by_priority: bool = False
    swap: bool = False
    reserves_all: bool = True
    prefill_first: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """`tokens` tokens of a prompt that are computed on `start` in the cache; the last of a prompt yields a token."""

    entry: Entry
    tokens: int
    start: int
    is_last: bool


@dataclass(slots=True)
class Step:
    """What runs together. decoding: requests with one token each, on context_tokens in the cache all together.
    swapped_tokens: tokens of KV that cross between host and device before it. loaded_tokens: of prompts that come from
    the pool of KV beyond the cache. ready: requests whose prompt another
    instance has computed and that decode here for the first time. lost: requests that lost their blocks before it;
    resumed: of such ones those that decode in it because their KV came back from the host."""

    decoding: int
    context_tokens: int
    chunks: list[Chunk] = field(default_factory=list)
    swapped_tokens: int = 0
    loaded_tokens: int = 0
    ready: list[Entry] = field(default_factory=list)
    lost: list[Entry] = field(default_factory=list)
    resumed: list[Entry] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.decoding or self.chunks)


class Scheduler:
    """The queues of a serving engine. drafts: of speculative decoding. pool: of KV beyond the cache."""

    def __init__(
        self, limits: Limits, cache: KvCache, drafts: Drafts | None = None, pool: KvPool | None = None
    ) -> None:
        self.limits = limits
        self.kv = Admission(cache, pool)
        self.drafts = drafts
        self._query = drafts.query if drafts else 1
        self._longest = self.kv.longest(self._query)
        self.running: dict[int, Entry] = {}  # in the order in which they were let in
        self._waiting: deque[Entry] = deque()
        self._urgent: list[tuple[int, int, int, Entry]] = []
        self._cut: Entry | None = None
        self._clock = 0  # decode steps so far
        self._decoding = 0
        self._base = 0  # of all decoding: tokens held less the clock at that time
        self._joined = 0  # of all decoding: the clock at that time
        self._ends: list[tuple[int, int, Entry]] = []
        self._joins = 0
        size = self.kv.block_size
        if drafts and size:  # blocks are given for so many steps at once
            size = max(1, int(size / drafts.tokens_per_step))
        self._due: list[dict[int, Entry]] = [{} for _ in range(size)]
        self._size = size
        self.preemptions = 0
        #: Why the first waiting request was not let in by the last plan: slots, kv, prefill (tokens), or "".
        self.blocked = ""
        self._swapped = 0
        self._lost: list[Entry] = []  # by the plan that is made
        self._joining: tuple[list[Entry], list[Entry]] = [], []  # ready and resumed, let in by a step of prompts
        self._settled = True

    @property
    def waiting(self) -> int:
        """Requests that wait to be let in."""
        return len(self._urgent) if self.limits.by_priority else len(self._waiting)

    @property
    def decoding(self) -> int:
        """Requests that decode, whether or not the step just planned lets them."""
        return self._decoding

    @property
    def may_admit(self) -> bool:
        """Whether a request that comes now could be in the next step, as far as slots and queue say."""
        return not self.waiting and len(self.running) < self.limits.max_num_seqs

    def takes(self, request: Request) -> bool:
        """Whether an empty cache holds the request to its end."""
        return request.input_tokens + request.output_tokens <= self._longest

    def entry(self, request: Request) -> Entry | None:
        """The request as the scheduler keeps it; None where not even an empty cache holds it to its end."""
        if not self.takes(request):
            return None
        entry = Entry(request)
        if self.drafts:
            entry.steps = self.drafts.steps(request.output_tokens - 1 + request.prefilled)
        return entry

    def add(self, entry: Entry) -> None:
        """A request has come."""
        self._queue(entry, first=False)

    def plan(self) -> Step:
        """The next step; KV blocks for it are given out. Empty where nothing can run."""
        before = self.preemptions
        self._swapped = 0
        if self.limits.prefill_first and (step := self._prefills()).chunks:
            return step
        if self._size and self._due[self._clock % self._size]:
            self._grow(self._clock)
        step = Step(self._decoding, self._context(), ready=self._joining[0])
        step.resumed = [entry for entry in self._joining[1] if entry.decoding]
        self._joining = [], []
        budget = self.limits.max_num_batched_tokens - step.decoding * self._query
        if self._cut is not None:
            budget -= self._go_on(self._cut, budget, step)
        if not self.limits.prefill_first:
            self.blocked = ""
            if self.waiting:
                self.blocked = self._admit(budget, step) if self.preemptions == before else "kv"
        self._settled = self.preemptions == before  # else the next plan may let one in
        if self.preemptions != before:
            step.decoding, step.context_tokens = self._decoding, self._context()
            step.lost, self._lost = self._lost, []
        step.swapped_tokens = self._swapped
        return step

    def _prefills(self) -> Step:
        """A step of whole prompts, what decodes standing still; one without chunks where no prompt is let in."""
        step, self.blocked, self._settled = Step(0, 0), "", True
        if self.waiting:
            self.blocked = self._admit(self.limits.max_num_batched_tokens, step)
        step.decoding = step.context_tokens = 0  # what is there without a prefill decodes from the next step on
        for later, entries in zip(self._joining, (step.ready, step.resumed), strict=True):
            later += entries
        step.ready, step.resumed = [], []
        step.swapped_tokens = self._swapped
        return step

    def _context(self) -> int:
        """Tokens in the cache of all decoding requests."""
        if self.drafts is None:
            return self._base + self._decoding * self._clock
        steps = self._decoding * self._clock - self._joined
        return self._base + self._joined + round(steps * self.drafts.tokens_per_step)

    def steady(self) -> int:
        """How often the step just planned, if it has no chunks, can run before its composition changes."""
        if not self._settled:
            return 1
        while self._ends and not self._is_current(self._ends[0]):
            heapq.heappop(self._ends)
        repeats = self._ends[0][0] - self._clock
        blocks = 1 if self.drafts is None else 2 + self._query // self.kv.block_size if self._size else 0
        if not self._size or blocks * self._decoding * (repeats // self._size + 1) <= self.kv.free_blocks:
            return repeats
        left = self.kv.free_blocks
        for ahead in range(1, repeats):
            left -= blocks * len(self._due[(self._clock + ahead) % self._size])
            if left < 0:
                return ahead
        return repeats

    def commit(self, step: Step, repeats: int = 1) -> tuple[list[Entry], list[Entry]]:
        """The step has run, `repeats` times. Returns (requests whose prefill ended, requests that ended)."""
        ended: list[Entry] = []
        if step.decoding:
            if self._size:
                for clock in range(self._clock + 1, self._clock + repeats):
                    if self._due[clock % self._size]:
                        self._grow(clock)
            self._clock += repeats
            while self._ends and self._ends[0][0] <= self._clock:
                item = heapq.heappop(self._ends)
                if self._is_current(item):
                    self._end(item[2])
                    ended.append(item[2])
        prefilled = []
        for chunk in step.chunks:
            entry = chunk.entry
            entry.computed += chunk.tokens
            self.kv.remember(entry)
            if chunk.is_last:
                prefilled.append(entry)
                entry.produced += 1
                if entry.produced == entry.request.output_tokens:
                    self._leave(entry)
                    ended.append(entry)
                else:
                    self._decode(entry)
        return prefilled, ended

    def _queue(self, entry: Entry, first: bool) -> None:
        if self.limits.by_priority:
            request = entry.request
            heapq.heappush(self._urgent, (request.priority, request.arrival_ns, request.id, entry))
        elif first:
            self._waiting.appendleft(entry)
        else:
            self._waiting.append(entry)

    def _head(self) -> Entry:
        return self._urgent[0][-1] if self.limits.by_priority else self._waiting[0]

    def _pop_head(self) -> Entry:
        return heapq.heappop(self._urgent)[-1] if self.limits.by_priority else self._waiting.popleft()

    def _admit(self, budget: int, step: Step) -> str:
        """Let waiting requests in; says why the first that is left was not."""
        while self.waiting:
            if budget <= 0:
                return "prefill"
            if len(self.running) >= self.limits.max_num_seqs:
                return "slots"
            entry = self._head()
            if self.limits.prefill_first:
                left = 0 if entry.swapped else self.kv.uncomputed(entry)
                if left > budget and step.chunks:
                    return "prefill"
                taken = self.kv.let_in(entry, max(budget, left), whole=True, spare=True)
            else:
                taken = self.kv.let_in(entry, budget, self.limits.reserves_all)
            if taken is None:
                return "kv"
            self._pop_head()
            self.running[entry.request.id] = entry
            step.loaded_tokens += entry.loaded_tokens
            if taken == 0:  # all computed: swapped in, or come from another instance
                (step.ready if entry.comes_ready else step.resumed).append(entry)
                self._swapped += entry.swapped
                entry.swapped = 0
                self._decode(entry)
                step.decoding, budget = step.decoding + 1, budget - self._query
                step.context_tokens += entry.held
                continue
            budget -= taken
            self._chunk(entry, taken, step)
        return ""

    def _go_on(self, entry: Entry, budget: int, step: Step) -> int:
        taken = min(budget, entry.target - entry.computed)
        if taken <= 0:
            return 0
        while not self.kv.extend(entry, entry.computed + taken):
            victim = self._victim()
            self._preempt(victim)
            if victim is entry:
                return 0
        self._chunk(entry, taken, step)
        return taken

    def _chunk(self, entry: Entry, tokens: int, step: Step) -> None:
        self.kv.announce(entry, entry.computed + tokens)
        is_last = entry.computed + tokens == entry.target
        self._cut = None if is_last else entry
        step.chunks.append(Chunk(entry, tokens, entry.computed, is_last))

    def _decode(self, entry: Entry) -> None:
        """From the next step on the entry decodes."""
        entry.joined, entry.decoding = self._clock, True
        left = entry.steps if self.drafts else entry.request.output_tokens - entry.produced
        entry.ends = self._clock + left
        self._joins += 1  # an entry that was preempted may stand here twice
        heapq.heappush(self._ends, (entry.ends, self._joins, entry))
        self._decoding += 1
        self._base += entry.target - self._clock
        self._joined += self._clock
        if self._size:
            entry.due = (self._clock - (0 if self.drafts else entry.target)) % self._size
            self._due[entry.due][entry.request.id] = entry

    def _is_current(self, item: tuple[int, int, Entry]) -> bool:
        return item[2].decoding and item[2].ends == item[0]

    def _grow(self, clock: int) -> None:
        """A block for each request whose last one is full at `clock`; where there is none, another loses its own."""
        for entry in list(self._due[clock % self._size].values()):
            while entry.decoding and not self.kv.extend(entry, self._needed(entry, clock - entry.joined)):
                self._preempt(self._victim())

    def _needed(self, entry: Entry, steps: int) -> int:
        """Tokens that its blocks must hold for the step after `steps`, or for all steps until more are given."""
        if self.drafts is None:
            return entry.target + steps + 1
        request = entry.request
        last = request.input_tokens + request.output_tokens - 2
        grown = entry.target + ceil((steps + self._size) * self.drafts.tokens_per_step)
        return max(self.kv.cache.tokens(request.id), min(last, grown) + self._query)

    def _victim(self) -> Entry:
        """Who loses its blocks: who came last, or who has the largest priority number."""
        if self.limits.by_priority:
            return max(self.running.values(), key=lambda e: (e.request.priority, e.request.arrival_ns, e.request.id))
        return self.running[next(reversed(self.running))]

    def _stop_decoding(self, entry: Entry) -> None:
        """The entry decodes no more; what it has produced and holds is written down."""
        steps = self._clock - entry.joined
        self._decoding -= 1
        self._base -= entry.target - entry.joined
        self._joined -= entry.joined
        entry.decoding = False
        if self._size:
            del self._due[entry.due][entry.request.id]
        tokens = self._yielded(entry, steps)
        entry.produced += tokens
        entry.target += tokens

    def _yielded(self, entry: Entry, steps: int) -> int:
        """Output tokens of `steps` decode steps since it joined."""
        if self.drafts is None:
            return steps
        left = entry.request.output_tokens - entry.produced
        entry.steps -= steps
        return left if not entry.steps else min(left - 1, round(steps * self.drafts.tokens_per_step))

    def _preempt(self, entry: Entry) -> None:
        self.preemptions += 1
        entry.preemptions += 1
        self._lost.append(entry)
        if entry is self._cut:
            self._cut = None
        held = entry.computed
        if entry.decoding:
            self._stop_decoding(entry)
            held = entry.computed = entry.target
        self.kv.remember(entry)  # what nobody takes until it is let in again is not computed again
        del self.running[entry.request.id]
        self.kv.free(entry)
        if self.limits.swap and held == entry.target:
            entry.swapped = held
            self._swapped += held
        else:  # all tokens so far are its prompt now
            entry.target = entry.request.input_tokens + entry.produced
        entry.computed = 0
        self._queue(entry, first=True)

    def _end(self, entry: Entry) -> None:
        self._stop_decoding(entry)
        self._leave(entry)

    def _leave(self, entry: Entry) -> None:
        del self.running[entry.request.id]
        entry.computed = entry.target
        self.kv.remember(entry)
        self.kv.free(entry)
