"""The jitter of a step: seeded factors of host calls and kernels, and how late each rank starts.

Factors depend on the seed, the rank and the name of an op, and not on its place, so an op that survives a rewrite keeps
its jitter and two what-ifs differ only by what was rewritten.
"""

from __future__ import annotations

from functools import lru_cache
from math import cos, exp, log, log1p, sin, sqrt, tau
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:  # a rank alone needs no numpy
    from numpy import float64
    from numpy.typing import NDArray

#: Names that jitter is remembered of: all of a step and its what-ifs, or each of them draws it again. Where layers are
#: of many kinds (DeepSeek-V4) every op of a layer has a name of its own, 27,500 in all.
NAMES = 1 << 15


def named(name: str, rank: int) -> str:
    """The name that the jitter of `rank` depends on. Rank 0 has the jitter of a rank alone."""
    return f"rank {rank} {name}" if rank else name


@lru_cache(maxsize=NAMES)
def jitter(seed: int, name: str, repeat: int, sigma: float) -> tuple[float, ...]:
    """`repeat` log-normal factors with mean 1 for the calls of one op, one a layer."""
    return tuple(_factors(seed, name, repeat, sigma))


@lru_cache(maxsize=NAMES)
def jitter_of_ranks(seed: int, name: str, repeat: int, sigma: float, ranks: int) -> NDArray[float64]:
    """The same for each of `ranks`, of shape (repeat, ranks); not to be written to."""
    import numpy as np

    return np.array([_factors(seed, named(name, rank), repeat, sigma) for rank in range(ranks)]).T


def _factors(seed: int, name: str, repeat: int, sigma: float) -> list[float]:
    if sigma == 0:
        return [1.0] * repeat
    uniform, mean = Random(crc32(f"{seed}/{name}".encode())).random, -sigma * sigma / 2
    factors: list[float] = []
    for _ in range((repeat + 1) // 2):  # pairs of normal draws as `Random.gauss` makes them, without its calls
        angle, radius = uniform() * tau, sqrt(-2.0 * log(1.0 - uniform()))
        factors += exp(mean + cos(angle) * radius * sigma), exp(mean + sin(angle) * radius * sigma)
    return factors[:repeat]


@lru_cache(maxsize=64)
def late_ns(seed: int, ranks: int, mean_us: float) -> tuple[int, ...]:
    """How much later than rank 0 each rank starts.

    The others share out the quantiles of an exponential distribution with that mean: who is last depends on the seed,
    how late the last one is does not.
    """
    order = sorted(range(1, ranks), key=lambda rank: (crc32(f"{seed}/late {rank}".encode()), rank))
    late = [0] * ranks
    for place, rank in enumerate(order):
        late[rank] = round(-1000 * mean_us * log1p(-(place + 0.5) / len(order)))
    return tuple(late)
