"""What the scheduler asks of a KV cache, whichever it is: room for a chunk, room for one more token, hits."""

from __future__ import annotations

from scenarios.serving.entry import Entry
from scenarios.serving.kv_cache import ContiguousCache, OutOfCache, PagedCache, blocks_of
from scenarios.serving.kv_pool import KvPool
from scenarios.serving.prefix_cache import PrefixCache
from scenarios.serving.requests import Request

KvCache = ContiguousCache | PagedCache | PrefixCache
#: Share of the blocks that stays free of prompts where prompts go first (vLLM-Ascend 0.9.1, core/scheduler.py).
WATERMARK = 0.01


class Admission:
    """A cache as the scheduler sees it, and the pool of KV beyond it. block_size: 0 where a request never needs more
    than it was given."""

    def __init__(self, cache: KvCache, pool: KvPool | None = None) -> None:
        self.cache, self.pool = cache, pool
        self.block_size = 0 if isinstance(cache, ContiguousCache) else cache.block_size
        self._names = cache if isinstance(cache, PrefixCache) else None
        self.asked_tokens = self.hit_tokens = self.loaded_tokens = 0
        self.min_free = self.free_blocks
        # Of one request, in an empty cache.
        if isinstance(cache, ContiguousCache):
            self._most_tokens = cache.row_tokens if cache.rows else -1
        else:
            self._most_tokens = cache.blocks * cache.block_size

    @property
    def blocks(self) -> int:
        """Blocks, or rows."""
        return self.cache.rows if isinstance(self.cache, ContiguousCache) else self.cache.blocks

    @property
    def free_blocks(self) -> int:
        """Free blocks, or free rows."""
        return self.cache.free_rows if isinstance(self.cache, ContiguousCache) else self.cache.free_blocks

    @property
    def usage_peak(self) -> float:
        """Largest share of blocks (or rows) that was held at once."""
        return 1 - self.min_free / self.blocks if self.blocks else 0.0

    def longest(self, query: int) -> int:
        """Prompt and output tokens of the longest request that an empty cache holds to its end, with `query` tokens in
        its last step."""
        return self._most_tokens + 2 - query

    def uncomputed(self, entry: Entry) -> int:
        """Tokens of a waiting request that the cache does not hold."""
        if self._names is None:
            return entry.target
        hits = self._names.hits(self._names_of(entry)[: (entry.target - 1) // self.block_size])
        return entry.target - len(hits) * self.block_size

    def let_in(self, entry: Entry, budget: int, whole: bool = False, spare: bool = False) -> int | None:
        """Tokens of the first chunk of a waiting request, or None where the cache has no room for it, or with `whole`
        for all its chunks, or with `spare` if fewer than `WATERMARK` of its blocks would stay free for those that
        decode, unless nobody holds any. 0: its KV comes back from the host."""
        key, cache = entry.request.id, self.cache
        try:
            if entry.swapped or entry.comes_ready:
                # With the block of the token that it decodes next.
                cache.allocate(key, entry.target + 1 if self.block_size else entry.target)
                entry.computed = entry.target
                self._count()
                return 0
            shared: list[int] = []
            if self._names is not None:
                # The last token of a prompt is always computed: it yields the next one.
                names = self._names_of(entry)[: (entry.target - 1) // self.block_size]
                shared = self._names.hits(names)
                pooled = self.pool.hits(names[len(shared) :]) if self.pool is not None else 0
                entry.loaded_tokens = pooled * self.block_size
                entry.computed = len(shared) * self.block_size + entry.loaded_tokens
            if whole and not self._has_room(entry, shared, int(WATERMARK * self.blocks) if spare else 0):
                raise OutOfCache
            taken = min(budget, entry.target - entry.computed)
            if self._names is not None:
                self._names.allocate(key, entry.computed + taken, shared)
            else:
                cache.allocate(key, entry.computed + taken)
        except OutOfCache:
            entry.computed = entry.loaded_tokens = 0
            return None
        entry.hit_tokens = entry.computed
        self.asked_tokens += entry.target
        self.hit_tokens += entry.computed
        self.loaded_tokens += entry.loaded_tokens
        self._count()
        return taken

    def _has_room(self, entry: Entry, shared: list[int], spare: int = 0) -> bool:
        """Whether there are blocks for all that the entry must compute, and `spare` ones where others hold some; of
        those it shares, the ones that others hold take no room."""
        if not self.block_size:
            return True
        held = 0
        if self._names is not None and shared:
            held = sum(not self._names.pool.is_kept(block) for block in shared)
        left = self.free_blocks - blocks_of(entry.target, self.block_size) + held
        return left >= (spare if self.free_blocks < self.blocks else 0)

    def known_tokens(self, request: Request) -> int:
        """Tokens of a prompt that the cache holds already."""
        if self._names is None:
            return 0
        whole = (request.input_tokens - 1) // self.block_size
        return len(self._names.hits(request.block_names(self.block_size, whole * self.block_size))) * self.block_size

    def extend(self, entry: Entry, tokens: int) -> bool:
        """Let the request hold `tokens` tokens; False where the cache has no room."""
        key = entry.request.id
        try:
            self.cache.append(key, tokens - self.cache.tokens(key))
        except OutOfCache:
            return False
        self._count()
        return True

    def announce(self, entry: Entry, tokens: int) -> None:
        """The first `tokens` tokens of the request are there when the step that is planned has run: others may find
        them from now on, in the same step too, whose layers write all keys and values before any are read."""
        if self._names is not None:
            self._names.remember(entry.request.id, self._names_of(entry)[: tokens // self.block_size])

    def remember(self, entry: Entry) -> None:
        """What the request has computed may be found by others, and goes to the pool."""
        self.announce(entry, entry.computed)
        if self.pool is not None:
            self.pool.keep(self._names_of(entry)[: entry.computed // self.block_size])

    def free(self, entry: Entry) -> None:
        self.cache.free(entry.request.id)

    def _names_of(self, entry: Entry) -> list[tuple[int, int]]:
        """Names of all its whole blocks, output included."""
        if entry.names is None:
            request = entry.request
            entry.names = request.block_names(self.block_size, request.input_tokens + request.output_tokens)
        return entry.names

    def _count(self) -> None:
        free = self.free_blocks
        if free < self.min_free:
            self.min_free = free
