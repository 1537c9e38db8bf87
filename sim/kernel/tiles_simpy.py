"""One kernel on the lanes of its cores, played by SimPy: to look inside a kernel, and to prove the recurrence right.

Lanes of a core are named as the profiler names its pipes: MTE2 (load), CUBE or VECTOR, MTE3 (store).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import field
from typing import Any, Literal

import simpy

from scenarios.records import dataclass
from sim.kernel.tiles import Tile


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """One tile on one lane of one core, [start_ns, end_ns)."""

    core: int
    lane: str
    tile: int
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class _Core:
    """Buffers and hand-over points of one core."""

    env: simpy.Environment
    number: int
    buffers: int
    spans: list[LaneSpan]
    free_in: simpy.Container = field(init=False)
    free_out: simpy.Container = field(init=False)
    loaded: simpy.Store = field(init=False)
    computed: simpy.Store = field(init=False)

    def __post_init__(self) -> None:
        self.free_in = simpy.Container(self.env, self.buffers, self.buffers)
        self.free_out = simpy.Container(self.env, self.buffers, self.buffers)
        self.loaded = simpy.Store(self.env)
        self.computed = simpy.Store(self.env)

    def work(self, lane: str, tile: int, duration_ns: int) -> Generator[Any, Any, None]:
        start = int(self.env.now)
        yield self.env.timeout(duration_ns)
        self.spans.append(LaneSpan(self.number, lane, tile, start, int(self.env.now)))

    def load(self, tiles: Sequence[Tile]) -> Generator[Any, Any, None]:
        for i, tile in enumerate(tiles):
            yield self.free_in.get(1)
            yield from self.work("MTE2", i, tile.load_ns)
            yield self.loaded.put(i)

    def compute(self, tiles: Sequence[Tile], lane: str) -> Generator[Any, Any, None]:
        for tile in tiles:
            i = yield self.loaded.get()
            yield self.free_out.get(1)
            yield from self.work(lane, i, tile.compute_ns)
            yield self.free_in.put(1)
            yield self.computed.put(i)

    def store(self, tiles: Sequence[Tile]) -> Generator[Any, Any, None]:
        for tile in tiles:
            i = yield self.computed.get()
            yield from self.work("MTE3", i, tile.store_ns)
            yield self.free_out.put(1)


def play(
    cores: Sequence[Sequence[Tile]], unit: Literal["CUBE", "VECTOR"] = "VECTOR", buffers: int = 2
) -> tuple[LaneSpan, ...]:
    """All spans of a kernel whose core `i` works through the tiles `cores[i]`, in order of start, core and lane."""
    env = simpy.Environment()
    spans: list[LaneSpan] = []
    for number, tiles in enumerate(cores):
        core = _Core(env, number, buffers, spans)
        env.process(core.load(tiles))
        env.process(core.compute(tiles, unit))
        env.process(core.store(tiles))
    env.run()
    return tuple(sorted(spans, key=lambda s: (s.start_ns, s.core, s.lane, s.tile)))
