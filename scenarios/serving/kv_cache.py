"""Who holds which part of a KV cache: rows of full length (contiguous) or blocks on demand (paged).

Only numbers live here: no bytes, no tensors. The simulator counts with these allocators how many requests fit, the
device places keys and values where they say, so capacity predicted is capacity measured, to the block.

A shared prefix is a matter of reference counts: the whole blocks that two requests have in common are held once, and
are free again when the last of their holders is gone. A block that is only partly common is never shared, so no holder
ever writes where another reads.
"""

from __future__ import annotations

from collections.abc import Hashable

#: What a request is called; any value that is equal only to itself.
Request = Hashable


class OutOfCache(Exception):
    """The cache has no room for what was asked; nothing was changed."""


def blocks_of(tokens: int, block_size: int) -> int:
    """Blocks that `tokens` tokens take, the last one perhaps in part."""
    return -(-tokens // block_size)


def shared_blocks(common_tokens: int, block_size: int) -> int:
    """Blocks that requests with `common_tokens` equal first tokens can share: the whole ones."""
    return common_tokens // block_size


class ContiguousCache:
    """`rows` rows of `row_tokens` tokens; a request takes a whole row, however short it is."""

    def __init__(self, rows: int, row_tokens: int) -> None:
        self.rows, self.row_tokens = rows, row_tokens
        self._free = list(range(rows - 1, -1, -1))
        self._row: dict[Request, int] = {}
        self._tokens: dict[Request, int] = {}

    @staticmethod
    def max_requests(cache_tokens: int, row_tokens: int) -> int:
        """Requests that a cache of `cache_tokens` holds at once."""
        return cache_tokens // row_tokens

    @property
    def free_rows(self) -> int:
        return len(self._free)

    def allocate(self, request: Request, tokens: int) -> None:
        """Give `request` a row and let it hold `tokens` tokens. Raises OutOfCache, ValueError where it has one."""
        if request in self._row:
            raise ValueError(f"request {request!r} has a row already")
        if not self._free or tokens > self.row_tokens:
            raise OutOfCache(f"{tokens} tokens: {len(self._free)} rows of {self.row_tokens} are free")
        self._row[request] = self._free.pop()
        self._tokens[request] = tokens

    def append(self, request: Request, tokens: int = 1) -> None:
        """`request` holds `tokens` more. Raises OutOfCache where its row is full."""
        if self._tokens[request] + tokens > self.row_tokens:
            raise OutOfCache(f"a row holds {self.row_tokens} tokens")
        self._tokens[request] += tokens

    def free(self, request: Request) -> None:
        """Take the row of `request` back."""
        self._free.append(self._row.pop(request))
        del self._tokens[request]

    def tokens(self, request: Request) -> int:
        """Tokens that `request` holds."""
        return self._tokens[request]

    @property
    def wasted_tokens(self) -> int:
        """Tokens of the rows that their requests do not fill."""
        return len(self._row) * self.row_tokens - sum(self._tokens.values())

    def slot(self, request: Request, position: int) -> int:
        """Where the token at `position` lies, counted in tokens over the whole cache. Raises IndexError beyond it."""
        if not 0 <= position < self._tokens[request]:
            raise IndexError(f"position {position} of {self._tokens[request]} tokens")
        return self._row[request] * self.row_tokens + position


class PagedCache:
    """`blocks` blocks of `block_size` tokens, handed out as requests grow and found through their block tables."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.blocks, self.block_size = blocks, block_size
        self._free: list[int] = []  # that were held once; the last to come back goes first
        self._fresh = 0  # from this one on none was ever held: a cache may have millions, and a load need few
        self._holders: list[int] | None = None  # of each block, once there is one with several
        self._table: dict[Request, list[int]] = {}
        self._tokens: dict[Request, int] = {}

    @staticmethod
    def max_requests(blocks: int, block_size: int, request_tokens: int, common_tokens: int = 0) -> int:
        """Requests of `request_tokens` that `blocks` blocks hold at once, where all have `common_tokens` in common."""
        shared = shared_blocks(common_tokens, block_size)
        own = blocks_of(request_tokens, block_size) - shared
        left = max(0, blocks - shared)
        return left // own if own else left * block_size

    @property
    def free_blocks(self) -> int:
        return len(self._free) + self.blocks - self._fresh

    def allocate(self, request: Request, tokens: int, like: Request | None = None, common_tokens: int = 0) -> None:
        """Give `request` the blocks of `tokens` tokens; the whole blocks of the first `common_tokens` are those of
        `like`.

        Raises OutOfCache where there are too few blocks, ValueError where the request has some or more is said to be
        common than both hold.
        """
        if request in self._table:
            raise ValueError(f"request {request!r} has blocks already")
        shared: list[int] = []
        if like is not None:
            if common_tokens > min(tokens, self._tokens[like]):
                raise ValueError(f"{common_tokens} common tokens of {tokens} and {self._tokens[like]}")
            shared = self._table[like][: shared_blocks(common_tokens, self.block_size)]
        if shared:
            self._counted()
        fresh = self._take(blocks_of(tokens, self.block_size) - len(shared))
        for block in shared:
            self._counted()[block] += 1
        self._table[request] = shared + fresh
        self._tokens[request] = tokens

    def append(self, request: Request, tokens: int = 1) -> None:
        """`request` holds `tokens` more; new blocks as needed. Raises OutOfCache where there are too few."""
        table = self._table[request]
        held = self._tokens[request] + tokens
        table += self._take(blocks_of(held, self.block_size) - len(table))
        self._tokens[request] = held

    def free(self, request: Request) -> None:
        """Let go of the request's blocks; those that nobody else holds are free again."""
        holders, free = self._holders, self._free
        table = self._table.pop(request)
        del self._tokens[request]
        table.reverse()
        if holders is None:
            free.extend(table)
            return
        for block in table:
            holders[block] -= 1
            if not holders[block]:
                free.append(block)

    def tokens(self, request: Request) -> int:
        """Tokens that `request` holds."""
        return self._tokens[request]

    def table(self, request: Request) -> tuple[int, ...]:
        """The request's block table: the blocks of its tokens, in order."""
        return tuple(self._table[request])

    def holders(self, block: int) -> int:
        """Requests that hold `block`."""
        return sum(block in table for table in self._table.values()) if self._holders is None else self._holders[block]

    def _counted(self) -> list[int]:
        """The holders of each block; from now on they are counted."""
        if self._holders is None:
            self._holders = [0] * self.blocks
            for table in self._table.values():
                for block in table:
                    self._holders[block] += 1
        return self._holders

    def slot(self, request: Request, position: int) -> int:
        """Where the token at `position` lies, counted in tokens over the whole pool. Raises IndexError beyond it."""
        if not 0 <= position < self._tokens[request]:
            raise IndexError(f"position {position} of {self._tokens[request]} tokens")
        return self._table[request][position // self.block_size] * self.block_size + position % self.block_size

    @property
    def wasted_tokens(self) -> int:
        """Tokens of the last blocks that their requests do not fill; a last block that is full wastes nothing."""
        return sum(len(t) * self.block_size - self._tokens[r] for r, t in self._table.items())

    def _take(self, count: int) -> list[int]:
        if count > self.free_blocks:
            raise OutOfCache(f"{count} blocks asked for, {self.free_blocks} free")
        if not count:
            return []
        taken = self._free[: -count - 1 : -1]
        del self._free[-count:]
        if len(taken) < count:
            fresh = range(self._fresh, self._fresh + count - len(taken))
            self._fresh = fresh.stop
            taken += fresh
        if self._holders is not None:
            for block in taken:
                self._holders[block] = 1
        return taken


Cache = ContiguousCache | PagedCache
