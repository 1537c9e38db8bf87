"""Microbenchmarks in, the numbers of a whole profile out: `whatif calibrate` after the device has had its say.

`device` fits the kernel programs; here stand the numbers around them: memory by cache level, host, compiled pieces,
collectives, and how wrong it all is. What no row speaks of stays what the base profile says of it, `assumed` as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import log
from statistics import median
from typing import Any

import numpy as np

from scenarios.errors import ScenarioError
from scenarios.exchange.timings import CAPTURED, COPY, STEP, SYNCHRONIZE, Timing, Timings
from scenarios.ops.catalogue import work_of
from scenarios.ops.work import CollectiveShape, FixedShape, FlatShape, RowsShape
from scenarios.records import dataclass
from sim.collective.price import price_collective
from sim.fitting import robust
from sim.fitting.ascend import fit_blocks
from sim.fitting.collectives import with_links
from sim.fitting.cpu import (
    DRAWS,
    MIN_SHAPES,
    WIDEST,
    Fit,
    Vector,
    at_speed,
    constant,
    fit_program,
    held_out,
    reference_us,
    samples_of,
    trial_sigma,
)
from sim.fitting.far_host import host_bound
from sim.hardware.numbers import with_numbers
from sim.hardware.profile import HardwareProfile, Source
from sim.kernel.cpu import COMPILED, effects
from sim.kernel.price import price

#: Fewest rows that a number of its own is taken from.
MIN_ROWS = 3
#: Numbers of the collectives that are fitted.
LINKS = ("host_start_us", "hccs_gbps", "reduce_gbps")
#: The same of an accelerator, whose vector cores or AI CPUs move small messages: those that its rows depend on.
FAR_LINKS = (
    *LINKS, "sio_gbps", "ai_cpu_start_us", "step_us", "reduce_step_us", "aiv_step_us", "aiv_gbps", "aiv_core_gbps",
    "aiv_reduce_gbps",
)  # fmt: skip
#: A row depends on a number that moves its price by more than this when it grows by half.
MOVES = 0.02


@dataclass(frozen=True, slots=True)
class Found:
    """One number that the rows give, with its 90 % interval and how it was come by."""

    value: float
    low: float
    high: float
    source: Source
    how: str


@dataclass(frozen=True, slots=True)
class Calibrated:
    """numbers: by dotted name, as a profile spells them. unknown: names of what the rows do not identify, with why.
    fits: of each program, with held-out errors. hardware: the base with the numbers in it."""

    numbers: dict[str, Found]
    unknown: dict[str, str]
    fits: tuple[Fit, ...]
    hardware: HardwareProfile


def calibrated(timings: Timings, base: HardwareProfile, draws: int = DRAWS) -> Calibrated:
    """The numbers of a profile that `timings` give. base: what the others are taken from.

    Raises ScenarioError where scipy is missing, where the base is for another device, or where there is no row to fit
    to.
    """
    robust.scipy()
    if base.profile.device != timings.backend:
        what = f"the rows are of {timings.backend}, the base profile {base.name} is for {base.profile.device}"
        raise ScenarioError([f"calibrate: {what}"])
    reference = reference_us(timings)
    numbers = {"reference_us": _measured([row.reference_us for row in timings.rows], "the reference kernel")}
    if base.profile.device != "cpu":
        return _of_accelerator(timings, base, reference, numbers, draws)
    numbers |= dict(_chip(timings)) | dict(_memory(timings, reference))
    hw = with_found(base, numbers)
    fits, unknown = _programs(timings, reference, hw, draws)
    numbers |= program_numbers(fits)
    numbers |= dict(_calls(timings, reference))
    hw = with_found(hw, numbers)
    numbers |= dict(_pieces(timings, reference, hw, draws))
    numbers |= dict(_links(timings, reference, hw, draws))
    numbers |= dict(_residuals(timings, reference, fits))
    return Calibrated(numbers, unknown | _untold(numbers), fits, with_found(base, numbers))


def _errors_by_kind(fits: Sequence[Fit]) -> Iterator[tuple[str, float]]:
    """(kind, error) of all held-out rows."""
    return chain.from_iterable(fit.errors_by_kind() for fit in fits)


def _of_accelerator(
    timings: Timings, base: HardwareProfile, reference: float, numbers: dict[str, Found], draws: int
) -> Calibrated:
    """The kernels of a device that has cores of its own and how wrong they are, its collectives, and what its host's
    calls cost; all else is the base's."""
    fits = fit_blocks(timings, base, reference, draws)
    unknown: dict[str, str] = {}
    for fit in fits:
        how = f"{len(fit.samples)} rows of {fit.shapes} shapes, with the prior of `sim.fitting.shipped`"
        for name, value in fit.values.items():
            numbers[name] = Found(value, *_around(value, fit.intervals[name]), "fitted", how)
        unknown |= dict.fromkeys(fit.unknown, "its interval is wider than a factor of 6: the base's number stays")
    for name, sigma in robust.family_sigmas(_errors_by_kind(fits)).items():
        numbers[name] = Found(sigma, sigma, sigma, "measured", "held-out shapes, such that 90 % lie inside")
    numbers |= dict(_links(timings, reference, with_found(base, numbers), draws))
    numbers |= dict(_far_host(timings, base, draws))
    for name, why in _UNTOLD_FAR.items():
        if not any(known.startswith(name) for known in numbers):
            unknown[name] = why
    return Calibrated(numbers, unknown, fits, with_found(base, numbers))


