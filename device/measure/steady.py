"""How fast the machine is at the moment: a fixed reference kernel, and times as they would be at one speed.

A machine that others use drifts by tens of percent within a minute, for two reasons. Other programs have the CPU for a
part of the time: on a CPU a thread's own clock leaves that out (`Backend.own_ns`). And the CPU itself is slower: its
clock falls, neighbours fill its caches. So a reference kernel runs alongside every repeat of whatever is measured, and
a time is reported in units of the reference's time then: times measured in different minutes, or by a calibration and a
later run, can be compared.

The reference is a small decode step: a product of matrices, a copy through memory and a row of small calls, about
equal parts of each, since a busy neighbour slows the three by different shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
import torch

from device.run.backend import Backend

#: Side of the square float32 product; float32 elements that are copied (2 MiB); additions of SMALL elements.
REFERENCE_SIDE, COPIED, CALLS, SMALL = 192, 1 << 19, 64, 64
#: Each run copies other memory, 64 MiB in turn: whatever ran before, it has left the caches. (Copies that stay in the
#: last cache swing by a quarter with its other users, and a step that is measured next to them does not.)
RING = 32
#: References around a repeat whose median is the machine's speed then: one alone is noisier than what it corrects.
WINDOW = 5


@dataclass(frozen=True, slots=True)
class Timed:
    """Nanoseconds of one call, the device's work included. busy_ns: without those in which other programs had the
    processor, never 0."""

    wall_ns: int
    busy_ns: int


def timed(backend: Backend, call: Callable[[], object]) -> Timed:
    """Run `call` once, between two synchronisations.

    A virtual machine's kernel takes the time that its host gave to others off a thread's clock later and at once, so
    that clock can stand still through a whole short call. What it says then is no length: the wall clock stands in.
    """
    backend.synchronize()
    start, own = perf_counter_ns(), backend.own_ns()
    call()
    backend.synchronize()
    own = backend.own_ns() - own
    wall = perf_counter_ns() - start
    return Timed(wall, own or wall)


class Reference:
    """The reference kernel on one device. It allocates nothing when it runs."""

    def __init__(self, backend: Backend) -> None:
        random = torch.Generator().manual_seed(0)

        def uniform(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random).to(backend.device)

        self._backend = backend
        self._side, self._product = uniform(REFERENCE_SIDE, REFERENCE_SIDE), uniform(REFERENCE_SIDE, REFERENCE_SIDE)
        self._memory, self._turn = torch.ones(RING, COPIED, device=backend.device), 0
        self._small, self._sum = uniform(SMALL), uniform(SMALL)

    def timed(self) -> Timed:
        """Run it once."""
        self._turn = (self._turn + 1) % RING
        return timed(self._backend, self._run)

    def _run(self) -> None:
        torch.mm(self._side, self._side, out=self._product)
        self._memory[self._turn].copy_(self._memory[self._turn - 1])
        for _ in range(CALLS):
            torch.add(self._small, self._small, out=self._sum)


def around(references: Sequence[float], window: int = WINDOW) -> list[float]:
    """The reference's time at each repeat: the median of those around it, as many on one side as on the other.

    references: of each repeat in order, any unit; the result has the same. window: most that a median is taken of.
    """
    values = np.asarray(references, dtype=float)
    sides = [min(window // 2, i, len(values) - 1 - i) for i in range(len(values))]
    return [float(np.median(values[i - side : i + side + 1])) for i, side in enumerate(sides)]


def steadied(values: Sequence[float], references: Sequence[float], at: float = 0.0) -> list[float]:
    """`values` as they would be at one speed of the machine.

    references: the reference's time next to each value. at: its time at the speed asked for, in the same unit; 0 for
    the median of `references`, which keeps the values' own level.
    """
    if not values:
        return []
    to = at or float(np.median(np.asarray(references, dtype=float)))
    return [value * to / now for value, now in zip(values, around(references), strict=True)]
