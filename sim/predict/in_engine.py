"""TPOT as a client of a serving engine measures it: the device's step, and the host work around it that it cannot hide.

A step of a small model on several cards is shorter than what an engine's host does for each step, so the host sets the
pace: Qwen3-4B and Qwen3-30B-A3B are both said to take "20+ ms" a token on four cards where their steps take 7 and 9
(vllm-ascend issue 4656), and Qwen3-8B on eight takes 10 where its step takes 6 (pull request 7829). Which of an
engine's numbers are measured its profile says (`sim.engines`).
"""

from __future__ import annotations

from dataclasses import replace

from scenarios.records import dataclass
from sim.engines.costs import EngineCosts
from sim.engines.ends import ends
from sim.engines.profile import EngineProfile
from sim.predict.predict import Metric


@dataclass(frozen=True, slots=True)
class InEngine:
    """profile: the engine's. source: its worst source. tpot_ms: of one request of the batch. host_ms: host
    work of one step, hidden or not. The ends are those of `sim.engines.ends`, of each by itself."""

    profile: str
    source: str
    tpot_ms: Metric
    host_ms: Metric


def in_engine(
    engine: EngineProfile,
    tpot_ms: Metric,
    requests: int,
    ranks: int,
    asynchronous: bool | None = None,
    tokens: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> InEngine:
    """The TPOT of `requests` that decode together and take `tpot_ms`, ms, without an engine, with `ranks` workers on
    the host. tokens: what one step yields a request, for the value and its ends; more than one with speculation.

    asynchronous: whether the next step is prepared while the device works; None: as the profile says. The profile's
    dispatch_scale, for eager steps of a deployment that was measured, is left to `sim.serving`.
    """
    nominal, fewest, most = tokens[0], min(tokens), max(tokens)
    step_ms = tpot_ms.value * nominal
    steps = [end * n / step_ms for end, n in zip((tpot_ms.low, tpot_ms.high), tokens[1:], strict=True)]

    def scheduled(costs: EngineCosts) -> EngineCosts:
        return replace(costs, hidden_share=0.0) if asynchronous is False else costs

    def tpot(costs: EngineCosts, factors: tuple[float, ...]) -> float:
        step, fewer = factors
        return scheduled(costs).step_ns(1e6 * step_ms * step, requests) / 1e6 / nominal * fewer

    def host_ms(costs: EngineCosts, _: tuple[float, ...] = ()) -> float:
        return costs.host_ns(requests) / 1e6

    own = [(min(steps), max(steps)), (nominal / most, nominal / fewest)]
    costs = engine.costs(ranks)
    of_tpot = [tpot(end.costs, end.factors) for end in ends(engine, ranks, tpot, own)]
    of_host = [host_ms(end.costs) for end in ends(engine, ranks, host_ms)]
    return InEngine(
        engine.name,
        engine.profile.worst_source(),
        Metric(tpot(costs, (1.0, 1.0)), *of_tpot),
        Metric(host_ms(costs), *of_host),
    )