#: What of an accelerator's host and links is the base's where no row tells it.
_UNTOLD_FAR = {
    "host.aten_python_us": f"fewer than {MIN_ROWS} eager steps were bound by their host, or none of them tells it",
    "host.fused_op_python_us": f"fewer than {MIN_ROWS} eager steps were bound by their host, or none of them tells it",
    "collective": "no collectives were timed, or none that its numbers say anything of",
}


def _far_host(timings: Timings, base: HardwareProfile, draws: int) -> Iterator[tuple[str, Found]]:
    """What a call of the host costs, from eager steps for which the device waits, and one wait."""
    for row in timings.rows:
        if row.kind == SYNCHRONIZE:
            yield "host.synchronize_us", Found(row.median_us, row.low_us, row.high_us, "measured", "one wait, alone")
    calls, rest, steps = host_bound(timings, base)
    if len(steps) < MIN_ROWS or (rest >= steps).any():
        return
    how = f"{len(steps)} eager steps for which the device waits"
    aten, other = _solved(calls, rest, steps, draws, how)
    for number, names in ((aten, ("aten",)), (other, ("matmul", "fused_op"))):
        if number.high <= WIDEST * number.low:
            yield from ((f"host.{name}_python_us", number) for name in names)


def with_found(hw: HardwareProfile, numbers: Mapping[str, Found]) -> HardwareProfile:
    """`hw` with these numbers in it."""
    return with_numbers(hw, {name: number.value for name, number in numbers.items()})


def program_numbers(fits: Sequence[Fit]) -> dict[str, Found]:
    """The programs' effects. What every call pays, `kernel.start_us`, is the smallest that any of them pays."""
    calls = {fit.program: fit.values.get("fixed_us", 0.0) for fit in fits if "fixed_us" in fit.values}
    numbers: dict[str, Found] = {}
    start = min(calls.values(), default=0.0)
    if calls:
        cheapest = next(fit for fit in fits if calls.get(fit.program) == start)
        how = f"the cheapest call of all, {cheapest.program}"
        numbers["kernel.start_us"] = Found(start, *_around(start, cheapest.intervals["fixed_us"]), "fitted", how)
    for fit in fits:
        for effect, value in fit.values.items():
            low, high = _around(value, fit.intervals[effect])
            less = start if effect == "fixed_us" else 0.0
            how = f"{len(fit.samples)} rows of {fit.shapes} shapes"
            numbers[f"programs.{fit.program}.{effect}"] = Found(
                value - less, max(0.0, low - less), max(value, high) - less, "fitted", how
            )
        for effect in fit.unknown:
            numbers[f"programs.{fit.program}.{effect}"] = Found(0.0, 0.0, 0.0, "assumed", _UNTOLD)
    return numbers


