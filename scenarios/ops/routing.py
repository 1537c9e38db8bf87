"""Which experts the tokens of a step go to: a seeded draw for each layer, so imbalance is an input and not a surprise.

Each expert has a popularity, log-normal with parameter `skew` (0: all alike), and other experts are popular in another
layer. Few tokens choose one by one, `top_k` different experts each; of many only the counts are drawn, since single
choices no longer matter. Even with equal popularity counts differ: 16 tokens that choose 8 of 256 experts reach about
100 of them, and one rank of 16 holds 10 of these where another holds 4. Where a token chooses as many experts of each
group (Pangu Pro MoE, arXiv:2505.21411), ranks that hold whole groups have as many rows each.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import nsmallest
from math import exp, fsum
from random import Random
from zlib import crc32

from scenarios.records import dataclass

#: Choices (tokens x experts) up to which every token chooses by itself.
CHOICES_DRAWN = 1 << 14


@dataclass(frozen=True, slots=True)
class Routing:
    """tokens: that choose, over all ranks that share the experts. held: experts of one rank; rank r has those from
    r x held. groups: of experts that lie next to each other, of each of which a token chooses as many."""

    tokens: int
    experts: int
    held: int
    top_k: int
    skew: float
    seed: int
    groups: int = 1

    @property
    def rows(self) -> int:
        """Rows that the experts of one rank work on, of the mean rank (rounded up)."""
        return -(-self.tokens * self.top_k * self.held // self.experts)

    def loads(self, layer: int, rank: int = 0) -> tuple[int, ...]:
        """Tokens of each expert that `rank` holds, in layer `layer`."""
        start = rank * self.held % self.experts
        drawn = self._drawn(layer)
        return drawn[start : start + self.held]

    def busy(self, layer: int, rank: int = 0) -> tuple[int, ...]:
        """`loads` of the experts that any token has chosen, the largest first."""
        return _busy(self, layer, rank)

    def busiest(self, layer: int) -> float:
        """Rows of the busiest rank over the mean."""
        drawn = self._drawn(layer)
        most = max(sum(drawn[i : i + self.held]) for i in range(0, self.experts, self.held))
        return most * self.experts / max(1, self.held * sum(drawn))

    def _drawn(self, layer: int) -> tuple[int, ...]:
        """Tokens of each expert of a layer."""
        return _draw(self.tokens, self.experts, self.top_k, self.skew, seed=self.seed, layer=layer, groups=self.groups)


@lru_cache(maxsize=16384)
def _busy(routing: Routing, layer: int, rank: int) -> tuple[int, ...]:
    return tuple(sorted((load for load in routing.loads(layer, rank) if load), reverse=True))


@lru_cache(maxsize=4096)
def _draw(tokens: int, experts: int, top_k: int, skew: float, seed: int, layer: int, groups: int) -> tuple[int, ...]:
    """Tokens of each expert; they sum to tokens x top_k, and no expert has more than tokens."""
    random = Random(crc32(f"{seed}/experts {layer}".encode()))
    weights = [exp(random.gauss(0.0, skew)) if skew else 1.0 for _ in range(experts)]
    each = experts // groups
    parts = (weights[start : start + each] for start in range(0, experts, each))
    return tuple(load for part in parts for load in _of_group(random, part, tokens, top_k // groups, skew))


def _of_group(random: Random, weights: list[float], tokens: int, top_k: int, skew: float) -> tuple[int, ...]:
    """The same of one group of experts."""
    experts = len(weights)
    if tokens * experts > CHOICES_DRAWN:
        return _counts(random, weights, tokens, top_k)
    drawn = [0] * experts
    for _ in range(tokens):
        for chosen in _choice(random, weights, top_k) if skew else random.sample(range(experts), top_k):
            drawn[chosen] += 1
    return tuple(drawn)


def _choice(random: Random, weights: list[float], top_k: int) -> list[int]:
    """`top_k` different experts by weight: those whose exponential clocks of rate `weight` ring first."""
    clocks = [random.expovariate(weight) for weight in weights]
    return nsmallest(top_k, range(len(clocks)), key=clocks.__getitem__)


def _counts(random: Random, weights: list[float], tokens: int, top_k: int) -> tuple[int, ...]:
    """The share of each expert with the spread of a binomial; what is then missing or too much is spread evenly."""
    left, total = tokens * top_k, fsum(weights)
    shares = [min(float(tokens), left * w / total) for w in weights]
    noisy = [
        min(tokens, max(0, round(random.gauss(mean, (mean * (1 - mean / max(mean, left))) ** 0.5)))) for mean in shares
    ]
    return _summing_to(noisy, left, tokens)


def _summing_to(counts: list[int], total: int, most: int) -> tuple[int, ...]:
    """`counts` moved by equal steps until they sum to `total`, each between 0 and `most`."""
    counts = list(counts)
    while (missing := total - sum(counts)) != 0:
        step = 1 if missing > 0 else -1
        open_ = [i for i, c in enumerate(counts) if 0 <= c + step <= most]
        each = max(1, abs(missing) // len(open_))
        for i in open_[: abs(missing)]:
            counts[i] = min(most, max(0, counts[i] + step * each))
    return tuple(counts)
