"""Speculative decoding in numbers: what a verifying step and its draft take, what they yield, and whether it pays."""

from __future__ import annotations

from scenarios.ops.program import Batch
from scenarios.records import dataclass
from scenarios.settings import Engine
from scenarios.speculation_settings import SpeculativeConfig

#: Host time of looking drafts up, µs: of a step, and of each request in it. Assumed: vLLM's n-gram search is compiled
#: code over a request's tokens, the suffix tree a C++ extension.
LOOKUP_STEP_US, LOOKUP_REQUEST_US = 100.0, 15.0


@dataclass(frozen=True, slots=True)
class Speculation:
    """A decode step with drafts next to the same one without. accepted: for each position the share of drafts in which
    it is accepted. gain: how many times faster a token comes, below 1 where speculation loses."""

    method: str
    drafted_tokens: int
    accepted: tuple[float, ...]
    acceptance_source: str
    tokens_per_step: float
    verify_us: float
    draft_us: float
    plain_us: float
    gain: float

    @staticmethod
    def of(config: SpeculativeConfig, verify_ns: float, draft_ns: float, plain_ns: float) -> Speculation:
        """From step lengths in ns."""
        return Speculation(
            method=config.method,
            drafted_tokens=config.num_speculative_tokens,
            accepted=config.accepted,
            acceptance_source=config.acceptance_source,
            tokens_per_step=config.tokens_per_step,
            verify_us=verify_ns / 1000,
            draft_us=draft_ns / 1000,
            plain_us=plain_ns / 1000,
            gain=config.tokens_per_step * plain_ns / (verify_ns + draft_ns),
        )


def yielded_tokens(engine: Engine) -> tuple[float, float, float]:
    """Tokens of a request that a decode step yields: for the value of its TPOT, its low and its high end."""
    config = engine.speculative_config
    if config is None:
        return 1.0, 1.0, 1.0
    low, high = config.tokens_per_step_ends
    return config.tokens_per_step, high, low


def lookup_ns(engine: Engine, batch: Batch) -> int:
    """Host time of drafts that are looked up, ns, which the next step waits for."""
    config = engine.speculative_config
    if config is None or config.forward:
        return 0
    return round(1000 * (LOOKUP_STEP_US + LOOKUP_REQUEST_US * batch.requests))
