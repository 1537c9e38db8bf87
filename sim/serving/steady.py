"""A served load in its steady state, in closed form: a bound and a check of the simulator, and what fits engines.

Little's law: of requests that come at rate r, each of `output` tokens, r x (output - 1) x TPOT decode at a time. In a
second, r x chunks steps carry a prefill chunk and take `mixed`, and the rest of the second goes to decode steps:

    steps = (1 - r x chunks x mixed) / decode + r x chunks,    TPOT = 1 / steps

The running requests follow by fixed-point iteration from below; where they exceed the slots, the load is saturated and
the rate is what the slots give. TTFT = admission + half a step that is under way + the step that an engine which plans
ahead has already decided on + the chunks of the prompt, as the simulator has it. Requests at equal distances meet
decode steps alone while a prefill ends before the next one comes. Times are in nanoseconds, rates in requests a
nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Literal

from scenarios.records import dataclass
from sim.engines.costs import EngineCosts

#: Rounds of the fixed points; the smallest step of one is a millionth.
ROUNDS = 200
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Demand:
    """What one replica is asked to do. rate: requests a nanosecond (open); clients: requests in flight (closed), or all
    at once (burst). slots: requests that may run together. budget_tokens: tokens of one step. first_wave: share of
    closed requests that are sent at once, at the start. tokens_per_step: what a decode step yields of a request; all
    answers here are by step. regular: an open load's requests come at equal distances. prefill_first: what decodes
    stands still while prompts, never cut, are prefilled."""

    arrival: Literal["open", "closed", "burst"]
    rate: float
    clients: float
    input_tokens: int
    output_tokens: int
    slots: float
    budget_tokens: int
    first_wave: float = 0.0
    tokens_per_step: float = 1.0
    regular: bool = False
    prefill_first: bool = False

    @property
    def chunk_tokens(self) -> int:
        """Prompt tokens that one step takes of one request."""
        return self.input_tokens if self.prefill_first else min(self.input_tokens, self.budget_tokens)

    @property
    def chunks(self) -> int:
        """Steps that the prefill of one prompt takes."""
        return ceil(self.input_tokens / self.chunk_tokens)

    @property
    def gaps(self) -> float:
        """Decode steps of one request."""
        return max(1.0, (self.output_tokens - 1) / self.tokens_per_step)


@dataclass(frozen=True, slots=True)
class Device:
    """Device times, ns. decode: of `n` requests in mid-generation. mixed: of `n` decoding requests and `p` prompts, or
    chunks of them."""

    decode: Callable[[float], float]
    mixed: Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Steady:
    """What comes out. running: decoding requests. rate: requests finished a nanosecond. decode_ns: a step without a
    prefill."""

    ttft_ns: float
    tpot_ns: float
    e2el_ns: float
    running: float
    rate: float
    decode_ns: float
    saturated: bool


def steady(demand: Demand, device: Device, engine: EngineCosts) -> Steady:
    """The steady state of `demand`, or of a burst its mean."""
    state = _State(demand, device, engine)
    if demand.arrival == "burst":
        return state.burst()
    if demand.arrival == "closed":
        later, share = state.closed(), demand.first_wave
        if not share:
            return later
        ttft_ns = share * state.burst().ttft_ns + (1 - share) * later.ttft_ns
        return replace(later, ttft_ns=ttft_ns)
    return state.open(demand.rate)


@dataclass(frozen=True, slots=True)
class _State:
    demand: Demand
    device: Device
    engine: EngineCosts

    def decode(self, running: float) -> float:
        """Period of a step of `running` decoding requests."""
        return self._period(self.device.decode(max(1.0, running)), running, 0.0)

    def mixed(self, running: float, prompts: float) -> float:
        """Period of a step that also prefills `prompts` chunks, or with `prefill_first` does nothing else."""
        if self.demand.prefill_first:
            running = 0.0
        return self._period(self.device.mixed(running, prompts), running + prompts, prompts)

    def _period(self, device_ns: float, running: float, chunks: float) -> float:
        engine = self.engine
        host = engine.per_step_ns + engine.per_request_ns * running + engine.per_chunk_ns * chunks
        hidden = engine.hidden_share * host
        prompt_tokens = chunks * self.demand.chunk_tokens
        issue = engine.issue_ns(running - chunks, chunks, prompt_tokens)
        return max(engine.device_scale * device_ns, hidden + issue) + host - hidden

    def _prompts(self, running: float, rate: float) -> tuple[float, float]:
        """(prompts that share a step, its period): more than one where they come faster than such steps end."""
        one = self.mixed(running, 1.0)
        if rate * one <= 1:
            return 1.0, one
        more = self.mixed(running, 2.0) - one
        if rate * more >= 1:  # no number of prompts keeps up
            return float("inf"), float("inf")
        prompts = rate * (one - more) / (1 - rate * more)
        return prompts, one + (prompts - 1) * more

    def tpot(self, running: float, rate: float) -> float:
        """Mean time from token to token; infinite where prefills leave no time."""
        chunks = rate * self.demand.chunks
        prompts, mixed = self._prompts(running, chunks)
        share = chunks / prompts * mixed
        if not share < 1:
            return mixed
        yielding = 0.0 if self.demand.prefill_first else chunks / prompts
        return 1 / ((1 - share) / self.decode(running) + yielding)

    def open(self, rate: float) -> Steady:
        """Requests that come at `rate`, whatever becomes of them."""
        running = 1.0
        for _ in range(ROUNDS):
            tpot = self.tpot(running, rate)
            after = rate * self.demand.gaps * tpot
            if after > self.demand.slots:
                return self.full(rate)
            if abs(after - running) <= TOLERANCE * running:
                return self._at(running, rate, saturated=False)
            running = after
        return self._at(running, rate, saturated=False)

    def full(self, rate: float) -> Steady:
        """All slots taken: a finished request makes room for the next."""
        slots, gaps = self.demand.slots, self.demand.gaps
        decode, mixed = self.decode(slots), self.mixed(slots, 1.0)
        yielding = 0 if self.demand.prefill_first else 1
        most = slots / decode / (gaps + slots * self.demand.chunks * (mixed / decode - yielding))
        return self._at(slots, min(rate, most) if rate else most, saturated=True)

    def closed(self) -> Steady:
        """`clients` requests are always in flight: the rate at which they would be is bisected."""
        clients = self.demand.clients
        high = clients / (self.demand.gaps * self.decode(1.0))
        low = 0.0
        state = self.open(high)
        for _ in range(60):
            rate = (low + high) / 2
            state = self.open(rate)
            if state.saturated or state.rate * state.e2el_ns > clients:
                high = rate
            else:
                low = rate
            if high - low <= TOLERANCE * high:
                break
        if clients > self.demand.slots:
            return self.full(0.0)
        return self.open(low)

    def burst(self) -> Steady:
        """All at once: prefills first, budget by budget; who is first waits for the prefills of the others."""
        demand, clients = self.demand, min(self.demand.clients, self.demand.slots)
        per_step = float(max(1, demand.budget_tokens // demand.input_tokens)) if demand.chunks == 1 else 1.0
        steps = max(1.0, clients / per_step) * demand.chunks
        step = self.mixed(clients / 2 if steps > 1 else 0.0, min(per_step, clients))
        prefills, decode = steps * step, self.decode(clients)
        waits = prefills - step * demand.chunks
        ttft = self.engine.admission_ns + step * demand.chunks + waits / 2
        tpot = decode + waits / 2 / demand.gaps
        e2el = ttft + demand.gaps * tpot
        return Steady(
            ttft,
            tpot,
            e2el_ns=e2el,
            running=clients,
            rate=clients / (prefills + demand.gaps * decode),
            decode_ns=decode,
            saturated=False,
        )

    def _at(self, running: float, rate: float, saturated: bool) -> Steady:
        tpot, decode = self.tpot(running, rate), self.decode(running)
        chunks = rate * self.demand.chunks
        prompts, mixed = self._prompts(running, chunks)
        share = min(1.0, chunks / prompts * mixed)
        under_way, after = share * mixed + (1 - share) * decode, tpot  # the step that an arrival meets, the next one
        if self.demand.regular and prompts * self.demand.chunks == 1:
            under_way = after = decode
        waits = under_way / 2 + (after if self.engine.plans_ahead else 0.0)
        others = 1.0 if self.demand.arrival == "open" else max(0.0, 1 - 1 / self.demand.clients)
        ttft = self.engine.admission_ns + others * waits + self.demand.chunks * mixed
        return Steady(
            ttft,
            tpot,
            e2el_ns=ttft + self.demand.gaps * tpot,
            running=running,
            rate=rate,
            decode_ns=decode,
            saturated=saturated,
        )
