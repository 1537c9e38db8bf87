"""The tokens of requests: equal where the requests say that they have something in common, else random by the seed.

A position's token depends on whose it is and where it lies, so that two prompts of one prefix are equal as far as both
go (`Request.block_names` says so of their blocks). A turn of a conversation repeats all that was said before, the
answers as they really were.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from scenarios.serving.requests import Request

#: Tokens that are drawn at once; which ones a position gets depends on nothing else.
PAGE_TOKENS = 256
#: Whose tokens: a request's or conversation's own, or those of a prefix.
OWN, PREFIX = 0, 1


class Texts:
    """Prompts of token ids below `vocab`."""

    def __init__(self, vocab: int, seed: int) -> None:
        self._vocab, self._seed = vocab, seed
        self._said: dict[int, list[int]] = {}
        self._page = lru_cache(maxsize=4096)(self._drawn)

    def prompt(self, request: Request) -> list[int]:
        """The request's input_tokens tokens. Of a later turn: once the turn before has been answered."""
        said = self._said.get(request.content, []) if request.content >= 0 else []
        tokens = said[: request.input_tokens]
        for name, end in request.segments:
            tokens += self._tokens(PREFIX, name, len(tokens), min(end, request.input_tokens))
        own = request.id if request.content < 0 else request.content
        return tokens + self._tokens(OWN, own, len(tokens), request.input_tokens)

    def answered(self, request: Request, tokens: list[int]) -> None:
        """tokens: all of the request, prompt and output: what the next turn repeats."""
        if request.content >= 0:
            self._said[request.content] = tokens

    def _tokens(self, kind: int, name: int, start: int, end: int) -> list[int]:
        tokens: list[int] = []
        for page in range(start // PAGE_TOKENS, -(-end // PAGE_TOKENS)):
            first = page * PAGE_TOKENS
            tokens += self._page(kind, name, page)[max(start - first, 0) : end - first]
        return tokens

    def _drawn(self, kind: int, name: int, page: int) -> list[int]:
        drawn: list[int] = (
            np.random.default_rng([self._seed, kind, name, page]).integers(self._vocab, size=PAGE_TOKENS).tolist()
        )
        return drawn
