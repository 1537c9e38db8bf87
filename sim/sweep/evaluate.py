"""What a choice of `whatif plan` yields: whether it fits, bounds that need no step, and its steps by the recurrence.

Prefill and decode share the cards of a replica. With b requests in flight, each of `output` tokens, a prompt that takes
prefill and a decode step of b that takes decode, a round in which every request is served once takes
b x prefill + output x decode, so

    tokens/s a card = b x output / (b x prefill + output x decode) / cards,    TPOT = decode + b x prefill / output

and a prompt that comes alone waits for the step under way and for its own chunks: TTFT = decode / 2 + prefill. The
serving simulation then plays what these leave out: arrivals, interleaved chunks, the engine's host.
"""

from __future__ import annotations

from functools import cached_property

from scenarios.batches import decode_batch, prefill_batches
from scenarios.records import dataclass
from scenarios.speculation import draft_passes
from sim.predict.memory import Memory, memory_of
from sim.predict.predict import forbidden
from sim.predict.speculation import lookup_ns, yielded_tokens
from sim.predict.steps import Case, step_ns
from sim.sweep.candidates import Choice, Models

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Slo:
    """What a deployment must meet, ms; None where it need not."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    def met(self, ttft_ms: float, tpot_ms: float) -> bool:
        return ttft_ms <= (self.ttft_ms or ttft_ms) and tpot_ms <= (self.tpot_ms or tpot_ms)

    def nearness(self, ttft_ms: float, tpot_ms: float) -> float:
        """The smallest share limit / latency, below 1 where the limits are missed; without limits 1."""
        pairs = ((self.ttft_ms, ttft_ms), (self.tpot_ms, tpot_ms))
        return min((limit / value for limit, value in pairs if limit is not None), default=1.0)


@dataclass(frozen=True, slots=True)
class Point:
    """A choice with its batch and what it yields. decode_ms: a decode step over the tokens that it yields; prefill_ms:
    one prompt. tokens_per_card: output tokens/s; per_user: output tokens/s of one request."""

    choice: Choice
    batch: int
    case: Case
    memory: Memory
    decode_ms: float
    prefill_ms: float

    @property
    def output_tokens(self) -> int:
        return self.case.scenario.workload.output_tokens

    @property
    def tpot_ms(self) -> float:
        return self.decode_ms + self.batch * self.prefill_ms / self.output_tokens

    @property
    def ttft_ms(self) -> float:
        return self.prefill_ms + self.decode_ms / 2

    @property
    def per_user(self) -> float:
        return 1000 / self.tpot_ms

    @property
    def tokens_per_card(self) -> float:
        return self.batch * self.per_user / self.choice.cards


def token_ns(case: Case) -> float:
    """A decode step with its drafts, over the tokens of a request that it yields, by the recurrence."""
    batch = decode_batch(case.scenario)
    ns = step_ns(case, batch) + lookup_ns(case.scenario.engine, batch)
    for drafted in draft_passes(case.scenario, case.model, batch):
        ns += drafted.count * step_ns(Case(drafted.scenario, drafted.model, case.hardware), drafted.batch)
    return ns / yielded_tokens(case.scenario.engine)[0]


class Evaluator:
    """Points of one plan, each made once. steps: how many were played."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self.whole = models.whole
        self._points: dict[tuple[Choice, int], Point] = {}
        self._prefill_ms: dict[Choice, float] = {}
        self.steps = 0

    def refusal(self, choice: Choice, batch: int) -> tuple[str, str]:
        """(kind, one line) of why the choice cannot run with `batch` requests; empty where it can."""
        case = self._models.case(choice, batch)
        if isinstance(case, str):
            return "does not divide", case
        problems = forbidden(case)
        if problems:
            where, what = problems[0]
            return "not a scenario", f"{where}: {what}"
        memory = memory_of(case.scenario, case.model, case.hardware)
        if not memory.too_much:
            return "", ""
        kind = "weights do not fit" if not memory.weights_fit else "KV cache does not fit"
        fits = memory.capacity.max_concurrent_requests
        parts = (
            f"weights {memory.weights / GIB:.1f}, KV of {batch} requests {memory.kv_cache / GIB:.1f}, activations "
            f"{memory.activations / GIB:.1f}, graph {memory.graph_pool / GIB:.1f}"
        )
        room = f"{fits} requests fit" if memory.weights_fit and fits else "no request fits"
        return kind, f"{memory.total / GIB:.1f} of {memory.usable / GIB:.1f} GiB: {parts}; {room}"

    def bound(self, choice: Choice, batch: int) -> tuple[float, float]:
        """(TPOT in ms, tokens/s a card) that no kernel beats: the weights that every step reads and the KV cache of its
        requests, once through HBM at its peak. Of experts only what must be read: none."""
        case = self._models.case(choice, batch)
        assert isinstance(case, Case)
        model, hw = case.model, case.hardware
        memory = memory_of(case.scenario, model, hw)
        share = 1.0 if not model.experts else 0.0  # which experts a step reads depends on its tokens
        tokens = batch * case.scenario.decode_context_tokens * memory.capacity.bytes_per_token
        yielded = yielded_tokens(case.scenario.engine)[0]
        stages = model.pipeline_parallel
        ns = stages * (share * memory.weights + tokens / max(1, stages)) / hw.memory.hbm_peak_gbps
        tpot_ms = ns / 1e6 / yielded / max(1, min(stages, batch))
        return tpot_ms, batch * 1000 / max(tpot_ms, 1e-9) / choice.cards

    def point(self, choice: Choice, batch: int) -> Point:
        """The choice with that batch, by the recurrence."""
        key = choice, batch
        if key not in self._points:
            case = self._models.case(choice, batch)
            assert isinstance(case, Case)
            self.steps += 1
            memory = memory_of(case.scenario, case.model, case.hardware)
            decode_ms = token_ns(case) / 1e6
            self._points[key] = Point(choice, batch, case, memory, decode_ms, self._prompt_ms(choice, case))
        return self._points[key]

    def _prompt_ms(self, choice: Choice, case: Case) -> float:
        """Prefill of one prompt by `case` of the choice, its chunks one after the other."""
        if choice not in self._prefill_ms:
            one = case.scenario.workload.model_copy(update={"batch": 1})
            chunks = prefill_batches(case.scenario.model_copy(update={"workload": one}))
            self.steps += len(set(chunks))
            self._prefill_ms[choice] = sum(step_ns(case, chunk) for chunk in chunks) / 1e6
        return self._prefill_ms[choice]

    @cached_property
    def points(self) -> dict[tuple[Choice, int], Point]:
        """All points so far."""
        return self._points
