"""Two sides in turn, the fixed reference kernel before each: what drifts meets both alike."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns

import torch

from device.experiment.sides import Prepared
from device.measure.steady import Reference, Timed
from scenarios.exchange.bench import Part, Repeat

#: Turns, at least and at most, and time for those of all parts, ns. Ranks must agree, so theirs are fixed. All are
#: even: either side is as often the first. With nine and more the interval of the median is no longer from the smallest
#: to the largest, which one busy moment can spoil.
MIN_TURNS, MAX_TURNS, TURNS_NS = 10, 24, 6_000_000_000
#: Turns where time is short: of six the interval from the smallest to the largest still has 97 % confidence.
FEW_TURNS = 6
RANKS_TURNS = 12
#: Repeats of the baseline alone that show how it became warm, at most and, where they take longer than TURNS_NS,
#: at least.
WARM_UP_REPEATS, MIN_WARM_UP = 24, 9


def alternating(a: Prepared, b: Prepared, short_ns: float | None = None) -> dict[Part, tuple[Repeat, ...]]:
    """Time all parts of both sides: A B, B A, A B ... short_ns: time for all turns, None where there is enough."""
    reference = Reference(a.session.backend)
    by_wall = a.session.place.groups.are_several
    repeats: dict[Part, list[Repeat]] = {part: [] for part in a.parts}
    with steady_host():
        for part in a.parts:
            reference.timed()
            a.time(part)
            b.time(part)
        started, number = perf_counter_ns(), 0
        while _goes_on(number, perf_counter_ns() - started, by_wall, short_ns):
            for part, turns in repeats.items():
                turns.append(_turn(a, b, part, reference, number % 2 == 0, by_wall))
            number += 1
    return {part: tuple(turns) for part, turns in repeats.items()}


def _goes_on(done: int, taken_ns: int, ranks: bool, short_ns: float | None) -> bool:
    if ranks:
        return done < RANKS_TURNS
    if short_ns is not None and taken_ns >= short_ns and done >= FEW_TURNS:
        return done % 2 == 1
    return done % 2 == 1 or done < MIN_TURNS or (done < MAX_TURNS and taken_ns < TURNS_NS)


def _turn(a: Prepared, b: Prepared, part: Part, reference: Reference, a_first: bool, by_wall: bool) -> Repeat:
    times: dict[bool, tuple[Timed, Timed]] = {}
    for is_a in (a_first, not a_first):
        before = reference.timed()
        times[is_a] = (before, (a if is_a else b).time(part))
    (a_reference, a_time), (b_reference, b_time) = times[True], times[False]
    return Repeat(
        a_ns=_ns(a_time, by_wall),
        b_ns=_ns(b_time, by_wall),
        a_reference_ns=_ns(a_reference, by_wall),
        b_reference_ns=_ns(b_reference, by_wall),
        a_wall_ns=a_time.wall_ns,
        b_wall_ns=b_time.wall_ns,
        a_first=a_first,
    )


def warming(side: Prepared, part: Part) -> tuple[tuple[float, float], ...]:
    """(reference, side) of the first repeats, ns."""
    reference, ratios = Reference(side.session.backend), []
    by_wall = side.session.place.groups.are_several
    with steady_host():
        started = perf_counter_ns()
        for number in range(WARM_UP_REPEATS):
            if not by_wall and number >= MIN_WARM_UP and perf_counter_ns() - started > TURNS_NS:
                break
            before = reference.timed()
            ratios.append((_ns(before, by_wall), _ns(side.time(part), by_wall)))
    return tuple(ratios)


def _ns(timed: Timed, by_wall: bool) -> float:
    return timed.wall_ns if by_wall else timed.busy_ns


@contextmanager
def steady_host() -> Iterator[None]:
    """No gradients, and no garbage collection in the middle of a repeat."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with torch.inference_mode():
            yield
    finally:
        if collecting:
            gc.enable()
