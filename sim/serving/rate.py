"""The highest rate at which a deployment meets an SLO, by bisection, and what limits it there."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.records import dataclass
from scenarios.serving.traffic import DEFAULT_REQUESTS
from scenarios.settings import Workload
from scenarios.traffic_settings import Slo
from sim.serving.metrics import ServingMetrics

#: Share of requests that must meet the SLO (of goodput, DistServe's).
MEETING_SHARE = 0.9
#: Bisection ends where the rates are this close.
PRECISION = 0.02
#: Rates at which a search gives up, requests/s.
MIN_RATE, MAX_RATE = 1e-3, 1e5
#: Arrivals of which the search knows what a rate is.
OPEN = ("constant", "poisson", "gamma")
#: A run of the search has as many requests as come in so many seconds, and never fewer than the scenario: a short run
#: at a high rate would end before a queue grows. And no more than so many.
RUN_S, MAX_REQUESTS = 60, 1500


@dataclass(frozen=True, slots=True)
class HighestRate:
    """rate: requests/s, 0 where no rate meets the SLO. limit: what breaks it just above. missed: which of the SLO's
    latencies most requests miss there. share: of requests that meet it at `rate`."""

    rate: float
    limit: str
    missed: str
    share: float


def requests_at(rate: float, smallest: int) -> int:
    """How many requests a run at `rate` requests/s has, never fewer than `smallest`."""
    return min(MAX_REQUESTS, max(smallest, round(rate * RUN_S)))


def highest_rate(workload: Workload, slo: Slo, run: Callable[[Workload], ServingMetrics]) -> HighestRate:
    """The highest rate of `workload`'s traffic at which MEETING_SHARE of the requests meet `slo`.

    run: serves a workload and says how it went. Raises ValueError where the arrivals have no rate.
    """
    traffic = workload.traffic
    if traffic is None or traffic.arrival not in OPEN:
        raise ValueError("only constant, poisson and gamma arrivals have a rate to search")
    smallest = traffic.requests or DEFAULT_REQUESTS

    def at(rate: float) -> tuple[float, ServingMetrics]:
        changed = traffic.model_copy(update={"rate": rate, "requests": requests_at(rate, smallest), "duration_s": None})
        metrics = run(workload.model_copy(update={"traffic": changed}))
        share = metrics.request_goodput / metrics.request_throughput if metrics.request_throughput else 0.0
        return share, metrics

    good, bad, share = 0.0, None, 0.0
    rate = traffic.rate or 1.0
    while MIN_RATE <= rate <= MAX_RATE and (bad is None or bad[0] > good * (1 + PRECISION)):
        met, metrics = at(rate)
        if met >= MEETING_SHARE and not metrics.saturated:
            good, share = rate, met
        else:
            bad = rate, metrics
        rate = 2 * good if bad is None else (good + bad[0]) / 2 if good else rate / 2
    if bad is None:
        return HighestRate(good, "", "", share)
    return HighestRate(good, bad[1].limit, _missed(slo, bad[1]), share)


def _missed(slo: Slo, metrics: ServingMetrics) -> str:
    """The latency that is furthest beyond its limit at the ninetieth percentile."""
    over = {
        name: getattr(metrics, name).p90 / limit
        for name in ("ttft_ms", "tpot_ms", "e2el_ms")
        if (limit := getattr(slo, name)) is not None
    }
    return max(over, key=lambda name: over[name]) if over and max(over.values()) > 1 else ""
