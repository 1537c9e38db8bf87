"""How many decode steps an answer takes where each step yields what is accepted of a draft."""

from __future__ import annotations

import numpy as np

from scenarios.speculation_settings import SpeculativeConfig


class Drafts:
    """The more of its drafts are accepted, the fewer steps a request takes; drawn from one seed, in order.

    query: tokens of one request in a step. tokens_per_step: yielded by one, on average.
    """

    def __init__(self, config: SpeculativeConfig, seed: int) -> None:
        self.query = config.query_tokens
        self.tokens_per_step = config.tokens_per_step
        # A step yields more than i tokens where the first i drafted ones are accepted.
        self._more_than = np.array(config.accepted)[::-1]
        self._rng = np.random.default_rng([seed, 3])

    def steps(self, tokens: int) -> int:
        """Steps until `tokens` tokens are there."""
        if tokens <= 0:
            return 0
        drawn = self._rng.random(tokens)
        # searchsorted counts the shares above the number drawn, from the last position on.
        yields = 1 + len(self._more_than) - np.searchsorted(self._more_than, drawn, side="right")
        return int(np.searchsorted(np.cumsum(yields), tokens)) + 1