_UNTOLD = "not identified by the rows, which other effects explain as well: left out"


def _programs(
    timings: Timings, reference: float, hw: HardwareProfile, draws: int
) -> tuple[tuple[Fit, ...], dict[str, str]]:
    """The fit of each program that has enough shapes, and those that have not."""
    fits, unknown = [], {}
    for program, samples in sorted(samples_of(timings, reference, hw).items()):
        if only := constant(program, samples):
            fits.append(only)
            continue
        shapes = len({sample.shape for sample in samples})
        if shapes < MIN_SHAPES:
            unknown[f"programs.{program}"] = f"only {shapes} shapes were timed, {MIN_SHAPES} are needed"
            continue
        fit = fit_program(program, samples, draws)
        fits.append(held_out(fit))
        unknown |= {f"programs.{program}.{effect}": _UNTOLD for effect in fit.unknown}
    return tuple(fits), unknown


def _chip(timings: Timings) -> Iterator[tuple[str, Found]]:
    """Cache sizes as the system tells them: the core's own, and the last one."""
    told = [(key, int(value)) for key, value in timings.about.items() if key.endswith("_cache_bytes")]
    if len(told) > 1:
        own, last = sorted(told)[-2][1], sorted(told)[-1][1]
        for name, value in (("chip.ub_bytes", own), ("chip.l1_bytes", own), ("chip.l2_bytes", last)):
            yield name, Found(value, value, value, "spec", "as the system tells it")


