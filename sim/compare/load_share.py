"""What another load alone would make of a request: load tests that were sent at different rates differ for that, too.

TPOT is a line in the requests in flight, base x (1 + slope x requests). Of seven published sweeps of vLLM-Ascend
(Qwen3-14B at rates, six of one engine at 1 to 34 requests held; `deployments.csv` of the measured data) the slope lies
between 0.5 and 1.1 %, 0.9 at the median (measured); taken half as far again on both sides (assumed). At a rate,
requests in flight follow by Little's law: rate x the time of a request, which grows with them.
"""

from __future__ import annotations

from scenarios.records import dataclass

#: By what share of the step with none a further request in flight lengthens it: at least, and at most.
SLOPE_LOW, SLOPE_HIGH = 0.0035, 0.0165
#: The first token waits longer with each further request in flight by at most this share (the sweep at rates: 0.3 %).
FIRST_HIGH = 0.0165


@dataclass(frozen=True, slots=True)
class Load:
    """One load of a serving engine, and what requests met. arrival: `closed` or at a rate. in_flight: requests, mean.

    parts_ms: what is known of them: `queue` of TTFT, and of TPOT `device`, `prefill` in the same step and `engine`.
    ends: of a prediction, a metric's interval over its value, (metric, low / value, high / value).
    """

    label: str
    arrival: str
    rate: float | None
    in_flight: float
    input_tokens: float
    output_tokens: float
    ttft_ms: float
    tpot_ms: float
    output_throughput: float | None
    parts_ms: tuple[tuple[str, float], ...] = ()
    ends: tuple[tuple[str, float, float], ...] = ()

    @property
    def e2el_ms(self) -> float:
        return self.ttft_ms + (self.output_tokens - 1) * self.tpot_ms


@dataclass(frozen=True, slots=True)
class LoadShare:
    """What B's load would make of A's requests, ms: ends of TPOT and of TTFT, and how the loads differ in words."""

    tpot_ms: tuple[float, float]
    ttft_ms: tuple[float, float]
    differs: str
    heavier: bool

    def tpot_of(self, measured_ms: float) -> float:
        """The TPOT within the ends that is nearest to what was measured."""
        return min(max(measured_ms, self.tpot_ms[0]), self.tpot_ms[1])

    def ttft_of(self, measured_ms: float) -> float:
        """The TTFT within the ends that is nearest to what was measured."""
        return min(max(measured_ms, self.ttft_ms[0]), self.ttft_ms[1])


def load_share(a: Load, b: Load, differs: str) -> LoadShare:
    """What the load of `b` would make of `a`, with nothing else changed."""
    tpot = sorted(_tpot_ms(a, b, slope) for slope in (SLOPE_LOW, SLOPE_HIGH))
    longer = b.input_tokens / a.input_tokens if a.input_tokens else 1.0
    more = 1 + FIRST_HIGH * abs(b.in_flight - a.in_flight)
    heavier = b.in_flight >= a.in_flight
    first = a.ttft_ms * min(1.0, longer) / (1.0 if heavier else more), a.ttft_ms * max(1.0, longer)
    if heavier:
        first = first[0], first[1] * more
    return LoadShare((tpot[0], tpot[1]), first, differs, heavier)


def _tpot_ms(a: Load, b: Load, slope: float) -> float:
    """TPOT of `a` at the load of `b`: at a rate with the requests in flight that Little's law gives, those of `b` where
    the line says that no number of them keeps up."""
    base = a.tpot_ms / (1 + slope * a.in_flight)
    in_flight = b.in_flight
    if b.rate:
        decoding = b.rate * (b.output_tokens - 1) / 1000 * base
        keeps_up = 1 - decoding * slope
        if keeps_up > 0:
            in_flight = min(b.in_flight, (b.rate * b.ttft_ms / 1000 + decoding) / keeps_up)
    return base * (1 + slope * in_flight)
