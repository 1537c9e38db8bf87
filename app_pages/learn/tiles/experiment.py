"""Lesson: copy while computing. A core works through a kernel tile by tile: while one tile is computed the next is
loaded and the one before is stored, as far as there are buffers for it.

The lanes and the times are those of the simulator's own pipeline (`sim.kernel.tiles`).
"""

from __future__ import annotations

from dataclasses import dataclass

from app_pages.learn.cases import step_of_tokens
from sim.kernel.tiles import Tile, pipeline_ns
from sim.kernel.tiles_simpy import LaneSpan, play
from sim.predict.steps import Case

#: What the Lab shows of it.
MODEL, HARDWARE = "Qwen3-8B", "atlas_a2_910b2"


@dataclass(frozen=True, slots=True)
class Run:
    """One core's way through `tiles` equal tiles with `buffers` a side, ns. serial_ns: all three parts of each tile one
    after the other; bound_ns: the longest part of every tile alone; pace_ns: what a further tile adds."""

    buffers: int
    total_ns: int
    serial_ns: int
    bound_ns: int
    pace_ns: int
    spans: tuple[LaneSpan, ...]

    @property
    def hidden_share(self) -> float:
        """How much of what could be hidden is hidden."""
        room = self.serial_ns - self.bound_ns
        return (self.serial_ns - self.total_ns) / room if room else 0.0


def rows_on_each_core(rows: int) -> Case:
    """A step in which a norm gives each vector core that many rows: as many tokens as all cores have."""
    cores = step_of_tokens(MODEL, HARDWARE, 16).hardware.chip.vector_cores
    return step_of_tokens(MODEL, HARDWARE, rows * cores)


def run(tiles: int, load_ns: int, compute_ns: int, store_ns: int, buffers: int) -> Run:
    """The pipeline of equal tiles."""
    tile = Tile(load_ns, compute_ns, store_ns)
    every = [tile] * tiles
    parts = (load_ns, compute_ns, store_ns)
    return Run(
        buffers,
        total_ns=pipeline_ns(every, buffers),
        serial_ns=tiles * sum(parts),
        bound_ns=tiles * max(parts),
        pace_ns=max(load_ns + compute_ns, compute_ns + store_ns) if buffers == 1 else max(parts),
        spans=play([every], "VECTOR", buffers),
    )
