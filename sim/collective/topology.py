"""Which link joins two dies, and the levels of a group: card, server, pod, beyond."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from scenarios.records import dataclass
from sim.hardware.sections import Collective

#: SIO between the two dies of a card, HCCS inside a server, HCCS between servers of a pod, RoCE beyond.
Tier = Literal["sio", "hccs", "pod", "roce"]


@dataclass(frozen=True, slots=True)
class Level:
    """`ranks` neighbours that one tier joins."""

    tier: Tier
    ranks: int


def tier_between(a: int, b: int, links: Collective) -> Tier:
    """The tier that joins dies `a` and `b`, numbered from 0 through the cluster, card by card."""
    if a // links.dies_per_card == b // links.dies_per_card:
        return "sio"
    if a // links.dies_per_server == b // links.dies_per_server:
        return "hccs"
    return "pod" if a // links.dies_per_pod == b // links.dies_per_pod else "roce"


@lru_cache(maxsize=1024)
def levels_of(ranks: int, links: Collective, stride: int = 1, first: int = 0) -> tuple[Level, ...]:
    """The levels of a group of `ranks` dies that lie `stride` apart, from die `first` on; the nearest level first.

    A level of one rank is left out. Where servers hold unequal parts of the group, all count as the fullest. Ranks of
    tensor parallelism are neighbours (stride 1); those of data or pipeline parallelism lie a replica or stage apart.
    """
    dies = range(first, first + ranks * stride, stride)
    servers = len({die // links.dies_per_server for die in dies})
    pods = len({die // links.dies_per_pod for die in dies})
    near = _shares(ranks, servers)
    one_card = len({die // links.dies_per_card for die in dies}) == 1
    result = (
        Level("sio" if one_card else "hccs", near),
        Level("pod", _shares(servers, pods)),
        Level("roce", pods),
    )
    return tuple(level for level in result if level.ranks > 1)


def _shares(whole: int, parts: int) -> int:
    return -(-whole // parts)
