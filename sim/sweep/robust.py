"""The choice between near ties: the one that loses the smallest share where the host is not a healthy one.

A profile's host is healthy. One eager decode took between 33 and 93 ms on three hosts under load (three runs of one
W8A8 program on 910B2), so a choice that the intervals do not tell from the best one is judged there too: all host times
LOADED times as long. Of ties, the one with the smallest regret over both hosts is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.batches import reported_batch
from sim.predict.steps import Case, sensitivity_of, step_with_host_ns
from sim.predict.uncertainty import ratio_interval
from sim.sweep.evaluate import token_ns

#: Host times under load over a healthy host's: the measured 93 over 33 ms.
LOADED = 93 / 33


def slowdown(case: Case) -> float:
    """How much longer the reported step of `case` is on a loaded host."""
    batch = reported_batch(case.scenario)
    return step_with_host_ns(case, batch, LOADED) / step_with_host_ns(case, batch, 1.0)


def regrets(times: Sequence[float], slowdowns: Sequence[float]) -> list[float]:
    """Of each choice, the larger share that it loses to the best: with its time as it is, and on a loaded host."""
    loaded = [time * slower for time, slower in zip(times, slowdowns, strict=True)]
    return [max(1 - min(times) / time, 1 - min(loaded) / under) for time, under in zip(times, loaded, strict=True)]


def preferred(cases: Sequence[Case]) -> int:
    """The number of the case to run, of cases with the same requests: the one with the shortest step (of decode steps
    the time of a token, drafts and what is accepted of them included), or of those that the profile's interval does not
    tell from it the one with the smallest regret."""
    exposed = [sensitivity_of(case, reported_batch(case.scenario)) for case in cases]
    times = [_judged_ns(case, one.step_ns) for case, one in zip(cases, exposed, strict=True)]
    best = min(range(len(cases)), key=lambda i: times[i])
    ties = []
    for i, one in enumerate(exposed):
        value, low, _ = ratio_interval(one, exposed[best], cases[best].hardware)
        if times[i] / times[best] * low / value <= 1:
            ties.append(i)
    lost = regrets([times[i] for i in ties], [slowdown(cases[i]) for i in ties])
    return min(zip(lost, ties, strict=True))[1]


def _judged_ns(case: Case, step_ns: int) -> float:
    """What a choice is judged by: its step, or where a step yields several tokens of a request, the time of one."""
    drafts = case.scenario.engine.speculative_config is not None and case.scenario.workload.phase == "decode"
    return token_ns(case) if drafts else step_ns
