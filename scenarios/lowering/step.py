"""What the lowering of one step looks at."""

from __future__ import annotations

from scenarios.models.model import Model
from scenarios.ops.program import Batch, DType
from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One forward step of one rank.

    act: type of activations and (before quantisation) weights and cache. cache_tokens: tokens the cache of one request
    holds. tokens: rows of the matrix products (batch.tokens, or more where a captured graph pads). skew, seed: of the
    experts' popularity (`scenarios.ops.routing`).
    """

    model: Model
    batch: Batch
    act: DType
    cache_tokens: int
    tokens: int
    skew: float = 0.0
    seed: int = 0
