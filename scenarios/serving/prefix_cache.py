"""A paged KV cache in which whole blocks of equal contents are held once, also after their request has ended.

Contents have names (`Request.block_names`): equal names, equal tokens from the first on. A block that is only
partly full has no name; it is shared after `fork` alone, and copied before one of its holders writes into it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from scenarios.serving.block_pool import BlockPool
from scenarios.serving.kv_cache import Request, blocks_of


class PrefixCache:
    """`blocks` blocks of `block_size` tokens; requests find what others have computed."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.blocks, self.block_size = blocks, block_size
        self.pool = BlockPool(blocks)
        self._table: dict[Request, list[int]] = {}
        self._tokens: dict[Request, int] = {}

    @property
    def free_blocks(self) -> int:
        return self.pool.free_blocks

    def hits(self, names: Sequence[Hashable]) -> list[int]:
        """The blocks of the longest run of first names whose contents are here."""
        blocks: list[int] = []
        for name in names:
            block = self.pool.find(name)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def allocate(self, request: Request, tokens: int, shared: Sequence[int] = ()) -> None:
        """Give `request` the blocks of `tokens` tokens, the first of which are the blocks `shared`.

        Raises OutOfCache where there are too few blocks and changes nothing, ValueError where the request has some.
        """
        if request in self._table:
            raise ValueError(f"request {request!r} has blocks already")
        for block in shared:  # first, so that taking does not forget them
            self.pool.hold(block)
        try:
            fresh = self.pool.take(blocks_of(tokens, self.block_size) - len(shared))
        except Exception:
            for block in reversed(shared):
                self.pool.drop(block)
            raise
        self._table[request] = [*shared, *fresh]
        self._tokens[request] = tokens

    def append(self, request: Request, tokens: int = 1) -> list[tuple[int, int]]:
        """`request` holds `tokens` more. Returns (from, to) of a block that must be copied first, if any.

        Raises OutOfCache where there are too few blocks, and changes nothing.
        """
        table, held = self._table[request], self._tokens[request]
        copy = bool(tokens and held % self.block_size and self.pool.holders(table[-1]) > 1)
        fresh = self.pool.take(blocks_of(held + tokens, self.block_size) - len(table) + copy)
        copies = []
        if copy:
            copies = [(table[-1], fresh[0])]
            self.pool.drop(table[-1])
            table[-1] = fresh.pop(0)
        table += fresh
        self._tokens[request] = held + tokens
        return copies

    def fork(self, parent: Request, child: Request) -> None:
        """`child` starts with all that `parent` holds (parallel sampling); what either writes next is its own."""
        if child in self._table:
            raise ValueError(f"request {child!r} has blocks already")
        for block in self._table[parent]:
            self.pool.hold(block)
        self._table[child], self._tokens[child] = list(self._table[parent]), self._tokens[parent]

    def remember(self, request: Request, names: Sequence[Hashable]) -> None:
        """The request's first blocks are computed and have these contents."""
        for block, name in zip(self._table[request], names, strict=False):
            self.pool.name(block, name)

    def free(self, request: Request) -> None:
        """Let go of the request's blocks, the last one first: a prefix outlives what follows it."""
        for block in reversed(self._table.pop(request)):
            self.pool.drop(block)
        del self._tokens[request]

    def tokens(self, request: Request) -> int:
        """Tokens that `request` holds."""
        return self._tokens[request]

    def table(self, request: Request) -> tuple[int, ...]:
        """The request's block table: the blocks of its tokens, in order."""
        return tuple(self._table[request])

    def slot(self, request: Request, position: int) -> int:
        """Where the token at `position` lies, counted in tokens over the whole pool. Raises IndexError beyond it."""
        if not 0 <= position < self._tokens[request]:
            raise IndexError(f"position {position} of {self._tokens[request]} tokens")
        return self._table[request][position // self.block_size] * self.block_size + position % self.block_size

    @property
    def wasted_tokens(self) -> int:
        """Tokens of the last blocks that their requests do not fill."""
        return sum(len(t) * self.block_size - self._tokens[r] for r, t in self._table.items())
