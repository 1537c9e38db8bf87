"""KV of requests that have lost their blocks and wait with it on the host (preemption by swap)."""

from __future__ import annotations

from collections.abc import Iterable

from device.run.kv_cache import KvTensors, Tensors
from scenarios.serving.entry import Entry


class HostBlocks:
    """What was copied out of a cache, by request.

    The scheduler gives blocks away while it plans, and nothing is written before the step runs: so the contents are
    still there afterwards, if one knows where they were.
    """

    def __init__(self, cache: KvTensors) -> None:
        self._cache = cache
        self._held: dict[int, Tensors] = {}
        self._places: dict[int, tuple[Entry, list[int]]] = {}

    def before_plan(self, running: Iterable[Entry]) -> None:
        """Remember where the running requests lie."""
        self._places = {entry.request.id: (entry, self._cache.places(entry.request.id)) for entry in running}

    def after_plan(self, running: Iterable[Entry]) -> None:
        """Copy out what was swapped out by the plan, then in what it let in again."""
        for number, (entry, places) in self._places.items():
            if entry.swapped and number not in self._held:
                self._held[number] = self._cache.taken_out(places)
        for entry in running:
            if contents := self._held.pop(entry.request.id, None):
                self._cache.put_back(self._cache.places(entry.request.id), contents)
