"""What a device hands over of requests that it has served: the time points of each, and every step."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One completed request. Times in ns from the start of the run: sent, first let in, each token received. output:
    the tokens. counted: whether it is past the warm-up of its load."""

    id: int
    arrived_ns: int
    started_ns: int
    token_ns: tuple[int, ...]
    input_tokens: int
    output: tuple[int, ...]
    counted: bool = True

    @property
    def first_ns(self) -> int:
        return self.token_ns[0]

    @property
    def last_ns(self) -> int:
        return self.token_ns[-1]


@dataclass(frozen=True, slots=True)
class ServedStep:
    """One step: from the end of the one before (or of waiting) until its tokens are received. device_ns: of it, until
    the model's tokens are with the host. decoding: requests with one token each. chunks: of prompts, prompt_tokens in
    all. blocked: why the first waiting request was not let in. stalled: requests that decode, but not in this step.
    context_tokens: in all caches of those that decode. pairs: of a prompt token and what it attends to."""

    start_ns: int
    end_ns: int
    device_ns: int
    decoding: int
    chunks: int
    prompt_tokens: int
    blocked: str
    stalled: int = 0
    context_tokens: int = 0
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class ServedRun:
    """A load as a device has served it. about: where and how it was measured. hit_tokens of asked_tokens prompt tokens
    were in the cache already; usage_peak: share of the deployment's cache that was held at once, at most."""

    about: Mapping[str, str | int | float]
    requests: tuple[ServedRequest, ...]
    steps: tuple[ServedStep, ...]
    rejected: int
    preemptions: int
    usage_peak: float
    hit_tokens: int
    asked_tokens: int


@dataclass(frozen=True, slots=True)
class Deployed:
    """What a device takes of the prediction. kv_tokens: of the whole KV cache. reference_ns: what the reference kernel
    took when the hardware profile was measured; 0 where it does not say."""

    kv_tokens: int
    reference_ns: float = 0.0