def _memory(timings: Timings, reference: float) -> Iterator[tuple[str, Found]]:
    """GB/s of copies, read and written, that stay in a core's own cache, in the last one, and in neither."""
    sizes = {key: int(value) for key, value in timings.about.items() if key.endswith("_cache_bytes")}
    copies = [(int(row.values["bytes"]), at_speed(row, reference)) for row in timings.rows if row.kind == COPY]
    if len(sizes) < 2 or not copies:
        return
    own, last = sorted(sizes.items())[-2][1], sorted(sizes.items())[-1][1]
    start = min(us for _, us in copies)
    for name, smallest, most, where in (
        ("memory.core_l2_gbps", 1 << 16, own // 2, "a core's own cache"),
        ("memory.l2_read_gbps", own, last // 4, "the last cache"),
        ("memory.hbm_gbps", last, 1 << 62, "memory"),
    ):
        rates = [2 * size / 1000 / (us - start) for size, us in copies if smallest <= size <= most and us > start]
        if rates:
            rate = _measured(rates, f"{len(rates)} sizes of copies that stay in {where}, read and written")
            yield name, rate
            if name == "memory.hbm_gbps":
                yield "memory.core_hbm_gbps", rate


def _calls(timings: Timings, reference: float) -> Iterator[tuple[str, Found]]:
    """What a call costs next to its kernel: the runner's own time a call, the step's small preparations, a wait."""
    eager = [row for row in timings.rows if row.kind == STEP and not row.values["pieces"]]
    hosts = _host_us(eager, reference)
    if len(hosts) >= MIN_ROWS:
        how = f"steps of {len(hosts)} trials less their calls; the runner calls every op alike"
        value = max(0.0, median(hosts))
        low, high = (max(0.0, float(v)) for v in np.percentile(hosts, (5, 95)))
        yield "host.tiling_us", Found(value, min(low, value), max(high, value), "measured", how)
        stages = ("aten_python_us", "matmul_python_us", "fused_op_python_us", "launch_us", "enqueue_us")
        for name in (*stages, "collective_python_us"):
            yield f"host.{name}", Found(0.0, 0.0, 0.0, "assumed", "part of tiling_us: a CPU's call has no such stages")
    small = [
        at_speed(row, reference) for row in timings.rows if row.ops and isinstance(work_of(row.op).shape, FixedShape)
    ]
    if len(small) >= MIN_ROWS:
        yield "fixed_us.ai_cpu", _measured(small, f"{len(small)} rows of small preparations")
    for row in timings.rows:
        if row.kind == SYNCHRONIZE:
            yield "host.synchronize_us", Found(row.median_us, row.low_us, row.high_us, "measured", "one wait, alone")


def _pieces(timings: Timings, reference: float, hw: HardwareProfile, draws: int) -> Iterator[tuple[str, Found]]:
    """What entering compiled code costs, and a fused call and an element inside it, next to products as they are."""
    rows = [row for row in timings.rows if row.kind == CAPTURED]
    steps = [row for row in timings.rows if row.kind == STEP and row.values["pieces"]]
    if len(rows) < MIN_SHAPES + 1 or not steps:
        return
    parts = [_inside(row, hw) for row in rows]
    features = np.array([(1.0, calls, elements / 1000) for calls, elements, _ in parts])
    products = np.array([us for _, _, us in parts])
    measured = np.array([at_speed(row, reference) for row in rows])
    how = f"{len(rows)} compiled pieces, their products taken out"
    enter, call, element = _solved(features, products, measured, draws, how)
    others = median(max(0.0, host) for host in _host_us(steps, reference))
    value, low, high = (1000 * (us + others) for us in (enter.value, enter.low, enter.high))
    gap = Found(value, low, high, "fitted", how)
    yield "graph.mix_gap_ns", gap
    yield "graph.node_gap_ns", Found(0.0, 0.0, 0.0, "assumed", "inside compiled code nothing is issued")
    outside = median(row.values["pieces"] - 2 * row.values["layers"] for row in steps) / 1000
    how = f"{how}; {1000 * outside:g} pieces of a step are outside its layers"
    yield "graph.start_us", Found(gap.value * outside, gap.low * outside, gap.high * outside, "fitted", how)
    yield f"programs.{COMPILED}.fixed_us", call
    yield f"programs.{COMPILED}.element_ns", element


def _inside(row: Timing, hw: HardwareProfile) -> tuple[int, int, float]:
    """Of a compiled piece: calls that are fused away, their elements, and microseconds of its other calls."""
    fused, elements, others_us = 0, 0, 0.0
    for op in row.ops:
        work = work_of(op)
        if isinstance(work.shape, RowsShape | FlatShape):
            fused, elements = fused + 1, elements + effects(work).elements
        else:
            others_us += price(work, hw, "cold", True).duration_ns / 1000
    return fused, elements, others_us


def _host_us(steps: Sequence[Timing], reference: float) -> list[float]:
    """What the runner takes next to each unit, microseconds: between its marks, less what the two marks take, of which
    one lies inside the unit's own time."""
    return [(row.values["host_us"] - 2 * row.values["mark_us"]) * reference / row.reference_us for row in steps]


def _solved(features: Vector, offsets: Vector, measured: Vector, draws: int, how: str) -> list[Found]:
    """Each coefficient, at least 0, of measured = offset + features x."""
    scale = np.array([float(np.median(measured)) / 10 / max(1e-9, float(np.median(c))) for c in features.T])

    def solve(rows: Any) -> Vector:
        def objective(y: Vector) -> Vector:
            return np.asarray(np.log((offsets[rows] + features[rows] @ (y * scale)) / measured[rows]))

        return np.asarray(robust.solve(objective, np.ones(len(scale)), bounds=(1e-9, np.inf)) * scale)

    every, generator = np.arange(len(measured)), np.random.default_rng(0)
    values = solve(every)
    drawn = np.array([solve(generator.choice(every, len(every))) for _ in range(draws)])
    low, high = np.percentile(drawn, (5, 95), axis=0)
    return [
        Found(float(v), float(min(v, a)), float(max(v, b)), "fitted", how)
        for v, a, b in zip(values, low, high, strict=True)
    ]


def _links(timings: Timings, reference: float, hw: HardwareProfile, draws: int) -> Iterator[tuple[str, Found]]:
    """Start and rate of collectives, from the quickest decile: other programs make a rank late, and others wait."""
    rows = [row for row in timings.rows if row.ops and isinstance(work_of(row.op).shape, CollectiveShape)]
    if len(rows) < MIN_ROWS:
        return
    on_cpu = hw.profile.device == "cpu"
    starts = {name: float(getattr(hw.collective, name)) for name in (LINKS if on_cpu else FAR_LINKS)}
    starts = {name: value for name, value in starts.items() if on_cpu or _moves(name, value, rows, hw)}
    if not starts:
        return

    def errors(values: Mapping[str, float], of: Sequence[Timing]) -> list[float]:
        tried = with_links(hw, values)
        return [log(_collective_us(row, tried) * row.reference_us / (row.low_us * reference)) for row in of]

    def solve(of: Sequence[Timing]) -> dict[str, float]:
        return robust.fit_logs(lambda values: errors(values, of), starts, max_evaluations=None)

    best, generator = solve(rows), np.random.default_rng(0)
    turns = max(2, draws // 4)
    fits = [solve([rows[i] for i in generator.choice(len(rows), len(rows))]) for _ in range(turns)]
    low, high = np.percentile([[fit[name] for name in starts] for fit in fits], (5, 95), axis=0)
    how = f"the quickest decile of {len(rows)} collectives"
    for name, v, a, b in zip(starts, best.values(), low, high, strict=True):
        yield f"collective.{name}", Found(float(v), float(min(v, a)), float(max(v, b)), "fitted", how)
    sigma = robust.sigma_of([abs(e) for e in errors(best, rows)])
    yield "collective.sigma", Found(sigma, sigma, sigma, "measured", f"{len(rows)} collectives, none held out")
    price_collective.cache_clear()  # full of devices that will not come again
    price.cache_clear()


def _moves(name: str, value: float, rows: Sequence[Timing], hw: HardwareProfile) -> bool:
    """Whether any of `rows` depends on a number of the collectives."""
    other = with_links(hw, {name: 1.5 * value})
    return value > 0 and any(abs(log(_collective_us(row, other) / _collective_us(row, hw))) > MOVES for row in rows)


def _collective_us(row: Timing, hw: HardwareProfile) -> float:
    return price(work_of(row.op), hw).duration_ns / 1000


def _residuals(timings: Timings, reference: float, fits: Sequence[Fit]) -> Iterator[tuple[str, Found]]:
    for name, sigma in robust.family_sigmas(_errors_by_kind(fits)).items():
        yield name, Found(sigma, sigma, sigma, "measured", "held-out shapes, such that 90 % lie inside")
    together = trial_sigma(fits)
    how = "all kernels of a trial together, held-out shapes, such that 90 % lie inside"
    yield "residual.device_sigma", Found(together, together, together, "measured", how)
    eager = [row for row in timings.rows if row.kind == STEP and not row.values["pieces"]]
    hosts = _host_us(eager, reference)
    positive = [host for host in hosts if host > 0]
    if len(positive) >= MIN_ROWS:
        middle = median(positive)
        spread = robust.sigma_of([abs(log(host / middle)) for host in positive])
        yield "residual.host_sigma", Found(spread, spread, spread, "measured", "steps less their calls, by trial")


def _untold(numbers: Mapping[str, Found]) -> dict[str, str]:
    """Parts of a profile for which no row was taken."""
    parts = {
        "host.tiling_us": "no eager step was timed",
        "graph.mix_gap_ns": "too few compiled pieces were timed",
        "collective.hccs_gbps": "no collectives were timed",
        "memory.hbm_gbps": "no copies were timed",
        "fixed_us.ai_cpu": "no small preparation was timed",
    }
    return {name: why for name, why in parts.items() if name not in numbers}


def _measured(values: Sequence[float], how: str) -> Found:
    low, middle, high = (float(v) for v in np.percentile(np.asarray(values, dtype=float), (5, 50, 95)))
    return Found(middle, low, high, "measured", how)


def _around(value: float, span: tuple[float, float]) -> tuple[float, float]:
    """`span`, widened where a robust fit of all rows lies outside of it."""
    return min(value, span[0]), max(value, span[1])
