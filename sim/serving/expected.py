"""What a benchmark of a deployment will say, in closed form: TTFT, TPOT and throughput with their intervals.

The device is the case's, its steps from the grid of `sim.serving.prices`; the engine's host is a profile's, and the
interval that of `sim.engines.ends`.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor, log2
from typing import Literal

import numpy as np

from scenarios.ops.program import Batch, Group
from scenarios.records import dataclass
from scenarios.serving.requests import Load
from sim.engines.costs import EngineCosts
from sim.engines.ends import ends
from sim.engines.profile import EngineProfile
from sim.engines.workers import workers_on_a_host
from sim.predict.speculation import yielded_tokens
from sim.predict.steps import Case, interval_ns
from sim.serving.player import player
from sim.serving.prices import TICKS_PER_NS, GridPrices
from sim.serving.simulate import PrefillTier, prices_of, scheduled, serving_capacity, simulate, without_traffic
from sim.serving.steady import Demand, Device, Steady, steady


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """The load of one benchmark on a whole deployment. rate: requests/s (constant, poisson). clients: requests in
    flight (closed) or all at once (burst). window_s: only requests that end within it are counted; None: all are.
    prefix_hit: share of each prompt that the prefix cache holds. requests: sent in all, where a closed load ends."""

    arrival: Literal["constant", "poisson", "closed", "burst"]
    input_tokens: int
    output_tokens: int
    rate: float = 0.0
    clients: int = 0
    window_s: float | None = None
    prefix_hit: float = 0.0
    requests: int | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """One answer; throughput in output tokens/s. running: requests that decode at a time, per replica. decode_ms: a
    step without a prefill, device_ms: the device's part of it."""

    ttft_ms: float
    tpot_ms: float
    output_throughput: float
    running: float
    decode_ms: float
    device_ms: float
    saturated: bool


