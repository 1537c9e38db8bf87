"""The rules of vLLM V1's scheduler and KV cache manager, one request and one block at a time.

Written from what the public source does, with nothing counted ahead and nothing remembered: a request is a list of
numbers, running ones stand in one list, and every step looks at each of them. `scenarios.serving.scheduler` must give
the same steps, but for two things: who of several that end or lose blocks with one step is first to give them back, so
which named block is taken first later on; and vLLM leaves out, for that one step, the running requests after one that
loses its own blocks by priority (`skips`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from scenarios.serving.requests import Request
from scenarios.serving.scheduler import Limits

Name = tuple[int, int]


@dataclass(slots=True)
class State:
    """A request. tokens: prompt and what it has produced; computed: of them, in the cache."""

    request: Request
    tokens: int
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    preemptions: int = 0


@dataclass
class Rules:
    """caches: whole blocks are found by what they hold, from the step on that computes them. skips: see above."""

    limits: Limits
    blocks: int
    block_size: int
    caches: bool
    skips: bool = True
    running: list[State] = field(default_factory=list)
    waiting: list[State] = field(default_factory=list)
    hit_tokens: int = 0

    def __post_init__(self) -> None:
        self.free: OrderedDict[int, None] = OrderedDict((n, None) for n in range(self.blocks))  # next to take first
        self.holders = [0] * self.blocks
        self.names: dict[int, Name] = {}
        self.found: dict[Name, int] = {}

    def add(self, request: Request) -> None:
        self.waiting.append(State(request, request.input_tokens))
        self._sort()

    def _sort(self) -> None:
        if self.limits.by_priority:
            self.waiting.sort(key=lambda s: (s.request.priority, s.request.arrival_ns, s.request.id))

    def step(self) -> list[tuple[int, int, int]]:
        """[(request, tokens in the cache before, tokens)] of the next step, in the order of its requests."""
        budget, scheduled, preempted = self.limits.max_num_batched_tokens, dict[int, tuple[int, int, int]](), False
        place = 0
        while place < len(self.running) and budget > 0:
            state = self.running[place]
            new = min(state.tokens - state.computed, budget)
            while not (fits := self._allocate(state, state.computed + new)):
                preempted = True
                victim = self._victim()
                if victim.request.id in scheduled:
                    budget += scheduled.pop(victim.request.id)[2]
                    place -= 1
                self._preempt(victim)
                if victim is state:
                    break
            if not fits and self.skips:
                break
            if not fits:
                continue
            scheduled[state.request.id] = state.request.id, state.computed, new
            self._cache(state, state.computed + new)
            budget -= new
            place += 1
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            state = self.waiting[0]
            hits = self._hits(state)
            computed = len(hits) * self.block_size
            new = min(state.tokens - computed, budget)
            whole = state.tokens if self.limits.reserves_all else computed + new
            needed = -(-whole // self.block_size) - sum(self.holders[block] > 0 for block in hits)
            if needed > len(self.free):
                break
            for block in hits:
                self._hold(block)
            state.blocks, state.computed = list(hits), computed
            self.hit_tokens += computed
            assert self._allocate(state, computed + new)
            self.running.append(self.waiting.pop(0))
            scheduled[state.request.id] = state.request.id, computed, new
            self._cache(state, computed + new)
            budget -= new
        return self._ran(list(scheduled.values()))

    def _ran(self, scheduled: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        states = {state.request.id: state for state in self.running}
        for number, _, new in scheduled:
            state = states[number]
            state.computed += new
            if state.computed == state.tokens:  # one token comes out
                request = state.request
                if state.tokens + 1 == request.input_tokens + request.output_tokens:
                    self._cache(state, state.computed)
                    self.running.remove(state)
                    self._free(state)
                state.tokens += 1
        return scheduled

    def _victim(self) -> State:
        if self.limits.by_priority:
            return max(self.running, key=lambda s: (s.request.priority, s.request.arrival_ns, s.request.id))
        return self.running[-1]

    def _preempt(self, state: State) -> None:
        self.running.remove(state)
        self._free(state)
        state.computed = 0
        state.preemptions += 1
        self.waiting.insert(0, state)
        self._sort()

    def _allocate(self, state: State, tokens: int) -> bool:
        new = -(-tokens // self.block_size) - len(state.blocks)
        if new > len(self.free):
            return False
        for _ in range(new):
            block = next(iter(self.free))
            if block in self.names:
                del self.found[self.names.pop(block)]
            self._hold(block)
            state.blocks.append(block)
        return True

    def _hold(self, block: int) -> None:
        self.free.pop(block, None)
        self.holders[block] += 1

    def _free(self, state: State) -> None:
        for block in reversed(state.blocks):
            self.holders[block] -= 1
            if not self.holders[block]:
                self.free[block] = None
                if block not in self.names:
                    self.free.move_to_end(block, last=False)
        state.blocks = []

    def _hits(self, state: State) -> list[int]:
        names = state.request.block_names(self.block_size, state.tokens - 1) if self.caches else []
        hits: list[int] = []
        for name in names:
            if name not in self.found:
                break
            hits.append(self.found[name])
        return hits

    def _cache(self, state: State, tokens: int) -> None:
        """The whole blocks of the first `tokens` tokens are found from now on."""
        if not self.caches:
            return
        names = state.request.block_names(self.block_size, min(tokens, state.tokens))
        for block, name in zip(state.blocks, names, strict=False):
            if name not in self.found and block not in self.names:
                self.names[block], self.found[name] = name, block
