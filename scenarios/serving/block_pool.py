"""Blocks of a KV cache with names: a block that nobody holds keeps its contents until its space is needed.

Blocks without a name are taken first, then those that have been free for longest (LRU).
"""

from __future__ import annotations

from collections.abc import Hashable

from scenarios.serving.kv_cache import OutOfCache


class BlockPool:
    """`blocks` blocks, each with the number of its holders and perhaps the name of its contents."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._blank = list(range(blocks - 1, -1, -1))
        self._kept: dict[int, None] = {}  # free blocks with a name, longest free first
        self._holders = [0] * blocks
        self._name: dict[int, Hashable] = {}
        self._block: dict[Hashable, int] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds, named ones included."""
        return len(self._blank) + len(self._kept)

    def holders(self, block: int) -> int:
        """Requests that hold `block`."""
        return self._holders[block]

    def find(self, name: Hashable) -> int | None:
        """The block with these contents, held or not."""
        return self._block.get(name)

    def is_kept(self, block: int) -> bool:
        """Whether the block is free and has a name."""
        return block in self._kept

    def take(self, count: int) -> list[int]:
        """`count` blocks with one holder and no name. Raises OutOfCache, and then takes none."""
        if count > self.free_blocks:
            raise OutOfCache(f"{count} blocks asked for, {self.free_blocks} free")
        taken = []
        for _ in range(count):
            if self._blank:
                block = self._blank.pop()
            else:
                block = next(iter(self._kept))
                del self._kept[block], self._block[self._name.pop(block)]
            self._holders[block] = 1
            taken.append(block)
        return taken

    def hold(self, block: int) -> None:
        """One more holder of a block that is held or kept."""
        self._kept.pop(block, None)
        self._holders[block] += 1

    def drop(self, block: int) -> None:
        """One holder fewer; the last one leaves the block free, with its contents if they have a name."""
        self._holders[block] -= 1
        if self._holders[block]:
            return
        if block in self._name:
            self._kept[block] = None
        else:
            self._blank.append(block)

    def name(self, block: int, name: Hashable) -> None:
        """The block's contents are `name`, unless it or another block has a name already."""
        if name not in self._block and block not in self._name:
            self._name[block], self._block[name] = name, block
