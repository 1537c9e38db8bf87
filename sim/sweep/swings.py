"""Which uncertain number of the profile would change a plan's choice, and the measurement that would settle it."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

from scenarios.records import dataclass
from sim.predict.steps import Case
from sim.predict.uncertainty import T90
from sim.sweep.evaluate import Point, Slo
from sim.sweep.finalists import Finalist
from sim.sweep.robust import LOADED, slowdown


@dataclass(frozen=True, slots=True)
class Swing:
    """One uncertain number of the profile. low, high: the choice that is best where it is at that end of its 90 %
    interval (all times of that part shorter, or longer); regret: the larger share that the plan's choice then loses to
    it. width: of the number, as a factor."""

    number: str
    width: float
    low: str
    nominal: str
    high: str
    regret: float
    measurement: str


def swings(finalists: Sequence[Finalist], case: Case, slo: Slo) -> list[Swing]:
    """Each uncertain number at both ends of its interval: who is best then, and what the plan's choice loses."""
    best = finalists[0]
    every: list[Swing] = []
    for number, sigma, weights in _numbers(finalists, case):
        ends = []
        for sign in (-1, 1):
            scores = [f.score(slo, exp(sign * T90 * sigma * w)) for f, w in zip(finalists, weights, strict=True)]
            winner = max(range(len(finalists)), key=lambda i: scores[i])
            ends.append((finalists[winner].point, 1 - scores[0] / scores[winner]))
        (low, low_regret), (high, high_regret) = ends
        every.append(
            Swing(
                number=number,
                width=exp(T90 * sigma),
                low=_name(low),
                nominal=_name(best.point),
                high=_name(high),
                regret=max(low_regret, high_regret),
                measurement=_measure(number),
            )
        )
    every.append(_on_loaded_host(finalists, slo))
    return sorted(every, key=lambda s: -s.regret)


def _on_loaded_host(finalists: Sequence[Finalist], slo: Slo) -> Swing:
    """A host under load: who is best there. Its low end is the host of the profile."""
    scores = [finalist.score(slo, slowdown(finalist.point.case)) for finalist in finalists]
    winner = max(range(len(finalists)), key=lambda i: scores[i])
    best, loaded = _name(finalists[0].point), _name(finalists[winner].point)
    number = "host of the deployment, healthy or under load"
    regret = 1 - scores[0] / scores[winner]
    return Swing(number, LOADED, low=best, nominal=best, high=loaded, regret=regret, measurement=_measure(number))


def _name(point: Point) -> str:
    return f"{point.choice.name}, {point.batch} requests"


def _numbers(finalists: Sequence[Finalist], case: Case) -> list[tuple[str, float, list[float]]]:
    """(number, standard deviation of its logarithm, elasticity of each finalist's step) of what the finalists differ
    in."""
    residual = case.hardware.residual
    numbers = [
        ("residual.device_sigma", residual.device_sigma, [f.sensitivity.device for f in finalists]),
        ("residual.host_sigma", residual.host_sigma, [f.sensitivity.host for f in finalists]),
    ]
    families = dict.fromkeys(family for f in finalists for family in map(_family, f.sensitivity.parts) if family)
    for family in families:
        parts = [f.sensitivity.parts.get(("family", family), (0.0, 0.0)) for f in finalists]
        sigma = max(sigma for _, sigma in parts) * 2  # all kernels of the family wrong together, not their shared part
        numbers.append((f"kernels of the family {family}", sigma, [weight for weight, _ in parts]))
    return numbers


def _family(key: Any) -> str:
    """The family of kernels that a part of a step's error stands for, or nothing."""
    return key[1] if isinstance(key, tuple) and len(key) == 2 and key[0] == "family" else ""


def _measure(number: str) -> str:
    """What narrows a number the most."""
    if "host" in number:
        return "an eager decode step on the deployment's host: whatif calibrate --backend npu (or --bench FILE)"
    if "links" in number:
        return "an all-reduce of a decode step's size in the tensor-parallel group (hccl_test)"
    if "device" in number:
        return "one decode step of the best choice: whatif run SCENARIO --backend npu"
    family = number.rpartition(" ")[2]
    return f"the {family} kernels of one decode step of the best choice: whatif run SCENARIO --backend npu"
