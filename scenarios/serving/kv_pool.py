"""A pool of KV blocks beyond the device's cache, in host memory or on a store: what was computed is written to it, and
prompts that start alike are loaded from it instead of being computed again. The block used longest ago is forgotten
first. Only names live here, as in `scenarios.serving.prefix_cache`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence


class KvPool:
    """Room for the contents of `blocks` blocks."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._kept: dict[Hashable, None] = {}  # longest unused first

    def __len__(self) -> int:
        return len(self._kept)

    def hits(self, names: Sequence[Hashable]) -> int:
        """How many of the first names are here; they are used now."""
        here = 0
        for name in names:
            if name not in self._kept:
                break
            here += 1
        self._touch(names[:here])
        return here

    def keep(self, names: Sequence[Hashable]) -> None:
        """Write what is not here yet; what no longer fits is forgotten."""
        self._touch(names)
        while len(self._kept) > self.blocks:
            del self._kept[next(iter(self._kept))]

    def _touch(self, names: Sequence[Hashable]) -> None:
        """The last block first, so that a prefix outlives what follows it."""
        for name in reversed(names):
            self._kept.pop(name, None)
            self._kept[name] = None