class Bench:
    """A load on a case: asked again and again with other engines, each device step is priced once.

    Of instances whose prompts are prefilled elsewhere the closed form is the decode side: its TTFT holds no prefill.
    """

    def __init__(self, case: Case, load: BenchLoad) -> None:
        self.case, self.load = without_traffic(case), load
        self._tables: dict[float, _Steps] = {}
        self._replicas = case.model.data_parallel
        self._ranks = workers_on_a_host(case.model.cards // self._replicas, case.hardware)
        self._hit = min(load.input_tokens - 1, round(load.input_tokens * load.prefix_hit))
        self._demand = self._demanded()
        self._factors: tuple[float, float] | None = None

    @property
    def ranks(self) -> int:
        """Worker processes of one replica."""
        return self._ranks

    def expect(self, engine: EngineCosts, device_factor: float = 1.0) -> Expected:
        """The answer with `engine`, device times multiplied by `device_factor`."""
        scaled = replace(engine, device_scale=engine.device_scale * device_factor)
        scaled = scheduled(self.case, scaled)
        steps = self._blended(engine.dispatch_scale)
        state = steady(self._demand, Device(steps.decode_ns, steps.mixed_ns), scaled)
        return Expected(
            ttft_ms=state.ttft_ns / 1e6,
            tpot_ms=state.tpot_ns / 1e6 / self._demand.tokens_per_step,
            output_throughput=self._replicas * self._tokens_per_s(state),
            running=state.running,
            decode_ms=state.decode_ns / 1e6,
            device_ms=scaled.device_scale * steps.decode_ns(state.running) / 1e6,
            saturated=state.saturated,
        )

    def simulate(self, engine: EngineCosts, load: Load, front: Case | None = None) -> Expected:
        """The answer for the requests of `load`, served one by one; of an open load's window, what ended within it is
        counted. front: an instance that prefills in place of the case's."""
        value = self.expect(engine)
        prices = self._steps(engine.dispatch_scale).prices.scaled(engine.device_scale)
        tier = PrefillTier(front, prices_of(front, engine), engine) if front else None
        outcome = simulate(self.case, engine, load, prices, tier)
        is_open = self.load.arrival in ("constant", "poisson")
        window, start = self.load.window_s if is_open else None, int(outcome.arrived_ns.min())
        ended = outcome.last_ns - start <= 1e9 * window if window else outcome.last_ns >= 0
        if not ended.any():
            return value
        outputs = outcome.output_tokens[ended]
        seconds = window or float(outcome.last_ns.max() - start) / 1e9
        gaps = (outcome.last_ns - outcome.first_ns)[ended] / np.maximum(1, outputs - 1)
        return replace(
            value,
            ttft_ms=float((outcome.first_ns - outcome.arrived_ns)[ended].mean()) / 1e6,
            tpot_ms=float(gaps.mean()) / 1e6,
            output_throughput=float(outputs.sum()) / seconds,
        )

    def interval(self, profile: EngineProfile) -> tuple[Expected, Expected, Expected]:
        """(value, fastest, slowest), the ends by what moves TPOT."""
        value = self.expect(profile.costs(self._ranks))

        def tpot_ms(engine: EngineCosts, factors: tuple[float, ...]) -> float:
            return self.expect(engine, factors[0]).tpot_ms

        fast, slow = ends(profile, self._ranks, tpot_ms, [self.device_factors(value.running)])
        return value, self.expect(fast.costs, fast.factors[0]), self.expect(slow.costs, slow.factors[0])

    def device_factors(self, running: float) -> tuple[float, float]:
        """Ends of the interval of a decode step over its value."""
        if self._factors is None:
            batch = Batch(
                "decode", (Group(max(1, round(running)), self.case.scenario.engine.query_tokens, self._context),)
            )
            value, low, high = interval_ns(self.case, batch)
            self._factors = low / value, high / value
        return self._factors

    def _steps(self, dispatch: float) -> _Steps:
        steps = self._tables.get(dispatch)
        if steps is None:
            steps = self._tables[dispatch] = _Steps(self.case, self._demand, self._context, self._hit, dispatch)
        return steps

    def _blended(self, dispatch: float) -> _Steps | _Blend:
        """Steps on a host that launches `dispatch` times as slowly, between two that are priced: fits ask for many."""
        octave = 2 * log2(dispatch)
        below = floor(octave)
        share = octave - below
        if share < 1e-9:
            return self._steps(2.0 ** (below / 2))
        return _Blend(self._steps(2.0 ** (below / 2)), self._steps(2.0 ** ((below + 1) / 2)), share)

    @property
    def _context(self) -> int:
        return self.load.input_tokens + self.load.output_tokens // 2

    def _demanded(self) -> Demand:
        case, load = self.case, self.load
        scenario = case.scenario
        capacity = serving_capacity(case)
        slots = min(float(scenario.engine.max_num_seqs), max(1.0, capacity.kv_tokens / self._context))
        arrival: Literal["open", "closed", "burst"] = "open"
        if load.arrival in ("closed", "burst"):
            arrival = "closed" if load.arrival == "closed" else "burst"
        return Demand(
            arrival=arrival,
            rate=load.rate / self._replicas / 1e9,
            clients=max(1.0, load.clients / self._replicas),
            input_tokens=1 if scenario.engine.disaggregated_prefill else load.input_tokens - self._hit,
            output_tokens=load.output_tokens,
            slots=slots,
            budget_tokens=scenario.engine.max_num_batched_tokens,
            tokens_per_step=yielded_tokens(scenario.engine)[0],
            first_wave=min(1.0, load.clients / load.requests) if load.requests else 0.0,
            regular=load.arrival == "constant",
            prefill_first=bool(scenario.engine.prefill_first),
        )

    def _tokens_per_s(self, state: Steady) -> float:
        """Output tokens/s that a client counts: of requests that ended, in a window of those that ended within it."""
        tokens = 1e9 * state.rate * self.load.output_tokens
        window = self.load.window_s
        if window is None or self.load.arrival not in ("constant", "poisson"):
            return tokens
        service_s = (state.e2el_ns if not state.saturated else self._demand.gaps * state.tpot_ns) / 1e9
        return tokens * max(0.0, 1 - service_s / window)


@dataclass(frozen=True, slots=True)
class _Blend:
    """Steps between those of two hosts."""

    lower: _Steps
    upper: _Steps
    share: float

    def decode_ns(self, running: float) -> float:
        return (1 - self.share) * self.lower.decode_ns(running) + self.share * self.upper.decode_ns(running)

    def mixed_ns(self, running: float, prompts: float) -> float:
        lower, upper = self.lower.mixed_ns(running, prompts), self.upper.mixed_ns(running, prompts)
        return (1 - self.share) * lower + self.share * upper


class _Steps:
    """Device steps of one load, ns, remembered. Whole numbers of requests are priced, those between interpolated.

    dispatch: the host's time for each launch over what the hardware profile says.
    """

    def __init__(self, case: Case, demand: Demand, context: int, cached: int, dispatch: float) -> None:
        self._demand, self._context, self._cached = demand, context, cached
        self.prices = GridPrices(case, play=player(dispatch))
        self._known: dict[tuple[int, float], float] = {}

    def decode_ns(self, running: float) -> float:
        """Of `running` requests in mid-generation."""
        return self.mixed_ns(running, 0.0)

    def mixed_ns(self, running: float, prompts: float) -> float:
        """Of `running` requests that decode and chunks of `prompts` prompts."""
        below = int(running)
        share = running - below
        at_below = self._priced(below, prompts)
        return at_below if share < 1e-9 else (1 - share) * at_below + share * self._priced(below + 1, prompts)

    def _priced(self, running: int, prompts: float) -> float:
        key = running, prompts
        ns = self._known.get(key)
        if ns is None:
            ticks = self._mixed(running, prompts) if prompts else self._decode(running)
            ns = self._known[key] = ticks / TICKS_PER_NS
        return ns

    def _decode(self, running: int) -> int:
        tokens = max(1, running) * self._context
        return self.prices.decode(max(1, running), tokens).ticks(tokens)

    def _mixed(self, running: int, prompts: float) -> int:
        demand = self._demand
        chunk = demand.chunk_tokens
        before = self._cached + (demand.input_tokens - chunk) // 2  # mean start of a chunk
        pairs = round(prompts * chunk * (before + (chunk + 1) / 2))
        return self.prices.mixed(running, running * self._context, round(prompts * chunk), pairs)
