"""The ends of an answer's interval: an engine's uncertain numbers moved together as far as independent ones go.

Not every number is at its worst at once. Those of one host are: one without free cores is slow in all that it does. So
its health is one number that moves the costs of a step, of a request and of a chunk to their ends, and of the time to
issue a step its power `ISSUE_SHARE`. Independent of it and of each other are what issuing does beyond that, the share
of host work that is hidden, the device's steps, the cores, and what a caller brings (the interval of a step's price).

Each of these, moved alone to its end, moves the logarithm of the answer by e, or, where the largest hides it (a device
behind a slow host), by what it adds next to that one. Together they move it by the root of the sum of e^2, as
independent errors add, and each is moved in proportion to its e until the answer is that far away, or the one with the
largest e is at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, hypot, log, sqrt
from typing import Literal

from scenarios.records import dataclass
from sim.engines.costs import EngineCosts
from sim.engines.profile import EngineProfile
from sim.hardware.profile import Number

#: How much of a host's slowness in preparing a step shows in issuing it, of the logarithm.
ISSUE_SHARE = 0.5
GROUPS = ("host", "issuing", "overlap", "device", "cpu")
#: Halvings of the distance to an end: the last is a thousandth of it.
HALVINGS = 10

Side = Literal["low", "high"]
#: What is judged, whatever its unit, of an engine and of the caller's own factors.
Answer = Callable[[EngineCosts, tuple[float, ...]], float]


@dataclass(frozen=True, slots=True)
class End:
    """An end of an interval: the engine, and the caller's factors."""

    costs: EngineCosts
    factors: tuple[float, ...]


def ends(
    engine: EngineProfile, ranks: int, answer: Answer, factors: Sequence[tuple[float, float]] = ()
) -> tuple[End, End]:
    """(fastest, slowest) of `answer`, which grows with each cost, on a host that runs `ranks` workers.

    factors: (low, high) of the caller's own uncertain numbers over their values. The time to admit a request, which
    delays that request alone, is at its end.
    """
    return _end(engine, ranks, answer, factors, "low"), _end(engine, ranks, answer, factors, "high")


def _end(engine: EngineProfile, ranks: int, answer: Answer, factors: Sequence[tuple[float, float]], side: Side) -> End:
    count = len(GROUPS) + len(factors)
    sign = -1.0 if side == "low" else 1.0

    def at(shares: Sequence[float]) -> End:
        own = tuple(
            (low if side == "low" else high) ** share
            for (low, high), share in zip(factors, shares[len(GROUPS) :], strict=True)
        )
        return End(moved(engine, side, dict(zip(GROUPS, shares, strict=False)), ranks), own)

    def log_of(shares: Sequence[float]) -> float:
        end = at(shares)
        return sign * log(max(answer(end.costs, end.factors), 1e-9))

    nominal = log_of([0.0] * count)
    alone = [max(0.0, log_of([float(n == place) for n in range(count)]) - nominal) for place in range(count)]
    if not any(alone):
        return at([0.0] * count)
    largest = alone.index(max(alone))
    effects = [
        max(effect, log_of([float(n in (largest, place)) for n in range(count)]) - nominal - alone[largest])
        for place, effect in enumerate(alone)
    ]
    together = nominal + hypot(*effects)
    direction = [effect / max(effects) for effect in effects]
    near, far = 0.0, 1.0
    if log_of(direction) > together:
        for _ in range(HALVINGS):
            middle = (near + far) / 2
            beyond = log_of([middle * share for share in direction]) > together
            near, far = (near, middle) if beyond else (middle, far)
    return at([far * share for share in direction])


def moved(engine: EngineProfile, side: Side, shares: dict[str, float], ranks: int = 1) -> EngineCosts:
    """The costs with each of `GROUPS` moved by a share, 0 to 1, of the way to its end."""
    numbers = engine.profile.numbers()
    other: Side = "high" if side == "low" else "low"
    host, cpu = shares.get("host", 0.0), shares.get("cpu", 0.0)

    def us(section: str) -> float:
        return sum(_toward(n, side, host) for name, n in numbers.items() if name.startswith(f"{section}."))

    threads = _toward(numbers["cpu.threads"], side, cpu) + ranks * _toward(numbers["cpu.threads_per_rank"], side, cpu)
    slowdown = max(1.0, threads / _toward(numbers["cpu.cores"], other, cpu))
    return EngineCosts(
        per_step_ns=round(1000 * slowdown * us("step")),
        per_request_ns=round(1000 * slowdown * us("request")),
        per_chunk_ns=round(1000 * slowdown * _toward(numbers["prefill.chunk_us"], side, host)),
        admission_ns=round(1000 * slowdown * _toward(numbers["prefill.receive_us"], side, 1.0)),
        hidden_share=_toward(numbers["overlap.hidden_share"], other, shares.get("overlap", 0.0)),
        device_scale=_toward(numbers["device.scale"], side, shares.get("device", 0.0)),
        dispatch_scale=_dispatch(numbers, side, host, shares.get("issuing", 0.0)),
    )


def _dispatch(numbers: dict[str, Number], side: Side, host: float, issuing: float) -> float:
    """Of the way to its end, in logarithms, what a host's health accounts for, and what is left of the square."""
    number = numbers["device.dispatch_scale"]
    steps = [number for name, number in numbers.items() if name.startswith("step.")]
    ends_us = sum(_toward(n, side, 1.0) for n in steps), sum(float(n.value) for n in steps)
    whole = log(_toward(number, side, 1.0) / float(number.value))
    common = ISSUE_SHARE * abs(log(ends_us[0] / ends_us[1])) if min(ends_us) > 0 else abs(whole)
    common = min(common, abs(whole))
    own = sqrt(whole**2 - common**2)
    return float(number.value) * exp((1 if whole > 0 else -1) * (common * host + own * issuing))


def _toward(number: Number, side: Side, share: float) -> float:
    """The number moved by a share of the way to its end: in logarithms where it has one."""
    value, bound = float(number.value), getattr(number, side)
    if bound is None or not share:
        return value
    if min(value, bound) > 0:
        return float(value * (bound / value) ** share)
    return value + share * (float(bound) - value)
