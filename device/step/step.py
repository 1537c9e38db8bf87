"""What one step works on: which requests it serves, and what operators may look at next to their operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import torch

from scenarios.models.model import Model
from scenarios.ops.program import DType

#: The value of a step that a router leaves: rows of each expert.
COUNTS = "experts.counts"


@dataclass(frozen=True, slots=True)
class Layout:
    """The requests of one step, in the order of their tokens.

    requests: their numbers. cache_rows: their rows in a contiguous cache. queries: new tokens of each. contexts: tokens
    of each in the cache before. rows: rows of the matrix products, at least all new tokens (a captured graph pads).
    """

    requests: tuple[int, ...]
    cache_rows: tuple[int, ...]
    queries: tuple[int, ...]
    contexts: tuple[int, ...]
    rows: int

    @property
    def tokens(self) -> int:
        return sum(self.queries)

    @property
    def longest_query(self) -> int:
        return max(self.queries)

    @property
    def ends(self) -> tuple[int, ...]:
        """Where the new tokens of each end, counted over all."""
        return tuple(accumulate(self.queries))

    @property
    def keys(self) -> tuple[int, ...]:
        """Tokens of each in the cache after the step."""
        return tuple(c + q for c, q in zip(self.contexts, self.queries, strict=True))

    @property
    def longest_keys(self) -> int:
        return max(self.keys)

    @property
    def is_uniform(self) -> bool:
        """Whether all requests have as many new and as many cached tokens."""
        return len(set(self.queries)) == len(set(self.contexts)) == 1

    @property
    def first_rows(self) -> bool:
        """Whether the requests lie in the first rows of a contiguous cache, in order."""
        return self.cache_rows == tuple(range(len(self.cache_rows)))


class Group(Protocol):
    """Ranks that exchange; every call waits until all have made it, or fails after a time-out."""

    rank: int
    ranks: int

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' `x`."""

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """All ranks' `x` on top of each other, by rank: [ranks, *x.shape]."""

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's share, along the first dimension, of the sum of all ranks' `x`."""

    def all_to_all(self, x: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        """`sent` rows of `x` to each rank in turn; `received` rows of each, on top of each other."""

    def name(self) -> str:
        """What the library of collectives calls these ranks, for calls that exchange by themselves."""

    def own_name(self) -> str:
        """The same of a second group of these ranks, which no other call may use; all of them ask at the same place."""

    def send(self, x: torch.Tensor, to: int) -> None:
        """`x` to one rank, which receives it."""

    def post(self, x: torch.Tensor, to: int) -> None:
        """As `send`, without waiting for who receives it."""

    def receive(self, x: torch.Tensor, sender: int) -> torch.Tensor:
        """What one rank sends, written into `x`."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one rank, None where it would be alone in one.

    tensor: the ranks that share each of its layers. replicas: those in its place of each replica of attention that
    steps with it. everyone: all of both, over which whole experts are spread. line: all ranks of its pipeline, stage by
    stage. stage, replica: its own numbers.
    """

    tensor: Group | None = None
    replicas: Group | None = None
    everyone: Group | None = None
    line: Group | None = None
    stage: int = 0
    replica: int = 0

    @property
    def are_several(self) -> bool:
        """Whether there is anybody to wait for."""
        return any((self.tensor, self.everyone, self.line))

    @property
    def rank(self) -> int:
        """This rank's number among all that it steps with."""
        widest = self.line or self.everyone or self.tensor
        return widest.rank if widest else 0

    @classmethod
    def of(cls, group: Group | Groups | None) -> Groups:
        """A tensor-parallel group alone as groups; groups as they are."""
        return group if isinstance(group, Groups) else cls(group, None, group)


#: A rank that steps with nobody.
ALONE = Groups()


@dataclass(frozen=True, slots=True)
class Step:
    """What an operator may look at next to its operands.

    dtypes: how the Program's types are held. values: the activations, tables and host inputs by name; an operator
    returns its outputs and writes here only what has no output of its own (the host's preparation, who goes to which
    expert). model: what this rank holds of it, None where shapes alone are rehearsed. visible: which keys each query
    sees, bool [requests, 1, queries, keys], None where all see all of theirs. causal: whether `visible` is the plain
    triangle of a prefill. vocab_start: first token of this rank's share of the vocabulary. groups: whom it steps with.
    parts: of a batch that is cut into micro-batches, what each of them looks at.
    """

    layout: Layout
    dtypes: Mapping[DType, torch.dtype]
    values: dict[str, torch.Tensor]
    model: Model | None
    visible: torch.Tensor | None = None
    causal: bool = False
    vocab_start: int = 0
    groups: Groups = ALONE
    parts: tuple[Step, ...] = ()

    @property
    def group(self) -> Group | None:
        """The ranks that share each layer."""
        return self.groups.tensor
